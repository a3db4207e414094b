"""The sending end of a session: numbers, window, retransmissions within their limits, refusals, session messages."""

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
    """How a source behaves; named as the options, times in ns.

    Attributes:
        window_size: most bytes of datagrams that it holds.
        window_limit: the same with the overhead of each; 0 is none.
        ignore_interval: for so long after a retransmission, requests for the same number are refused. Ultra
            Messaging's rule is half of the receivers' backoff at most; its own defaults (500 ms against 200) break it,
            these do not.
        data_rate: bits a second of datagrams; 0 is no limit.
        retransmit_rate: bits a second of retransmissions; 0 is no limit.
        rate_interval: over which the rates are counted.
        queue_max: retransmissions that wait for the limiter; those beyond are shed.
        sm_minimum: silence before the first session message; 0 sends none.
        sm_maximum: longest time between two.
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
    """What a source counts; Ultra Messaging's names.

    Attributes:
        msgs_sent: datagrams, retransmissions left out.
        bytes_sent: their bytes.
        naks_rcved: numbers that receivers asked for.
        nak_pckts_rcved: packets in which they did.
        naks_ignored: refused, since the number was sent again just before.
        naks_rx_delay_ignored: put off by the retransmission rate.
        naks_shed: refused, since too many wait already.
        naks_too_old: passed over: the number is not held any more, or was never sent.
        rxs_sent: retransmissions.
        rx_bytes_sent: their bytes.
        ncfs_sent: numbers that were refused in a packet; later ones within the ignore interval are not answered.
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
    """To be sent to all receivers: its number, the oldest that is held, its bytes, and whether it was sent before."""

    number: int
    trail: int
    data: bytes
    again: bool


class Refusal(NamedTuple):
    """To be sent to all receivers: these numbers do not come now."""

    reason: int
    numbers: list[int]


