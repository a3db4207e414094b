"""The account of `ipcbus demo`: the messages sent, received and lost for each receiver and transport."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from ipcbus_tools.common import number
from ipcbus_tools.render.text_tables import percentiles

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ipcbus.stats import Percentiles
    from ipcbus_tools.render.text_tables import Row


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


def rows(entries: Sequence[BalanceEntry]) -> list[Row]:
    """Returns the rows of a table that fits a terminal of 80 columns; the entries are of one transport."""
    return [
        {
            "receiver": entry.receiver.removeprefix("receiver "),
            "sent": number(entry.sent),
            "received": number(entry.received),
            "lost": number(entry.lost),
            "msg/s": f"{entry.msgs_per_second / 1e6:.2f} M",
            **percentiles(entry.latency, "p50", "p99", "p99.9"),
        }
        for entry in entries
    ]


def facts(entries: Sequence[BalanceEntry], seconds: float) -> dict[str, Any]:
    """Returns the account for --json."""
    return {
        "balances": all(entry.balances for entry in entries),
        "lost": sum(entry.lost for entry in entries),
        "seconds": round(seconds, 3),
        "receivers": [asdict(entry) for entry in entries],
    }
