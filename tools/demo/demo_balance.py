"""The account of `ipcbus demo`: the messages sent, received and lost for each receiver and transport."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from ipcbus_tools.common import duration, number

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.table import Table

    from ipcbus.stats import Percentiles


@dataclass(frozen=True, slots=True)
class BalanceEntry:
    """One receiver on one transport.

    Attributes:
        receiver: the receiver's name.
        pid: the receiver's process.
        transport: for example `LBT-IPC`.
        sent: messages that the source has published, by the session's counter.
        received: messages that the receiver has counted itself.
        lost: messages that the bus has reported to the receiver as lost.
        msgs_per_second: messages a second at full speed.
        latency: latency at a steady pace, by the histogram of the receiver's slot.
    """

    receiver: str
    pid: int
    transport: str
    sent: int
    received: int
    lost: int
    msgs_per_second: float
    latency: Percentiles | None

    @property
    def balances(self) -> bool:
        """Whether every message is accounted for."""
        return self.sent == self.received + self.lost


def verdict(entries: Sequence[BalanceEntry]) -> str:
    """Returns the account in one line."""
    wrong = [entry for entry in entries if not entry.balances]
    if wrong:
        texts = (
            f"{entry.receiver} on {entry.transport}: {number(entry.sent)} sent, but {number(entry.received)} received "
            f"and {number(entry.lost)} lost"
            for entry in wrong
        )
        return "the account does not balance: " + "; ".join(texts)
    received, lost = sum(entry.received for entry in entries), sum(entry.lost for entry in entries)
    if lost:
        return f"{number(lost)} lost, each one counted: sent = received + lost for every receiver"
    return f"nothing lost: {number(received)} messages, sent = received + lost for every receiver"


def table(entries: Sequence[BalanceEntry]) -> Table:
    """Returns the account as a table for a terminal of 80 columns."""
    from rich import box
    from rich.table import Table

    found = Table(box=box.SIMPLE_HEAD, padding=(0, 0), pad_edge=False)
    found.add_column("receiver", no_wrap=True)
    found.add_column("transport", no_wrap=True)
    for column in ("sent", "received", "lost", "msg/s", "p50", "p99", "p99.9"):
        found.add_column(column, justify="right", no_wrap=True)
    for entry in entries:
        latency = entry.latency
        found.add_row(
            entry.receiver.removeprefix("receiver "),
            entry.transport,
            *(number(entry.sent), number(entry.received), number(entry.lost)),
            f"{entry.msgs_per_second / 1e6:.2f} M",
            *(duration(value) for value in ((latency.p50, latency.p99, latency.p999) if latency else (None,) * 3)),
        )
    return found


def facts(entries: Sequence[BalanceEntry], seconds: float) -> dict[str, Any]:
    """Returns the account for --json."""
    return {
        "balances": all(entry.balances for entry in entries),
        "lost": sum(entry.lost for entry in entries),
        "seconds": round(seconds, 3),
        "receivers": [asdict(entry) for entry in entries],
    }
