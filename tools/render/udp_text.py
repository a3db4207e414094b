"""Words for what there is to say of a session over UDP."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ipcbus_tools.common import duration, number, plural

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ipcbus.stats import SessionStats, SlotStats, UplinkStats


def data_rate(uplink: UplinkStats) -> str:
    """What holds a session up that may not send faster."""
    return f"the data rate of {uplink.layer} ({bits(uplink.data_rate)})"


def bits(rate: int) -> str:
    """Returns a limit of a rate."""
    if not rate:
        return "no limit"
    for unit in ("bit/s", "kbit/s", "Mbit/s"):
        if rate < 1000:
            return f"{rate:.3g} {unit}"
        rate /= 1000  # type: ignore[assignment]
    return f"{rate:.3g} Gbit/s"


def repair(uplink: UplinkStats) -> str:
    """What was asked for again, and what became of it."""
    counted = uplink.counters
    refused = sum(counted.get(name, 0) for name in ("naks_ignored", "naks_shed", "naks_rx_delay_ignored"))
    text = f"{plural(counted.get('naks_rcved', 0), 'NAK')}, {number(counted.get('rxs_sent', 0))} sent again"
    return text + (f", {number(refused)} refused or put off" if refused else "")


def facts(session: SessionStats) -> Iterator[tuple[str, str]]:
    """What there is to say of a session's way over UDP, each with its name; nothing where it has none."""
    uplink = session.uplink
    if uplink is None:
        return
    clients = uplink.counters.get("num_clients", 0)
    state = f"{clients} of {uplink.clients_max} receivers" if uplink.active else "nobody receives it so"
    yield "over UDP", f"{uplink.source}, {state}"
    if not uplink.counters:
        return
    yield "rates", f"data {bits(uplink.data_rate)}, retransmissions {bits(uplink.retransmit_rate)}"
    waits = uplink.counters["rctlr_data_msgs"], uplink.counters["rctlr_rx_msgs"]
    limited = f"{duration(uplink.counters['rate_limited_ns'] + uplink.limited_for_ns)} in all"
    if uplink.limited is not None:
        limited += f", {uplink.limited:.1%} of the time since the last look"
    yield "limited", f"{limited}; {number(waits[0])} datagrams and {number(waits[1])} retransmissions wait"
    yield "repair", repair(uplink)


def lines(slot: SlotStats) -> Iterator[tuple[str, str]]:
    """Yields the same of a receiver."""
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