class SendState:
    """One session at its source."""

    def __init__(self, settings: SendSettings, now_ns: int, counts: SendCounts | None = None, front: int = 0) -> None:
        """Nothing is sent.

        Args:
            settings: how it behaves.
            now_ns: the time.
            counts: what to count in.
            front: bytes before each datagram that are sent again with it, and count as none of it.
        """
        self.counts = counts or SendCounts()
        self.window = RetransmitWindow(settings.window_size, settings.window_limit, front)
        self.has_no_receivers = False
        """Whether nobody receives: what is sent is held and counted, but takes nothing from the data rate."""
        self._front = front
        self._settings = settings
        self._data = RateLimiter(settings.data_rate, settings.rate_interval)
        self._again = RateLimiter(settings.retransmit_rate, settings.rate_interval)
        self._session_messages = SessionMessages(settings.sm_minimum, settings.sm_maximum, now_ns)
        self._queue: dict[int, None] = {}
        # When each number was sent again last, and refused last, in the order of time.
        self._sent_again: dict[int, int] = {}
        self._refused: dict[int, int] = {}
        self._waiting: deque[bytes] = deque()

    def send(self, datagram: bytes, now_ns: int) -> int:
        """Sends a datagram and returns its number; -1 when it waits until the data rate allows it."""
        size = len(datagram) - self._front
        if self._waiting or not (self.has_no_receivers or self._data.take(size, now_ns)):
            self._waiting.append(datagram)
            return -1
        counts = self.counts
        counts.msgs_sent += 1
        counts.bytes_sent += size
        self._session_messages.sent(now_ns)
        return self.window.add(datagram)

    @property
    def blocked(self) -> bool:
        """Whether a datagram waits for the data rate: nobody should send another one now."""
        return bool(self._waiting)

    @property
    def waiting(self) -> int:
        """How many datagrams wait for the data rate."""
        return len(self._waiting)

    @property
    def queued(self) -> int:
        """How many retransmissions wait for their rate."""
        return len(self._queue)

    def nak(self, numbers: Iterable[int], now_ns: int) -> tuple[list[Datagram], list[Refusal]]:
        """Receivers ask for these; what to send to all of them now is returned.

        What is asked for within the ignore interval after it was sent again is on its way already: the first request
        is refused in words, those after it in silence.
        """
        self.counts.nak_pckts_rcved += 1
        self._forget(now_ns)
        refused: dict[int, list[int]] = {}
        queued = []
        for number in sorted(set(numbers)):
            self.counts.naks_rcved += 1
            if self.window.get(number) is None:
                self.counts.naks_too_old += 1
            elif number in self._sent_again:
                self.counts.naks_ignored += 1
                self._refuse(number, NCF_IGNORED, refused, now_ns)
            elif number in self._queue:
                self.counts.naks_rx_delay_ignored += 1
                self._refuse(number, NCF_RX_DELAY, refused, now_ns)
            elif len(self._queue) >= self._settings.queue_max:
                self.counts.naks_shed += 1
                self._refuse(number, NCF_SHED, refused, now_ns)
            else:
                self._queue[number] = None
                queued.append(number)
        found = self._send_queued(now_ns)
        for number in queued:
            # What could not go at once comes later: the receivers need not ask again.
            if number in self._queue:
                self.counts.naks_rx_delay_ignored += 1
                self._refuse(number, NCF_RX_DELAY, refused, now_ns)
        return found, [Refusal(reason, sorted(listed)) for reason, listed in sorted(refused.items())]

    def turn(self, now_ns: int) -> tuple[list[Datagram], bool]:
        """What the timers say: what to send now, and whether a session message is due.

        Retransmissions come first: who misses something has waited longest.
        """
        self._forget(now_ns)
        found = self._send_queued(now_ns) + self._send_waiting(now_ns)
        if found or self.has_no_receivers or not self._session_messages.due(now_ns):
            return found, False
        self.counts.sms_sent += 1
        return found, True

    def next_ns(self, now_ns: int) -> int | None:
        """Returns when to call `turn`; None when nothing is to be done until something is sent or asked for."""
        times = [None if self.has_no_receivers else self._session_messages.next_ns]
        if self._queue:
            held = self.window.get(min(self._queue))
            times.append(self._again.next_ns(len(held) - self._front if held else 0, now_ns))
        if self._waiting:
            times.append(
                now_ns if self.has_no_receivers else self._data.next_ns(len(self._waiting[0]) - self._front, now_ns)
            )
        return min((time for time in times if time is not None), default=None)

    def _send_waiting(self, now_ns: int) -> list[Datagram]:
        found = []
        while self._waiting and (self.has_no_receivers or self._data.take(len(self._waiting[0]) - self._front, now_ns)):
            data = self._waiting.popleft()
            number = self.window.add(data)
            found.append(Datagram(number, self.window.trail, data, again=False))
            self.counts.msgs_sent += 1
            self.counts.bytes_sent += len(data) - self._front
        if found:
            self._session_messages.sent(now_ns)
        return found

    def _send_queued(self, now_ns: int) -> list[Datagram]:
        found = []
        # The oldest data first: it leaves the window first.
        for number in sorted(self._queue):
            data = self.window.get(number)
            if data is None:
                self.counts.naks_too_old += 1
            elif self._again.take(len(data) - self._front, now_ns):
                found.append(Datagram(number, self.window.trail, data, again=True))
                self._sent_again[number] = now_ns
                self.counts.rxs_sent += 1
                self.counts.rx_bytes_sent += len(data) - self._front
            else:
                break
            del self._queue[number]
        return found

    def _refuse(self, number: int, reason: int, refused: dict[int, list[int]], now_ns: int) -> None:
        if number not in self._refused:
            self._refused[number] = now_ns
            self.counts.ncfs_sent += 1
            refused.setdefault(reason, []).append(number)

    def _forget(self, now_ns: int) -> None:
        for known in (self._sent_again, self._refused):
            while known and now_ns - next(iter(known.values())) >= self._settings.ignore_interval:
                del known[next(iter(known))]
