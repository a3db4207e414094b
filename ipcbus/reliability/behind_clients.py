"""The clients of a session without a group that have yet to get what others have got.

The way to a client may take less for a while than the source sends: after a loss, or while answers are missing. The
source goes on with the others, as long as the way to one of them takes more. What the client has yet to get waits in
the retransmit window, and the source sends it as the way takes it. The more waits, the slower the source becomes, so
that it goes at the mean pace of its slowest client without a stop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator

    from ipcbus.reliability.clients import Client, Clients
    from ipcbus.reliability.congestion_paths import Path
    from ipcbus.reliability.retransmit_window import RetransmitWindow

_BEHIND_NS: Final = 500_000_000
"""Time of the mean pace of a client by which it may be behind until the source goes at its least pace."""
_STOP_TIMES: Final = 2
"""Times as much that may wait for a client until the source stops."""
_WINDOW_PART: Final = 4
"""Part of the window that may wait until then."""
_LEAST_NS: Final = 40_000_000
"""Time between two datagrams at the least pace."""
_SECOND: Final = 1_000_000_000
_UNLIMITED: Final = 1 << 62


class BehindClients:
    """The clients of one session that are behind: those whose `place` is a number."""

    def __init__(self, window: RetransmitWindow, clients: Clients) -> None:
        """Starts without any.

        Args:
            window: the retransmit window of the source.
            clients: its clients.
        """
        self._window, self._clients = window, clients
        self._found: dict[Hashable, Client] = {}
        self._open = 0
        """The position up to which no client falls behind."""
        self._changes = -1

    def __len__(self) -> int:
        """Returns how many there are."""
        return len(self._found)

    def look_again(self) -> None:
        """Takes note that the way to a client takes less than before."""
        self._open = 0

    def note(self, size: int) -> bool:
        """Takes note of the next datagram, before the window gets it; returns whether a client is behind.

        Args:
            size: its bytes, with CHARGE.
        """
        window = self._window
        end = window.position + size
        if end > self._open or self._changes != self._clients.changes:
            self._changes, self._open = self._clients.changes, _UNLIMITED
            for client in self._clients.registered:
                path = client.path
                if path is None or client.place is not None:
                    continue
                if path.limit < end:
                    client.place, path.position = window.lead, window.position
                    self._found[client.address] = client
                else:
                    self._open = min(self._open, path.limit)
        return bool(self._found)

    def next(self, now_ns: int) -> Iterator[tuple[Client, int, int]]:
        """Yields the datagrams to send now: a client, a number that the window holds, and the number to go on from.

        The two numbers differ where datagrams between them have left the window before they were sent to the client.
        """
        window = self._window
        for client, path in self._all():
            while (place := client.lead_of(0)) < window.lead:
                number = max(place, window.trail)
                begin, end = window.position_of(number), window.position_of(number + 1)
                if end > path.limit or not path.pacer.allows(now_ns):
                    path.position = begin
                    break
                path.pacer.spend(end - begin, now_ns)
                client.place = number + 1
                yield client, number, place
            else:
                client.place = None
                del self._found[client.address]
                self._open = 0

    def next_ns(self, now_ns: int) -> int | None:
        """Returns the time at which to ask for the next ones, or a client for an ACK; None without clients."""
        window, times = self._window, []
        for client, path in self._all():
            times.append(path.ask_again_ns)
            if window.position_of(max(client.lead_of(0), window.trail) + 1) <= path.limit:
                times.append(path.pacer.next_ns(now_ns))
        return min(times, default=None)

    def _all(self) -> Iterator[tuple[Client, Path]]:
        for address, client in list(self._found.items()):
            if self._clients.get(address) is not client or client.path is None or client.place is None:
                del self._found[address]
            else:
                yield client, client.path

    def limit_of(self, client: Client, path: Path) -> int:
        """Returns the position up to which the source may go while a client is behind."""
        position = self._window.position if client.place is None else path.position
        return max(path.limit, position + _STOP_TIMES * self._most(path))

    def pace(self, path: Path) -> int:
        """Returns the bytes a second at which the source goes while a client is behind: the less, the more waits.

        A client is at half of what may wait where the source goes at its pace.
        """
        waits, most = self._window.position - path.position, self._most(path)
        least = path.control.unit * _SECOND // _LEAST_NS
        return max(int(2 * path.takes * (1 - waits / most)) if most else 0, least)

    def _most(self, path: Path) -> int:
        """Returns the bytes that may wait until the source goes at its least pace; repairs need window as well."""
        return min(int(path.takes * _BEHIND_NS / _SECOND), self._window.span // _WINDOW_PART)
