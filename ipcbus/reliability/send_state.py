"""The numbers of a session at its source: retransmit window, rate limits, retransmissions, NCFs, session messages."""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, Final, NamedTuple

from ipcbus.reliability.congestion_paths import Paths
from ipcbus.reliability.credit import UNLIMITED, Credit
from ipcbus.reliability.following import SLOWEST, Following
from ipcbus.reliability.rate_limiter import RateLimiter
from ipcbus.reliability.retransmit_window import RetransmitWindow
from ipcbus.reliability.session_messages import SessionMessages
from ipcbus.wire.udp_packets import CHARGE, NCF_IGNORED, NCF_RX_DELAY, NCF_SHED

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable

    from ipcbus.reliability.clients import Client, Clients

    _Asked = tuple[int, Hashable]
    """A number, and the client that asked for it."""


@dataclass(frozen=True, slots=True)
class SendSettings:
    """The settings of a source; named as the options, times in ns.

    Attributes:
        window_size: largest number of bytes of datagrams in the retransmit window.
        window_limit: largest number of bytes of the window with the overhead of each datagram; 0 means no limit.
        ignore_interval: time after a retransmission in which NAKs for the number are refused. Ultra Messaging's rule
            is half of the receivers' backoff at most; its own defaults (500 ms and 200 ms) break the rule, these do
            not. -1 is the measured round trip to the client that asks.
        data_rate: limit of datagrams in bits a second; 0 means no limit.
        retransmit_rate: limit of retransmissions in bits a second; 0 means no limit.
        rate_interval: interval for which the rate limits give a budget.
        queue_max: largest number of retransmissions that wait for the limit; the source sheds those beyond.
        receiver_paced: whether the source waits for room at its slowest client; else it may overtake clients.
        follows: what the source waits for: the `SLOWEST` client, the slowest of the `TAGGED` ones, or the `FASTEST`.
        tag: the text with which the names of the contexts begin that are tagged.
        evict_after: time for which a client may keep a receiver-paced source waiting; then the source overtakes it.
            0 means no limit.
        congestion_control: whether the source sends no more than the network takes on the way to its slowest client.
        drop_bytes: what all clients of a receiver-paced session have got leaves the window, at least this number of
            bytes at a time; new datagrams then lie in memory that the cache still has. It ends with the first client
            that goes: it may come back, and go on where it has stopped. 0 keeps what the window has room for.
        sm_minimum: silence before the first session message; 0 turns session messages off.
        sm_maximum: longest time between two session messages.
    """

    window_size: int = 25_165_824
    window_limit: int = 0
    ignore_interval: int = -1
    data_rate: int = 10_000_000
    retransmit_rate: int = 5_000_000
    rate_interval: int = 100_000_000
    queue_max: int = 1024
    receiver_paced: bool = True
    follows: str = SLOWEST
    tag: str = ""
    evict_after: int = 0
    congestion_control: bool = False
    drop_bytes: int = 0
    sm_minimum: int = 200_000_000
    sm_maximum: int = 10_000_000_000


IGNORE_MIN_NS: Final = 5_000_000
"""Shortest measured time in which NAKs are refused."""
IGNORE_MAX_NS: Final = 500_000_000
"""Longest measured time in which NAKs are refused."""
_NEW_WAITS_MAX_NS: Final = 20_000_000
"""Longest time for which retransmissions at the pace of all keep new datagrams from all receivers."""


@dataclass(slots=True)
class SendCounts:
    """The counters of a source, by Ultra Messaging's names.

    Attributes:
        msgs_sent: datagrams, without retransmissions.
        bytes_sent: the bytes of these datagrams.
        naks_rcved: numbers in NAKs.
        nak_pckts_rcved: packets with NAKs.
        naks_ignored: numbers in NAKs that were refused, since the datagram was sent again just before.
        naks_rx_delay_ignored: numbers in NAKs that wait for the limit of retransmissions.
        naks_shed: numbers in NAKs that were refused, since too many wait already.
        naks_too_old: numbers in NAKs that are not in the window any more, or were never sent.
        rxs_sent: retransmissions.
        rx_bytes_sent: the bytes of the retransmissions.
        ncfs_sent: numbers in NCFs; a second NAK within the ignore interval gets no NCF.
        sms_sent: session messages.
    """

    msgs_sent: int = 0
    bytes_sent: int = 0
    naks_rcved: int = 0
    nak_pckts_rcved: int = 0
    naks_ignored: int = 0
    naks_rx_delay_ignored: int = 0
    naks_shed: int = 0
    naks_too_old: int = 0
    rxs_sent: int = 0
    rx_bytes_sent: int = 0
    ncfs_sent: int = 0
    sms_sent: int = 0


