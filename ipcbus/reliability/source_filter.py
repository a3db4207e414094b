"""Source-side filtering: which datagrams of a session go to which client, and how a client learns which do not.

All clients share the numbers of datagrams. So the source counts, for each client, the datagrams since the last one that
it sent there. A DATA packet says how many there were just before it. While the source sends nothing to the client,
PASSED says this; it also answers a NAK for such a datagram. Each PASSED names all of them since the last DATA,
so the loss of one costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ipcbus.wire import udp_packets
from ipcbus.wire.udp_packets import PASSED_MAX, PASSED_SHIFT

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Sequence, Set

    from ipcbus.reliability.clients import Client, Clients

LISTS_MAX: Final = 64
"""Earlier lists of topics of a client that are remembered; datagrams before them count as sent to it."""
_NOTICE_NS: Final = 200_000_000
"""Time before the first notice where session messages are off."""


class ClientFilter:
    """The datagrams of one client."""

    def __init__(self) -> None:
        self.passed = 0
        """The number of datagrams that were passed over since the last one that was sent to the client."""
        self.notice_ns: int | None = None
        """The time of the next notice; None while the client has nothing new to learn."""
        self.interval_ns = 0
        """The time from a passed datagram to its notice; doubles with each notice. 0 after a datagram was sent."""
        # The lists of the client's topics, each with the number of the first datagram for which it holds. Without a
        # list every datagram is for the client.
        self._lists: list[tuple[int, Set[int]]] = []

    def open(self) -> None:
        """Sends every datagram to the client, until its topics are known."""
        self._lists.clear()

    def set_topics(self, topics: Set[int], lead: int) -> None:
        """Takes the client's topics, which hold for datagrams from the number `lead` on."""
        if not self._lists or self._lists[-1][1] != topics:
            self._lists.append((lead, topics))
            del self._lists[:-LISTS_MAX]

    def wants(self, topics: Set[int] | None) -> bool:
        """Returns whether the next datagram is for the client; `topics` is None when the datagram's are not known."""
        return not self._lists or topics is None or not self._lists[-1][1].isdisjoint(topics)

    def had(self, number: int, topics: Set[int] | None) -> bool:
        """Returns whether a datagram was for the client when it was sent."""
        then = next((listed for first, listed in reversed(self._lists) if first <= number), None)
        return then is None or topics is None or not then.isdisjoint(topics)


class SourceFilter:
    """Puts datagrams of one session into packets for those clients that receive one of their topics."""

    def __init__(
        self,
        session_id: int,
        clients: Clients,
        topics_of: Callable[[bytes], Set[int] | None],
        notice_ns: int,
        notice_max_ns: int,
    ) -> None:
        """Starts without datagrams.

        Args:
            session_id: the session's id.
            clients: its clients.
            topics_of: returns the topics of a datagram with its prefix; None when they are not known.
            notice_ns: time after which a client learns that datagrams were passed over; doubles with each notice.
            notice_max_ns: the longest such time.
        """
        self._session_id, self._clients, self.topics_of = session_id, clients, topics_of
        self._notice_ns = notice_ns or _NOTICE_NS
        self._notice_max_ns = max(notice_max_ns, self._notice_ns)
        self.filtered = 0
        """Datagrams that were not sent to a client, counted for each client."""

    def wanted(self, topics: Set[int] | None) -> bool:
        """Returns whether a client wants the next datagram, with messages of these topics."""
        return any(client.filter.wants(topics) for client in self._clients.registered)

    def send(
        self, number: int, trail: int, body: bytes, topics: Set[int] | None, now_ns: int
    ) -> list[tuple[bytes, Hashable]]:
        """Returns the packets of a new datagram, each with its address."""
        found: list[tuple[bytes, Hashable]] = []
        packets: dict[int, bytes] = {}
        for client in self._clients.registered:
            if client.lead_of(number + 1) > number:
                self._put(client, number, trail, body, client.filter.wants(topics), now_ns, packets, found)
        return found

    def send_to(
        self, client: Client, number: int, trail: int, body: bytes, now_ns: int
    ) -> list[tuple[bytes, Hashable]]:
        """Returns the packets of a datagram that others have got before."""
        found: list[tuple[bytes, Hashable]] = []
        wanted = client.filter.had(number, self.topics_of(body))
        self._put(client, number, trail, body, wanted, now_ns, {}, found)
        return found

    def _put(
        self,
        client: Client,
        number: int,
        trail: int,
        body: bytes,
        wanted: bool,
        now_ns: int,
        packets: dict[int, bytes],
        found: list[tuple[bytes, Hashable]],
    ) -> None:
        """Adds the packets of a datagram for one client; `packets` has those that were made for others."""
        state = client.filter
        if not wanted:
            self.filtered += 1
            state.passed += 1
            if state.notice_ns is None:
                state.interval_ns = state.interval_ns or self._notice_ns
                state.notice_ns = now_ns + state.interval_ns
            if state.passed % PASSED_MAX == 0:
                found += self.notice(client, number + 1)
            return
        passed = state.passed
        if passed > PASSED_MAX:
            found += self.notice(client, number)
            passed = 0
        if passed not in packets:
            packets[passed] = udp_packets.data_front(self._session_id, number, trail, passed << PASSED_SHIFT) + body
        found.append((packets[passed], client.address))
        state.passed, state.notice_ns, state.interval_ns = 0, None, 0

    def answer(
        self, client: Client, numbers: Iterable[int], held: Callable[[int], bytes | None]
    ) -> tuple[list[tuple[bytes, Hashable]], list[int]]:
        """Takes the numbers of a NAK; returns a PASSED for those that were passed over, and the other numbers."""
        passed: list[int] = []
        rest: list[int] = []
        for number in numbers:
            body = held(number)
            was_for = body is None or client.filter.had(number, self.topics_of(body))
            (rest if was_for else passed).append(number)
        return self._packets(client, [(number, 1) for number in passed]), rest

    def notice(self, client: Client, lead: int) -> list[tuple[bytes, Hashable]]:
        """Returns a PASSED for the datagrams that were passed over since the last one for a client, if there are any.

        Args:
            client: the client.
            lead: the number that the next datagram gets.
        """
        passed = client.filter.passed
        return self._packets(client, [(lead - passed, passed)]) if passed else []

    def turn(self, lead: int, now_ns: int) -> list[tuple[bytes, Hashable]]:
        """Returns the notices that are due: they also show a client without datagrams that the source lives."""
        found: list[tuple[bytes, Hashable]] = []
        for client in self._clients.registered:
            state = client.filter
            if state.notice_ns is not None and now_ns >= state.notice_ns:
                found += self.notice(client, client.lead_of(lead))
                state.notice_ns = None
                state.interval_ns = min(2 * state.interval_ns, self._notice_max_ns)
        return found

    @property
    def next_ns(self) -> int | None:
        """The time at which to call `turn`; None while no notice is due."""
        times = (client.filter.notice_ns for client in self._clients.registered)
        return min((time for time in times if time is not None), default=None)

    def _packets(self, client: Client, ranges: Sequence[tuple[int, int]]) -> list[tuple[bytes, Hashable]]:
        return [(packet, client.address) for packet in udp_packets.passed(self._session_id, client.cookie, ranges)]
