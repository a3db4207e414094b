"""The clients of a session without a group that have yet to get what others have got.

The way to a client may take less for a while than the source sends: after a loss, or while answers are missing. The
source goes on with the others, as long as the way to one of them takes more. What the client has yet to get waits in
the retransmit window, and the source sends it as the way takes it. The more waits, the slower the source becomes, so
that it goes at the mean pace of its slowest client, and seldom has to stop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ipcbus.reliability.congestion import UNLIMITED

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator

    from ipcbus.reliability.clients import Client, Clients
    from ipcbus.reliability.congestion_paths import Path
    from ipcbus.reliability.retransmit_window import RetransmitWindow

_BEHIND_NS: Final = 1_000_000_000
"""As much as the way to a client took in this time may wait for it; then the source stops."""
_WINDOW_SHARE: Final = 4
"""At most the window divided by this may wait: repairs need the rest."""
_LEAST_SHARE: Final = 0.05
"""The source stops where no more than this part of it is left."""
_LEAST_NS: Final = 40_000_000
"""Longest time between two datagrams of a source that does not stop."""
_LEAST_DATAGRAMS: Final = 16
"""Datagrams of the usual size that may wait in any case, where the window has the room."""
_UNKNOWN_SHARE: Final = 8
"""Before it is known what goes to a client, it counts as the rate of its way divided by this: that rate is a guess."""
_SECOND: Final = 1_000_000_000


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
        self.drops = 0
        """How often a client was not behind any more."""

    def __len__(self) -> int:
        """Returns how many there are."""
        return len(self._found)

    def look_again(self) -> None:
        """Takes note that the way to a client takes less than before."""
        self._open = 0

    def note(self, size: int, waits_for: Callable[[Client], bool]) -> bool:
        """Notes which clients are behind from the next datagram on, before the window gets it.

        Args:
            size: its bytes, with CHARGE.
            waits_for: returns whether the source goes by the way to a client. The others get all datagrams at once.

        Returns:
            Whether a client is behind.
        """
        window = self._window
        end = window.position + size
        if end > self._open or self._changes != self._clients.changes:
            self._changes, self._open = self._clients.changes, UNLIMITED
            for client in self._clients.registered:
                path = client.path
                if path is None or client.place is not None:
                    continue
                if not waits_for(client):
                    self._open = 0  # it may do so again at any time
                elif path.limit < end:
                    client.place, path.position = window.lead, window.position
                    self._found[client.address] = client
                else:
                    self._open = min(self._open, path.limit)
        return bool(self._found)

    def release(self, waits_for: Callable[[Client], bool]) -> list[tuple[Client, int]]:
        """Lets the clients go on with the next datagram that the source does not wait for any more.

        They ask for what they have missed, as far as the window holds it.

        Returns:
            Each of them, with the number of the first datagram that it has not got.
        """
        found = []
        for client, _ in self._all():
            if not waits_for(client):
                found.append((client, client.lead_of(0)))
                self._drop(client)
        return found

    def next(self, now_ns: int) -> Iterator[tuple[Client, int]]:
        """Yields the datagrams to send now: a client and a number."""
        for client, path in self._all():
            yield from self.next_of(client, path, now_ns)

    def next_of(self, client: Client, path: Path, now_ns: int) -> Iterator[tuple[Client, int]]:
        """Yields those of one client."""
        window = self._window
        while (number := client.lead_of(window.lead)) < window.lead:
            begin, end = window.position_of(number), window.position_of(number + 1)
            if end > path.limit or not path.pacer.allows(now_ns):
                path.position = begin
                return
            path.pacer.spend(end - begin, now_ns)
            client.place = number + 1
            yield client, number
        self._drop(client)

    def _drop(self, client: Client) -> None:
        client.place = None
        self._found.pop(client.address, None)
        self._open = 0
        self.drops += 1

    def due(self, now_ns: int) -> list[Client]:
        """Returns the clients to ask for an ACK now."""
        return [client for client, path in self._all() if now_ns >= path.ask_again_ns or path.position >= path.ask_at]

    def prune(self) -> None:
        """Forgets the clients that have left."""
        for _ in self._all():
            pass

    def next_ns(self, now_ns: int) -> int | None:
        """Returns the time at which to ask for the next ones, or a client for an ACK; None without clients."""
        window, times = self._window, []
        for client, path in self._all():
            times.append(path.ask_again_ns)
            if window.position_of(client.lead_of(0) + 1) <= path.limit:
                times.append(path.pacer.next_ns(now_ns))
        return min(times, default=None)

    def _all(self) -> Iterator[tuple[Client, Path]]:
        for address, client in list(self._found.items()):
            if self._clients.get(address) is not client or client.path is None or client.place is None:
                del self._found[address]
            else:
                yield client, client.path

    def limit_of(self, client: Client, path: Path) -> int:
        """Returns the position up to which the source may go, whatever the way to a client takes now."""
        position = self._window.position if client.place is None else path.position
        return max(path.limit, position + int(self._most(path) * (1 - _LEAST_SHARE)))

    def rate_of(self, path: Path) -> int:
        """Returns the bytes a second at which the source may go while a client is behind: less, the more waits for it.

        Where the source goes just as fast as the way to the client takes it, half of the most waits.
        """
        if not (most := self._most(path)):
            return path.rate
        left = 1 - (self._window.position - path.position) / most
        takes = path.takes if path.took else path.rate // _UNKNOWN_SHARE
        return max(int(2 * takes * max(left, _LEAST_SHARE)), path.control.unit * _SECOND // _LEAST_NS)

    def _most(self, path: Path) -> int:
        """Returns the bytes that may wait for a client; 0 before its first answer."""
        least = _LEAST_DATAGRAMS * path.control.unit if path.has_answered else 0
        return min(max(int(path.took * _BEHIND_NS / _SECOND), least), self._window.span // _WINDOW_SHARE)
