"""How the receiver's end of a session behaves, and what it counts."""

from __future__ import annotations

from dataclasses import dataclass, field

from ipcbus.reliability.receive_state import ReceiveCounts, ReceiveSettings
from ipcbus.wire import udp_packets


@dataclass(frozen=True, slots=True)
class ReceiverSettings:
    """How the receiver's end behaves; named as the options, times in ns.

    Attributes:
        receiving: losses, requests, activity.
        connect_interval: between two CONNECT.
        maximum_connect_attempts: so many in vain end it; on a multicast session, where what comes is delivered without
            registration, those that follow are only rare.
        acknowledgement_interval: between two ACK.
        jump_max: a number so far above all that is known is believed only when the source has proven it.
    """

    receiving: ReceiveSettings = field(default_factory=ReceiveSettings)
    connect_interval: int = 100_000_000
    maximum_connect_attempts: int = 600
    acknowledgement_interval: int = 500_000_000
    jump_max: int = 1 << 16


@dataclass(slots=True)
class ReceiverCounts(ReceiveCounts):
    """What the receiver's end counts; Ultra Messaging's names.

    Attributes:
        dgrams_dropped_size: packets that are too short for one.
        dgrams_dropped_type: of an unknown type.
        dgrams_dropped_version: of another version.
        dgrams_dropped_hdr: packets that contradict themselves.
        dgrams_dropped_sid: of another session.
        dgrams_dropped_other: from elsewhere, unproven, with a number too far away, or before the session was joined.
        connects_sent: times that it asked to be registered.
        acks_sent: ACK packets.
        resets_rcved: times that the source did not know it.
    """

    dgrams_dropped_size: int = 0
    dgrams_dropped_type: int = 0
    dgrams_dropped_version: int = 0
    dgrams_dropped_hdr: int = 0
    dgrams_dropped_sid: int = 0
    dgrams_dropped_other: int = 0
    connects_sent: int = 0
    acks_sent: int = 0
    resets_rcved: int = 0

    def dropped(self, packet: bytes, session_id: int | None) -> None:
        """Counts a packet that is not for a session, or not one at all.

        Args:
            packet: it.
            session_id: of the session; None where it does not come from its source.
        """
        found = udp_packets.parse(packet)
        if found is None:
            name = f"dgrams_dropped_{udp_packets.fault(packet)}"
            setattr(self, name, getattr(self, name) + 1)
        elif session_id is not None and found.session_id != session_id:
            self.dgrams_dropped_sid += 1
        else:
            self.dgrams_dropped_other += 1
