"""Flow control at the source: it sends no more than its slowest client can take, as a full ring does.

A source of LBT-RM may follow the slowest of some clients, or the fastest; then `slowest` is the one that it follows.

A client says in each ACK which datagram it needs next and how many bytes it has room for from there. The source sends
up to there, and no more than its window holds from the datagram that the client needs next, so that nothing that a
client still needs leaves the window. A client that has said nothing yet gets a first room.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ipcbus.reliability.following import Following
from ipcbus.wire.udp_packets import CHARGE, ROOM_MAX

if TYPE_CHECKING:
    from ipcbus.reliability.clients import Client, Clients
    from ipcbus.reliability.congestion_paths import Paths
    from ipcbus.reliability.retransmit_window import RetransmitWindow

FIRST_ROOM: Final = 1 << 16
"""Bytes that a client gets before its first ACK."""
UNLIMITED: Final = 1 << 62
ASK_NS: Final = 10_000_000
"""Time after which a source that waits asks the client for which it waits; doubles each time."""
ASK_MAX_NS: Final = 500_000_000


class Credit:
    """How far a source may send; all positions are those of its window."""

    def __init__(
        self,
        window: RetransmitWindow,
        clients: Clients,
        evict_after: int,
        paths: Paths | None = None,
        *,
        receiver_paced: bool = True,
        following: Following | None = None,
    ) -> None:
        """Starts without clients.

        Args:
            window: the retransmit window of the source.
            clients: its clients.
            evict_after: time in ns for which a client may keep the source waiting; 0 means without limit.
            paths: the congestion control of the session; None without.
            receiver_paced: whether the source waits for room at its clients; else for congestion control only.
            following: the clients that it waits for; None for the slowest.
        """
        self._window, self._clients, self._evict_after = window, clients, evict_after
        self._paths, self._receiver_paced = paths, receiver_paced
        self._following = following or Following()
        self._changes = -1
        self.limit = 0
        """The position up to which the source may send, as far as known; `allows` finds out more."""
        self.slowest: Client | None = None
        """The client for which the source waits."""
        self._watched: Client | None = None
        self._since_ns = self._ask_ns = 0
        self._ask_wait_ns = ASK_NS

    def admit(self, client: Client, *, again: bool) -> None:
        """Takes a client that has proven its address; it may need all that is held until it says more.

        Args:
            client: the client.
            again: whether it begins another stay.
        """
        if again or client.limit < 0:
            client.next, client.limit = self._window.trail, self._window.position + FIRST_ROOM
            self.limit = 0

    @property
    def needed(self) -> int:
        """The lowest number that a client may still need."""
        return min((client.next for client in self._clients.registered), default=self._window.trail)

    def take(self, client: Client, following: int, room: int) -> bool:
        """Takes what an ACK of a client says; returns whether the source may have waited for that."""
        window = self._window
        following = min(following, window.lead)
        position = window.position_of(following)
        limit = UNLIMITED if room == ROOM_MAX else position + room
        if following < min(window.trail, client.next):
            limit = client.limit  # an ACK that was overtaken; where its room ends is not known any more
        came = following > client.next or limit > client.limit
        # Datagrams after a missing one take room as well: what a client once had room for, it has room for.
        client.next, client.limit = max(client.next, following), max(client.limit, limit)
        if client.evicted and client.limit > window.position and client.next >= window.trail:
            client.evicted = False
            self.limit = 0
        return came and client is self.slowest

    def allows(self, size: int) -> bool:
        """Returns whether a datagram of `size` bytes may be sent now; if not, `slowest` is the client that hinders."""
        end = self._window.position + size + CHARGE
        if end <= self.limit and self._changes == self._clients.changes:
            return True
        slowest = self.renew(size)
        if end <= self.limit:
            self.slowest = None
            return True
        self.slowest = slowest
        return False

    def renew(self, size: int = 0) -> Client | None:
        """Finds out up to where the source may send, with a datagram of `size` bytes next.

        Returns:
            The client that keeps the source from sending more; None without any.
        """
        self._changes = self._clients.changes
        following = self._following
        found, slowest, last = following.worst, None, None
        reach, least = -1, UNLIMITED
        span = max(self._window.span, size + CHARGE)
        for client in self._clients.registered:
            if not following.includes(client):
                continue
            limit = self._room_of(client, span) if self._receiver_paced else UNLIMITED
            if self._paths is not None:
                limit = min(limit, self._paths.limit_of(client))
                farthest = self._paths.reach_of(client)
                reach = max(reach, farthest)
                if 0 <= farthest < least:
                    least, last = farthest, client
            if following.prefers(limit, found):
                found, slowest = limit, client
        if last is not None and reach < found:  # no client would get it now
            found, slowest = reach, last
        self.limit = found if slowest is not None else UNLIMITED
        return slowest

    @property
    def known_limit(self) -> int:
        """The position up to which `allows` says yes without looking at the clients again."""
        return self.limit if self._changes == self._clients.changes else 0

    def _room_of(self, client: Client, span: int) -> int:
        """Returns the position up to which a client has room, and the window holds what it needs."""
        window = self._window
        passed = client.filter.passed
        lead = client.lead_of(window.lead)
        if passed and client.next >= lead - passed:  # all that was sent to it has come
            client.next = lead
        return min(client.limit, window.position_of(client.next) + span)

    # ---- a source that waits

    def wait(self, now_ns: int) -> None:
        """Takes note that the source waits from now on."""
        self._watched, self._since_ns, self._ask_wait_ns = self.slowest, now_ns, ASK_NS
        # A client knows neither how many datagrams went past it, nor how little the window of the source holds.
        slowest = self.slowest
        path = slowest.path if slowest is not None else None
        if path is not None:
            self._ask_wait_ns = max(ASK_NS, path.answer_ns)
        unknown = slowest is not None and (slowest.filter.passed or slowest.limit > self.limit)
        asked = path is not None and path.is_asked
        self._ask_ns = now_ns if unknown and not asked else now_ns + self._ask_wait_ns

    def asks(self, now_ns: int) -> bool:
        """Returns whether it is time to ask the slowest client for an ACK: its last one may be lost."""
        if now_ns < self._ask_ns:
            return False
        self._ask_wait_ns = min(2 * self._ask_wait_ns, ASK_MAX_NS)
        self._ask_ns = now_ns + self._ask_wait_ns
        return True

    def is_too_slow(self, now_ns: int) -> bool:
        """Returns whether the slowest client has kept the source waiting for too long."""
        if self.slowest is not self._watched:
            self._watched, self._since_ns = self.slowest, now_ns
        return bool(self._evict_after) and now_ns - self._since_ns >= self._evict_after

    def overtake(self, client: Client) -> None:
        """Does not wait for a client any more, until it has caught up."""
        client.evicted = True
        self.limit = 0

    @property
    def next_ns(self) -> int:
        """The time of the next question or eviction of a source that waits."""
        return min(self._ask_ns, self._since_ns + self._evict_after) if self._evict_after else self._ask_ns
