"""Numbers and names of transports; not part of the layout, so that looking up a name does not load numpy."""

from typing import Final

TRANSPORT_LBTIPC: Final = 1
TRANSPORT_LBTSMX: Final = 2
TRANSPORT_LBTRU: Final = 3
TRANSPORT_LBTRM: Final = 4
TRANSPORT_LBTTCP: Final = 5

OVER_UDP: Final = (TRANSPORT_LBTRU, TRANSPORT_LBTRM, TRANSPORT_LBTTCP)
"""Transports without a ring that receivers map: over UDP, or over TCP in the same manner."""

TRANSPORT_NAMES: Final = {
    TRANSPORT_LBTIPC: "LBT-IPC",
    TRANSPORT_LBTSMX: "LBT-SMX",
    TRANSPORT_LBTRU: "LBT-RU",
    TRANSPORT_LBTRM: "LBT-RM",
    TRANSPORT_LBTTCP: "LBT-TCP",
}
