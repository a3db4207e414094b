"""Texts about a session over UDP or TCP."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ipcbus_tools.common import duration, number, plural, size

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ipcbus.stats import SessionStats, SlotStats, UplinkStats


def medium(layer: str) -> str:
    """Returns the protocol under a transport over the network: UDP or TCP."""
    return "TCP" if layer.replace("-", "").casefold() == "lbttcp" else "UDP"


def data_rate(uplink: UplinkStats) -> str:
    """Returns the data rate as the text for what holds a session up."""
    return f"the data rate of {uplink.layer} ({bits(uplink.data_rate)})"


def window(session: SessionStats) -> str:
    """Returns the size of a session's window; over UDP, the bytes of datagrams that the source can send again."""
    uplink = session.uplink
    if uplink is None or uplink.layer != session.transport:
        return size(session.capacity)
    return f"{size(uplink.counters.get('txw_bytes', 0))} held"


def transport(session: SessionStats) -> str:
    """Returns the transport of a session and its pacing, which is not known of a source on another host."""
    return ", ".join(filter(None, (session.transport, session.pacing.replace("_", "-"))))


def windows(session: SessionStats) -> Iterator[tuple[str, str]]:
    """Yields the window of a session with its name; over UDP, the retransmit window and the send buffer."""
    uplink, datagram = session.uplink, f"datagrams up to {size(session.datagram_max)}" if session.datagram_max else ""
    if uplink is None or uplink.layer != session.transport:
        yield "window", ", ".join(filter(None, (size(session.capacity), datagram)))
        return
    held = f"{plural(uplink.counters.get('txw_msgs', 0), 'datagram')}, {window(session)} for retransmission"
    yield "window", held
    yield "send buffer", ", ".join(filter(None, (size(session.capacity), datagram)))


def bits(rate: int) -> str:
    """Returns a rate limit in the unit that fits."""
    if not rate:
        return "no limit"
    for unit in ("bit/s", "kbit/s", "Mbit/s"):
        if rate < 1000:
            return f"{rate:.3g} {unit}"
        rate /= 1000  # type: ignore[assignment]
    return f"{rate:.3g} Gbit/s"


def repair(uplink: UplinkStats) -> str:
    """Returns the counts of NAKs and retransmissions."""
    counted = uplink.counters
    refused = sum(counted.get(name, 0) for name in ("naks_ignored", "naks_shed", "naks_rx_delay_ignored"))
    text = f"{plural(counted.get('naks_rcved', 0), 'NAK')}, {number(counted.get('rxs_sent', 0))} sent again"
    return text + (f", {number(refused)} refused or put off" if refused else "")


def facts(session: SessionStats) -> Iterator[tuple[str, str]]:
    """Yields the facts about a session over UDP or TCP, each with its name; none for a session of the ring alone."""
    uplink = session.uplink
    if uplink is None:
        return
    clients = uplink.counters.get("num_clients", 0)
    over = f"over {medium(uplink.layer)}"
    state = f"{clients} of {uplink.clients_max} receivers" if uplink.active else f"no receiver {over}"
    yield over, f"{uplink.source}, {state}"
    if not uplink.counters:
        return
    yield "rates", f"data {bits(uplink.data_rate)}, retransmissions {bits(uplink.retransmit_rate)}"
    waits = uplink.counters["rctlr_data_msgs"], uplink.counters["rctlr_rx_msgs"]
    limited = f"{duration(uplink.counters['rate_limited_ns'] + uplink.limited_for_ns)} in all"
    if uplink.limited is not None:
        limited += f", {uplink.limited:.1%} of the time since the previous snapshot"
    yield "limited", f"{limited}; {number(waits[0])} datagrams and {number(waits[1])} retransmissions wait"
    yield "repair", repair(uplink)


def lines(slot: SlotStats) -> Iterator[tuple[str, str]]:
    """Yields the facts about a receiver over UDP, each with its name; none for a receiver of the ring."""
    if slot.layer == "ring":
        return
    yield "receives over", slot.layer + (f" at {slot.address}" if slot.address else "")
    if slot.reason:
        yield "reason", slot.reason
    reception = slot.reception
    if reception is None:
        return
    yield "source at", f"{reception.address}, {reception.state}"
    counted = reception.counters
    yield (
        "repair",
        f"{plural(counted['naks_sent'], 'NAK')}, {number(counted['missing'])} missing, "
        f"{number(reception.unrecovered)} given up",
    )
