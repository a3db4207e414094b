"""The numbers of a session at its source: retransmit window, rate limits, retransmissions, NCFs, session messages."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from ipcbus.reliability.rate_limiter import RateLimiter
from ipcbus.reliability.retransmit_window import RetransmitWindow
from ipcbus.reliability.session_messages import SessionMessages
from ipcbus.wire.udp_packets import NCF_IGNORED, NCF_RX_DELAY, NCF_SHED

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(frozen=True, slots=True)
class SendSettings:
    """The settings of a source; named as the options, times in ns.

    Attributes:
        window_size: largest number of bytes of datagrams in the retransmit window.
        window_limit: largest number of bytes of the window with the overhead of each datagram; 0 means no limit.
        ignore_interval: time after a retransmission in which NAKs for the number are refused. Ultra Messaging's rule
            is half of the receivers' backoff at most; its own defaults (500 ms and 200 ms) break the rule, these do
            not.
        data_rate: limit of datagrams in bits a second; 0 means no limit.
        retransmit_rate: limit of retransmissions in bits a second; 0 means no limit.
        rate_interval: interval for which the rate limits give a budget.
        queue_max: largest number of retransmissions that wait for the limit; the source sheds those beyond.
        sm_minimum: silence before the first session message; 0 turns session messages off.
        sm_maximum: longest time between two session messages.
    """

    window_size: int = 25_165_824
    window_limit: int = 0
    ignore_interval: int = 100_000_000
    data_rate: int = 10_000_000
    retransmit_rate: int = 5_000_000
    rate_interval: int = 100_000_000
    queue_max: int = 1024
    sm_minimum: int = 200_000_000
    sm_maximum: int = 10_000_000_000


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
    """A datagram for all receivers: its number, the oldest number held, its bytes, and whether it was sent before."""

    number: int
    trail: int
    data: bytes
    retransmitted: bool


class Refusal(NamedTuple):
    """An NCF for all receivers: the source does not send these numbers now."""

    reason: int
    numbers: list[int]


class SendState:
    """The numbers of one session at its source."""

    def __init__(self, settings: SendSettings, now_ns: int, counts: SendCounts | None = None, prefix: int = 0) -> None:
        """Starts before the first datagram.

        Args:
            settings: limits and times.
            now_ns: the time.
            counts: the counters to use.
            prefix: number of bytes before each datagram that are sent again with it and not counted.
        """
        self.counts = counts or SendCounts()
        self.window = RetransmitWindow(settings.window_size, settings.window_limit, prefix)
        self.has_no_receivers = False
        """Whether the session has no receivers: datagrams are held and counted, but take nothing from the data rate."""
        self._prefix = prefix
        self._settings = settings
        self._data_limiter = RateLimiter(settings.data_rate, settings.rate_interval)
        self.retransmit_limiter = RateLimiter(settings.retransmit_rate, settings.rate_interval)
        """The limit of retransmissions, which frames of control channels share."""
        self._session_messages = SessionMessages(settings.sm_minimum, settings.sm_maximum, now_ns)
        self._retransmit_queue: dict[int, None] = {}
        # The times at which each number was last sent again, and last refused, the oldest first.
        self._retransmitted_ns: dict[int, int] = {}
        self._refused_ns: dict[int, int] = {}
        self._rate_limited: deque[bytes] = deque()

    def send(self, datagram: bytes, now_ns: int, *, wanted: bool = True) -> int:
        """Returns the number of a datagram to be sent now; -1 when it has to wait for the data rate.

        Args:
            datagram: its bytes.
            now_ns: the time.
            wanted: whether a receiver gets it; else it takes nothing from the data rate.
        """
        size = len(datagram) - self._prefix
        if self._rate_limited or not (self.has_no_receivers or not wanted or self._data_limiter.take(size, now_ns)):
            self._rate_limited.append(datagram)
            return -1
        counts = self.counts
        counts.msgs_sent += 1
        counts.bytes_sent += size
        self._session_messages.sent(now_ns)
        return self.window.add(datagram)

    @property
    def blocked(self) -> bool:
        """Whether a datagram waits for the data rate; the caller should not send another one now."""
        return bool(self._rate_limited)

    @property
    def waiting(self) -> int:
        """The number of datagrams that wait for the data rate."""
        return len(self._rate_limited)

    @property
    def queued(self) -> int:
        """The number of retransmissions that wait for their rate."""
        return len(self._retransmit_queue)

    def nak(self, numbers: Iterable[int], now_ns: int) -> tuple[list[Datagram], list[Refusal]]:
        """Takes the numbers of a NAK; returns what to send to all receivers now.

        A datagram that was sent again less than the ignore interval ago is on its way already: the first NAK for it
        gets an NCF, the next ones get no answer.
        """
        self.counts.nak_pckts_rcved += 1
        self._forget_old(now_ns)
        refused: dict[int, list[int]] = {}
        queued = []
        for number in sorted(set(numbers)):
            self.counts.naks_rcved += 1
            if self.window.get(number) is None:
                self.counts.naks_too_old += 1
            elif number in self._retransmitted_ns:
                self.counts.naks_ignored += 1
                self._refuse(number, NCF_IGNORED, refused, now_ns)
            elif number in self._retransmit_queue:
                self.counts.naks_rx_delay_ignored += 1
                self._refuse(number, NCF_RX_DELAY, refused, now_ns)
            elif len(self._retransmit_queue) >= self._settings.queue_max:
                self.counts.naks_shed += 1
                self._refuse(number, NCF_SHED, refused, now_ns)
            else:
                self._retransmit_queue[number] = None
                queued.append(number)
        found = self._send_queued(now_ns)
        for number in queued:
            # The datagram waits for the rate and comes later: the receivers need not ask again.
            if number in self._retransmit_queue:
                self.counts.naks_rx_delay_ignored += 1
                self._refuse(number, NCF_RX_DELAY, refused, now_ns)
        return found, [Refusal(reason, sorted(listed)) for reason, listed in sorted(refused.items())]

    def turn(self, now_ns: int) -> tuple[list[Datagram], bool]:
        """Runs the timers; returns the datagrams to send now, and whether a session message is due.

        Retransmissions come first: their receivers have waited longest.
        """
        self._forget_old(now_ns)
        found = self._send_queued(now_ns) + self._send_rate_limited(now_ns)
        if found or self.has_no_receivers or not self._session_messages.due(now_ns):
            return found, False
        self.counts.sms_sent += 1
        return found, True

    def next_ns(self, now_ns: int) -> int | None:
        """Returns when to call `turn`; None when nothing is due before the next datagram or NAK."""
        times = [None if self.has_no_receivers else self._session_messages.next_ns]
        if self._retransmit_queue:
            held = self.window.get(min(self._retransmit_queue))
            times.append(self.retransmit_limiter.next_ns(len(held) - self._prefix if held else 0, now_ns))
        if self._rate_limited:
            times.append(
                now_ns
                if self.has_no_receivers
                else self._data_limiter.next_ns(len(self._rate_limited[0]) - self._prefix, now_ns)
            )
        return min((time for time in times if time is not None), default=None)

    def _send_rate_limited(self, now_ns: int) -> list[Datagram]:
        found = []
        while self._rate_limited and (
            self.has_no_receivers or self._data_limiter.take(len(self._rate_limited[0]) - self._prefix, now_ns)
        ):
            data = self._rate_limited.popleft()
            number = self.window.add(data)
            found.append(Datagram(number, self.window.trail, data, retransmitted=False))
            self.counts.msgs_sent += 1
            self.counts.bytes_sent += len(data) - self._prefix
        if found:
            self._session_messages.sent(now_ns)
        return found

    def _send_queued(self, now_ns: int) -> list[Datagram]:
        found = []
        # The oldest datagram first: it leaves the window first.
        for number in sorted(self._retransmit_queue):
            data = self.window.get(number)
            if data is None:
                self.counts.naks_too_old += 1
            elif self.retransmit_limiter.take(len(data) - self._prefix, now_ns):
                found.append(Datagram(number, self.window.trail, data, retransmitted=True))
                self._retransmitted_ns[number] = now_ns
                self.counts.rxs_sent += 1
                self.counts.rx_bytes_sent += len(data) - self._prefix
            else:
                break
            del self._retransmit_queue[number]
        return found

    def _refuse(self, number: int, reason: int, refused: dict[int, list[int]], now_ns: int) -> None:
        if number not in self._refused_ns:
            self._refused_ns[number] = now_ns
            self.counts.ncfs_sent += 1
            refused.setdefault(reason, []).append(number)

    def _forget_old(self, now_ns: int) -> None:
        for known in (self._retransmitted_ns, self._refused_ns):
            while known and now_ns - next(iter(known.values())) >= self._settings.ignore_interval:
                del known[next(iter(known))]