class Datagram(NamedTuple):
    """A datagram: its number, the oldest number held, its bytes, whether it was sent before, and the client that asked.

    It is for all receivers when it is new, or where a group hears what one of its receivers asked for.
    """

    number: int
    trail: int
    data: bytes
    retransmitted: bool
    to: Hashable = None


class Refusal(NamedTuple):
    """An NCF to the client that asked: the source does not send these numbers now."""

    reason: int
    numbers: list[int]


class SendState:
    """The numbers of one session at its source."""

    def __init__(
        self,
        settings: SendSettings,
        now_ns: int,
        counts: SendCounts | None = None,
        prefix: int = 0,
        clients: Clients | None = None,
        *,
        multicast: bool = False,
        is_exempt: Callable[[Hashable], bool] = lambda address: False,
    ) -> None:
        """Starts before the first datagram.

        Args:
            settings: limits and times.
            now_ns: the time.
            counts: the counters to use.
            prefix: number of bytes before each datagram that are sent again with it and not counted.
            clients: the clients for whose room a receiver-paced source waits.
            multicast: whether the session has a group.
            is_exempt: whether the way to an address needs no congestion control.
        """
        self.counts = counts or SendCounts()
        self.window = RetransmitWindow(settings.window_size, settings.window_limit, prefix)
        paced = settings.receiver_paced
        following = Following(settings.follows, settings.tag)
        self.paths = (
            Paths(
                self.window,
                clients,
                multicast=multicast,
                receiver_paced=paced,
                is_exempt=is_exempt,
                following=following,
            )
            if clients is not None and settings.congestion_control
            else None
        )
        """The congestion control; None without."""
        self.credit = (
            Credit(self.window, clients, settings.evict_after, self.paths, receiver_paced=paced, following=following)
            if clients is not None and (paced or self.paths is not None)
            else None
        )
        """How far the source may send; None where it does not wait for clients."""
        self.drops_received = settings.drop_bytes > 0 and paced
        """Whether what all clients have got leaves the window."""
        self._drop_at = settings.drop_bytes
        self.has_no_receivers = False
        """Whether the session has no receivers: datagrams are held and counted, but take nothing from the data rate."""
        self._prefix = prefix
        self._settings = settings
        self._remembers_ns = settings.ignore_interval if settings.ignore_interval >= 0 else IGNORE_MAX_NS
        self._data_limiter = RateLimiter(settings.data_rate, settings.rate_interval)
        self.retransmit_limiter = RateLimiter(settings.retransmit_rate, settings.rate_interval)
        """The limit of retransmissions, which frames of control channels share."""
        self._session_messages = SessionMessages(settings.sm_minimum, settings.sm_maximum, now_ns)
        # By number and the client that asked; a group counts as one client.
        self._retransmit_queue: dict[_Asked, None] = {}
        # The times at which each of them was last sent again, and last refused, the oldest first.
        self._retransmitted_ns: OrderedDict[_Asked, int] = OrderedDict()
        self._refused_ns: OrderedDict[_Asked, int] = OrderedDict()
        self._waiting: deque[bytes] = deque()
        self._new_sent_ns = now_ns
        """When the last new datagram was sent under congestion control."""

    def send(self, datagram: bytes, now_ns: int, *, wanted: bool = True) -> int:
        """Returns the number of a datagram to be sent now; -1 when it has to wait for room or for the data rate.

        Args:
            datagram: its bytes.
            now_ns: the time.
            wanted: whether a receiver gets it; else it takes nothing from the data rate.
        """
        size = len(datagram) - self._prefix
        if self._waiting or not self._may_send(size, now_ns, wanted=wanted):
            self._waiting.append(datagram)
            return -1
        self.sent(1, size, now_ns)
        return self.window.add(datagram)

    @property
    def open_until(self) -> int:
        """The usual case: the position of the window up to which datagrams may be sent at once; `sent` takes note.

        0 when each one has to go to `send`.
        """
        if self._waiting or self.paths is not None or not self._data_limiter.unlimited:
            return 0
        return UNLIMITED if self.credit is None else self.credit.known_limit

    def sent(self, count: int, size: int, now_ns: int) -> None:
        """Takes note of datagrams that were added to the window as `open_until` allows.

        Args:
            count: their number.
            size: their bytes.
            now_ns: the time.
        """
        self.counts.msgs_sent += count
        self.counts.bytes_sent += size
        self._session_messages.sent(now_ns)

    def drop_received(self) -> None:
        """Drops from the window what all clients have got, if that is a matter of enough bytes."""
        window = self.window
        if self.drops_received and self.credit is not None and window.bytes >= self._drop_at:
            window.drop_below(self.credit.needed)
            self._drop_at = window.bytes + self._settings.drop_bytes

    @property
    def blocked(self) -> bool:
        """Whether a datagram waits for room or for the data rate; the caller should not send another one now."""
        return bool(self._waiting)

    @property
    def read_lead(self) -> int:
        """The number of the datagram that is read from the ring next: some before it may wait."""
        return self.window.lead + len(self._waiting)

    @property
    def waiting(self) -> int:
        """The number of datagrams that wait for the data rate."""
        return 0 if self.slowest is not None else len(self._waiting)

    @property
    def slowest(self) -> Client | None:
        """The client for whose room the source waits; None when it does not wait for any."""
        return self.credit.slowest if self._waiting and self.credit is not None else None

    def _may_send(self, size: int, now_ns: int, *, wanted: bool = True) -> bool:
        credit = self.credit
        if credit is not None:
            waited = self._waiting and credit.slowest is not None
            if not credit.allows(size):
                if not waited:
                    credit.wait(now_ns)
                return False
        if self.has_no_receivers or not wanted:
            return True
        paths = self.paths
        if paths is None:
            return self._data_limiter.take(size, now_ns)
        if not paths.pacer.allows(now_ns) or not self._data_limiter.take(size, now_ns):
            return False
        self._new_sent_ns = now_ns
        paths.pacer.spend(size + CHARGE, now_ns)
        paths.sent(size)
        return True

    @property
    def queued(self) -> int:
        """The number of retransmissions that wait for their rate."""
        return len(self._retransmit_queue)

    def nak(
        self, numbers: Iterable[int], now_ns: int, client: Hashable = None, round_trip_ns: int = 0
    ) -> tuple[list[Datagram], list[Refusal]]:
        """Takes the numbers of a NAK; returns the datagrams to send now, of this and earlier NAKs, and what is refused.

        A datagram that was sent there less than the ignore interval ago is on its way already: the first NAK for it
        gets an NCF, the next ones get no answer.

        Args:
            numbers: the numbers.
            now_ns: the time.
            client: who asks, and gets the answer; None for a group.
            round_trip_ns: the measured round trip to the one who asks; 0 before the first measurement.
        """
        ignore_ns = self._settings.ignore_interval
        if ignore_ns < 0:
            ignore_ns = min(max(round_trip_ns, IGNORE_MIN_NS), IGNORE_MAX_NS)
        self.counts.nak_pckts_rcved += 1
        self._forget_old(now_ns)
        refused: dict[int, list[int]] = {}
        queued = []
        for asked in [(number, client) for number in sorted(set(numbers))]:
            self.counts.naks_rcved += 1
            if self.window.get(asked[0]) is None:
                self.counts.naks_too_old += 1
            elif now_ns - self._retransmitted_ns.get(asked, -ignore_ns) < ignore_ns:
                self.counts.naks_ignored += 1
                self._refuse(asked, NCF_IGNORED, refused, now_ns, ignore_ns)
            elif asked in self._retransmit_queue:
                self.counts.naks_rx_delay_ignored += 1
                self._refuse(asked, NCF_RX_DELAY, refused, now_ns, ignore_ns)
            elif len(self._retransmit_queue) >= self._settings.queue_max:
                self.counts.naks_shed += 1
                self._refuse(asked, NCF_SHED, refused, now_ns, ignore_ns)
            else:
                self._retransmit_queue[asked] = None
                queued.append(asked)
        found = self._send_queued(now_ns)
        # What waits for congestion control only comes so soon that an NCF would put off the next NAK for too long.
        paced = self.paths is not None and not self._pace_allows(self.paths, client, now_ns)
        for asked in queued if not paced else ():
            # The datagram waits for the rate and comes later: the client need not ask again.
            if asked in self._retransmit_queue:
                self.counts.naks_rx_delay_ignored += 1
                self._refuse(asked, NCF_RX_DELAY, refused, now_ns, ignore_ns)
        return found, [Refusal(reason, sorted(listed)) for reason, listed in sorted(refused.items())]

    def turn(self, now_ns: int) -> tuple[list[Datagram], bool]:
        """Runs the timers; returns the datagrams to send now, and whether a session message is due.

        Retransmissions come first: their receivers have waited longest.
        """
        self._forget_old(now_ns)
        found = self._send_queued(now_ns) + self.send_waiting(now_ns)
        if found or self.has_no_receivers or not self._session_messages.due(now_ns):
            return found, False
        self.counts.sms_sent += 1
        return found, True

    def next_ns(self, now_ns: int) -> int | None:
        """Returns when to call `turn`; None when nothing is due before the next datagram or NAK."""
        times = [None if self.has_no_receivers else self._session_messages.next_ns]
        if self._retransmit_queue:
            times.append(self._next_retransmission_ns(now_ns))
        if self.slowest is not None and self.credit is not None:
            times.append(self.credit.next_ns)
        elif self._waiting:
            times.append(
                now_ns
                if self.has_no_receivers
                else max(
                    self._data_limiter.next_ns(len(self._waiting[0]) - self._prefix, now_ns),
                    self.paths.pacer.next_ns(now_ns) if self.paths is not None else now_ns,
                )
            )
        if self.paths is not None:
            times.append(self.paths.next_ns(now_ns))
        return min((time for time in times if time is not None), default=None)

    def _next_retransmission_ns(self, now_ns: int) -> int:
        """Returns when the first datagram that a client asked for may go, the earliest of all clients."""
        first: dict[Hashable, int] = {}
        for number, client in self._retransmit_queue:
            first[client] = min(number, first.get(client, number))
        times = []
        for client, number in first.items():
            held = self.window.get(number)
            limit_ns = self.retransmit_limiter.next_ns(len(held) - self._prefix if held else 0, now_ns)
            paced_ns = self.paths.pacer_of(client).next_ns(now_ns) if self.paths is not None else now_ns
            times.append(max(limit_ns, paced_ns))
        return min(times)

    def send_waiting(self, now_ns: int) -> list[Datagram]:
        """Returns the datagrams that waited and can be sent now."""
        found = []
        while self._waiting and self._may_send(len(self._waiting[0]) - self._prefix, now_ns):
            data = self._waiting.popleft()
            number = self.window.add(data)
            found.append(Datagram(number, self.window.trail, data, retransmitted=False))
            self.counts.msgs_sent += 1
            self.counts.bytes_sent += len(data) - self._prefix
        if found:
            self._session_messages.sent(now_ns)
        return found

    def _send_queued(self, now_ns: int) -> list[Datagram]:
        found: list[Datagram] = []
        held_up: set[Hashable] = set()
        # The oldest datagram first: it leaves the window first.
        for number, client in sorted(self._retransmit_queue, key=itemgetter(0)):
            data = self.window.get(number)
            if data is None:
                self.counts.naks_too_old += 1
            elif client in held_up:
                continue
            elif self._may_send_again(number, len(data) - self._prefix, client, now_ns):
                found.append(Datagram(number, self.window.trail, data, retransmitted=True, to=client))
                _note(self._retransmitted_ns, (number, client), now_ns)
                self.counts.rxs_sent += 1
                self.counts.rx_bytes_sent += len(data) - self._prefix
            else:
                held_up.add(client)
                continue
            del self._retransmit_queue[number, client]
        return found

    def _may_send_again(self, number: int, size: int, client: Hashable, now_ns: int) -> bool:
        paths = self.paths
        if paths is None:
            return self.retransmit_limiter.take(size, now_ns)
        if not self._pace_allows(paths, client, now_ns) or not self.retransmit_limiter.take(size, now_ns):
            return False
        paths.pacer_of(client).spend(size + CHARGE, now_ns)
        paths.repaired(client, number, size, now_ns)
        return True

    def _pace_allows(self, paths: Paths, client: Hashable, now_ns: int) -> bool:
        """Returns whether the pace allows a retransmission now; the pace of all is also that of new datagrams."""
        pacer = paths.pacer_of(client)
        return not (pacer is paths.pacer and self._new_is_next(now_ns)) and pacer.allows(now_ns)

    def _new_is_next(self, now_ns: int) -> bool:
        """Returns whether retransmissions at the pace of all have kept a new datagram waiting for long enough."""
        if not self._waiting or now_ns - self._new_sent_ns < _NEW_WAITS_MAX_NS or self.slowest is not None:
            return False
        return self._data_limiter.next_ns(len(self._waiting[0]) - self._prefix, now_ns) <= now_ns

    def _refuse(self, asked: _Asked, reason: int, refused: dict[int, list[int]], now_ns: int, ignore_ns: int) -> None:
        if now_ns - self._refused_ns.get(asked, -ignore_ns) >= ignore_ns:
            _note(self._refused_ns, asked, now_ns)
            self.counts.ncfs_sent += 1
            refused.setdefault(reason, []).append(asked[0])

    def _forget_old(self, now_ns: int) -> None:
        for known in (self._retransmitted_ns, self._refused_ns):
            while known and now_ns - next(iter(known.values())) >= self._remembers_ns:
                known.popitem(last=False)


def _note(times: OrderedDict[_Asked, int], asked: _Asked, now_ns: int) -> None:
    """Notes a time behind all earlier ones."""
    times[asked] = now_ns
    times.move_to_end(asked)
