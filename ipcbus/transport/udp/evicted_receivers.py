"""The receiving contexts that a session has evicted, or whose connection has ended, while they have not come back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ipcbus.reliability.clients import Client


@dataclass(frozen=True, slots=True)
class EvictedReceiver:
    """A receiving context whose datagrams are kept.

    Attributes:
        context_id: its id.
        pid: its process id.
        until_ns: the time until which its datagrams are kept.
        before: the registration that is over, and which it may be about to give up.
    """

    context_id: int
    pid: int
    until_ns: int
    before: Client | None


class EvictedReceivers:
    """Those of one session."""

    def __init__(self, timeout_ns: int) -> None:
        """Begins with none.

        Args:
            timeout_ns: the time for which the datagrams of each are kept.
        """
        self.timeout_ns = timeout_ns
        self._found: dict[int, EvictedReceiver] = {}

    def __bool__(self) -> bool:
        """Returns whether there are any."""
        return bool(self._found)

    def __iter__(self) -> Iterator[EvictedReceiver]:
        """Returns them as of now; any thread may ask."""
        return iter(list(self._found.values()))

    def add(self, context_id: int, pid: int, registered: Client | None, now_ns: int) -> None:
        """Takes note of a receiving context; `registered` is its registration that is over."""
        self._found[context_id] = EvictedReceiver(context_id, pid, now_ns + self.timeout_ns, registered)

    def drop_returned(self, clients: Iterable[Client], now_ns: int) -> None:
        """Forgets those that have registered again, and those whose time is over."""
        came = {client.context_id: client for client in clients}
        left = [each for each in self if now_ns < each.until_ns and came.get(each.context_id) in (None, each.before)]
        self._found = {each.context_id: each for each in left}

    @property
    def due_ns(self) -> int | None:
        """When the time of the first one is over; None without any."""
        return min((each.until_ns for each in self), default=None)
