"""Frames over datagrams: numbers, a window, acknowledgements, retransmission. One side of a control channel over UDP.

The receiving context opens the channel. Each side draws an epoch, 32 random bits that stand in all its packets and,
once the other side knows them, in those of the other side. So a packet of an earlier channel is not taken::

    opener -> acceptor   FRAME_ACK  to 0, from r, ASKS           the opener repeats it until the answer comes
    acceptor -> opener   FRAME_ACK  to r, from s, ASKS           the acceptor remembers r and s, and no more
    opener -> acceptor   FRAME or FRAME_ACK  to s, from r        proves that the opener has got s: the channel exists
    acceptor -> opener   FRAME or FRAME_ACK  to r, from s        until then the opener repeats the proof
    either -> other      FRAME_ACK  to r or s, ENDED             the sender has no such channel (any more)

A frame is sent again when three frames that were sent after it were acknowledged, or at the retransmission time-out,
which follows the measured round trip and doubles each time. A side that has waited for `give_up` without progress
breaks the channel. A side whose peer has no room waits, and asks for room at the times of retransmissions.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from ipcbus.wire import udp_packets
from ipcbus.wire.udp_packets import ASKS, ENDED, FRAME_BYTES

if TYPE_CHECKING:
    from random import Random

    from ipcbus.wire.udp_packets import Frame, FrameAck

WINDOW: Final = 64
"""Most frames that a side has sent without an acknowledgement, and most that it holds until they are taken."""
LONG_WINDOW: Final = 16
"""As `WINDOW`, of long frames."""
_REORDERED: Final = 3
"""Frames that were sent later and have come, after which a frame counts as lost."""
_FEWEST: Final = 4
"""Frames that a side may always have on the way."""
_CANDIDATES_MAX: Final = 4
"""Most channels that a peer may be about to open."""
_ANSWERS_MAX: Final = 4
"""Most answers to packets of other channels that wait to be sent."""


@dataclass(frozen=True, slots=True)
class FrameSettings:
    """The times of a channel, in ns, and the size of its frames.

    Attributes:
        first_timeout: the retransmission time-out before a round trip was measured.
        shortest_timeout: the shortest one.
        longest_timeout: the longest one, also after doubling.
        give_up: the channel breaks after this time without an answer, or without progress.
        frame_bytes: most bytes of a frame; both sides have the same number.
        window: most frames as in `WINDOW`; both sides have the same number.
        resends: whether frames are sent again; not so over a connection, which loses nothing while it exists.
    """

    first_timeout: int = 100_000_000
    shortest_timeout: int = 10_000_000
    longest_timeout: int = 1_000_000_000
    give_up: int = 10_000_000_000
    frame_bytes: int = FRAME_BYTES
    window: int = WINDOW
    resends: bool = True


class Pace(Protocol):
    """A limit of bytes a second (`reliability.rate_limiter.RateLimiter`)."""

    @property
    def unlimited(self) -> bool:
        """Whether there is no limit."""

    def take(self, size: int, now_ns: int) -> bool:
        """Takes `size` bytes from the budget; returns False, and takes nothing, when there are not enough."""

    def next_ns(self, size: int, now_ns: int) -> int:
        """Returns the earliest time at which `take` would take `size` bytes."""


@dataclass(slots=True)
class _Sent:
    """A frame that was put and is not acknowledged."""

    frame: bytes
    times: int = 0
    order: int = 0
    sent_ns: int = 0
    arrived: bool = False
    lost: bool = False


@dataclass(slots=True)
class FrameCounts:
    """The counters of a channel.

    Attributes:
        frames_sent: frames that were sent for the first time.
        frames_retransmitted: frames that were sent again.
        frames_rcved: frames that came for the first time.
        frames_duplicate: frames that had come before.
        frames_dropped: frames beyond the window, or too long.
        packets_dropped: packets of another channel, or that contradict themselves.
    """

    frames_sent: int = 0
    frames_retransmitted: int = 0
    frames_rcved: int = 0
    frames_duplicate: int = 0
    frames_dropped: int = 0
    packets_dropped: int = 0


class FrameWindow:
    """One side of a channel (recovery.frame_link.FrameLink). No clock: the time is passed in.

    After each call, `turn` runs what is due and `packets` returns what to send.
    """

    def __init__(
        self,
        settings: FrameSettings,
        epoch: int,
        now_ns: int,
        *,
        peer_epoch: int = 0,
        pace: Pace | None = None,
        counts: FrameCounts | None = None,
    ) -> None:
        """Starts without frames.

        Args:
            settings: the times.
            epoch: the epoch of this side, not 0.
            now_ns: the time.
            peer_epoch: the epoch of the other side; 0 opens the channel.
            pace: limits the frames that this side sends.
            counts: its counters, which it may share with other channels; None for its own.
        """
        self._window = settings.window
        # A long frame could wait for ever for a whole budget of a limit.
        self.frame_max = settings.frame_bytes if pace is None or pace.unlimited else FRAME_BYTES
        self.over = ""
        """The reason why neither side can send any more; empty before. Frames that have come can still be taken."""
        self.epoch, self.peer_epoch = epoch, peer_epoch
        self.counts = counts or FrameCounts()
        self._settings, self._pace = settings, pace
        self._sent: deque[_Sent] = deque()  # in the order of numbers, from `_base` on
        self._base = 0
        self._next_new = 0  # the number of the first frame that was never sent
        self._limit = 0  # numbers below it find room at the other side
        self._allowed = 4 * _FEWEST  # frames on the way
        self._order = 0
        self._newest_arrived = 0
        self._round_trip = self._deviation = 0
        self._doublings = 0
        self._timer_ns = now_ns + settings.first_timeout
        self._progress_ns = now_ns
        self._paced_ns: int | None = None
        self._ready: deque[bytes] = deque()
        self._held: dict[int, bytes] = {}
        self._expected = 0
        self._taken = 0
        self._shown_limit = 0
        self._shows = True
        self._asks = not peer_epoch
        self._confirmed = peer_epoch != 0  # the other side has the channel
        self._wakes = self._ends = self._wants_room = False

    # ---- the link

    def put(self, frame: bytes) -> bool:
        """Takes a frame to send; False when the window is full, and while the channel is not open or broken."""
        if not 0 < len(frame) <= self.frame_max:
            raise ValueError(f"a frame of {len(frame)} bytes, but the link takes 1 to {self.frame_max}")
        self._wants_room = self.over == "" and (not self.peer_epoch or len(self._sent) >= self._window)
        if self.over or self._wants_room:
            return False
        self._wakes |= not self._sent
        self._sent.append(_Sent(frame))
        return True

    def take(self) -> bytes | None:
        """Returns the next frame; None when there is no frame now."""
        if not self._ready:
            return None
        self._taken += 1
        # A side that waits for room hears of it at once, others not each time.
        unshown = self._taken + self._window - self._shown_limit
        if self._shown_limit - self._expected == 0 or unshown >= self._window // 2:
            self._shows = True
        return self._ready.popleft()

    def close(self) -> None:
        """Ends the channel, also for frames that were not taken; the next `packets` say so to the other side."""
        self._ready.clear()
        if not self.over:
            self._ends = True
            self._break("this side has closed the channel")

    @property
    def broken(self) -> str:
        """The reason why the channel cannot be used any more; empty while frames that have come can be taken."""
        return "" if self._ready else self.over

    @property
    def acknowledged(self) -> int:
        """How many frames have come to the other side without a missing one, as far as it has said."""
        return self._base

    @property
    def came(self) -> int:
        """How many frames have come from the other side without a missing one; those can be taken."""
        return self._expected

    @property
    def is_unread(self) -> bool:
        """Whether frames have not come to the other side yet, which still uses the channel."""
        return not self.over and bool(self._sent)

    @property
    def ready(self) -> bool:
        """Whether there is a frame to take, or room that the last `put` missed."""
        has_room = self.peer_epoch != 0 and len(self._sent) <= self._window // 2
        return bool(self._ready) or (self._wants_room and has_room)

    @property
    def has_news(self) -> bool:
        """Whether `packets` has an acknowledgement to send."""
        return self._shows

    # ---- packets that come

    def receive(self, packet: Frame | FrameAck, now_ns: int) -> None:
        """Takes a packet of the other side; one of another channel is counted."""
        opens = not self.peer_epoch and packet.sender
        ends = bool(packet.flags & ENDED)
        if self.over or packet.to != self.epoch or not (opens or ends or packet.sender == self.peer_epoch):
            self.counts.packets_dropped += 1
            return
        if ends:
            self._break(
                "the other side has no such channel any more" if self.peer_epoch else "the other side has no room"
            )
            return
        if opens:
            self.peer_epoch = packet.sender
            self._shows = True
            self._progressed(now_ns)
        if not self._confirmed and not packet.flags & ASKS:
            self._confirmed = True
            self._progressed(now_ns)
        if isinstance(packet, udp_packets.FrameAck):
            self._shows |= bool(packet.flags & ASKS)
            self._acknowledged(packet, now_ns)
        else:
            self._came(packet)

    def _came(self, packet: Frame) -> None:
        self._shows = True
        number = packet.number
        if number < self._expected or number in self._held:
            self.counts.frames_duplicate += 1
        elif number >= self._taken + self._window or len(packet.frame) > self._settings.frame_bytes:
            self.counts.frames_dropped += 1
        else:
            self.counts.frames_rcved += 1
            self._held[number] = packet.frame
            while (frame := self._held.pop(self._expected, None)) is not None:
                self._ready.append(frame)
                self._expected += 1

    def _acknowledged(self, packet: FrameAck, now_ns: int) -> None:
        if packet.next > self._next_new or packet.arrived >> max(0, self._next_new - packet.next - 1):
            self.counts.packets_dropped += 1  # it has what was never sent
            return
        waited = self._waits_for_room
        came = list(range(self._base, packet.next))
        came += [packet.next + 1 + bit for bit in range(packet.arrived.bit_length()) if packet.arrived >> bit & 1]
        fresh = 0
        for number in came:
            if number >= self._base and not (each := self._sent[number - self._base]).arrived:
                each.arrived = True
                fresh += 1
                self._measure(each, now_ns)
        while self._sent and self._sent[0].arrived:
            self._sent.popleft()
            self._base += 1
        limit = min(packet.limit, packet.next + self._window)
        more, self._limit = limit > self._limit, max(limit, self._limit)
        if fresh:
            self._allowed = min(self._window, self._allowed + fresh)
            for each in self._on_the_way():
                each.lost |= each.order + _REORDERED <= self._newest_arrived
        if fresh or more:
            self._progressed(now_ns)
        elif waited:
            self._progress_ns = now_ns  # without room there is nothing that the other side could have got

    def _measure(self, each: _Sent, now_ns: int) -> None:
        """Takes note of the round trip of a frame; of one that was sent twice it is not known which one came."""
        if each.times != 1:
            return
        self._newest_arrived = max(self._newest_arrived, each.order)
        took = now_ns - each.sent_ns
        if not self._round_trip:
            self._round_trip, self._deviation = max(1, took), took // 2
            return
        self._deviation += (abs(took - self._round_trip) - self._deviation) // 4
        self._round_trip = max(1, self._round_trip + (took - self._round_trip) // 8)

    def _progressed(self, now_ns: int) -> None:
        self._doublings = 0
        self._progress_ns = now_ns
        self._timer_ns = now_ns + self._timeout

    # ---- time

    def turn(self, now_ns: int) -> None:
        """Runs the timer if it has expired."""
        if self.over:
            return
        self._wake(now_ns)
        if not self._awaits:
            return
        if now_ns - self._progress_ns >= self._settings.give_up:
            self._ends = self.peer_epoch != 0
            self._break("the other side has not answered in time")
        elif now_ns >= self._timer_ns:
            late = [each for each in self._on_the_way() if now_ns - each.sent_ns >= self._timeout]
            if late and self._settings.resends:
                for each in late:
                    each.lost = True
                self._allowed = max(_FEWEST, self._allowed // 2)
            elif not self._on_the_way():
                self._asks = self._shows = True
            self._doublings += 1
            self._timer_ns = now_ns + self._timeout

    def _wake(self, now_ns: int) -> None:
        """Starts the timers for the first frame after a silence."""
        if self._wakes:
            self._wakes = False
            self._progressed(now_ns)

    @property
    def next_ns(self) -> int | None:
        """The time at which to call `turn` and `packets`; None when nothing is due before the next call."""
        if self.over or not self._awaits:
            return None
        due_ns = min(self._timer_ns, self._progress_ns + self._settings.give_up)
        return due_ns if self._paced_ns is None else min(due_ns, self._paced_ns)

    @property
    def _timeout(self) -> int:
        settings = self._settings
        measured = self._round_trip + 4 * self._deviation if self._round_trip else settings.first_timeout
        return min(settings.longest_timeout, max(settings.shortest_timeout, measured) << min(self._doublings, 20))

    @property
    def _awaits(self) -> bool:
        """Whether the other side has to answer."""
        return not self._confirmed or bool(self._sent)

    @property
    def _waits_for_room(self) -> bool:
        """Whether nothing is on the way, though there is something to send."""
        return bool(self._sent) and not self._on_the_way()

    def _on_the_way(self) -> list[_Sent]:
        return [each for each in self._sent if each.times and not each.arrived and not each.lost]

    # ---- packets that go

    def packets(self, session_id: int, cookie: int, now_ns: int) -> list[bytes]:
        """Returns, once, the packets to send now.

        Args:
            session_id: the session's id.
            cookie: the cookie of the client.
            now_ns: the time.
        """
        found: list[bytes] = []
        if self._ends:
            self._ends = False
            return [udp_packets.frame_ack(session_id, cookie, self.peer_epoch, self.epoch, (0, 0, 0), ENDED)]
        if self.over:
            return found
        if not self.peer_epoch:
            if self._asks:
                self._asks = False
                found.append(udp_packets.frame_ack(session_id, cookie, 0, self.epoch, (0, self._window, 0), ASKS))
            return found
        self._wake(now_ns)
        for number, each in self._due(now_ns):
            found.append(udp_packets.frame(session_id, cookie, self.peer_epoch, self.epoch, number, each.frame))
        if self._shows:
            self._shows = False
            self._shown_limit = self._taken + self._window
            arrived = sum(1 << number - self._expected - 1 for number in self._held)
            place = (self._expected, self._shown_limit, arrived)
            flags = ASKS if self._asks else 0
            self._asks = False
            found.append(udp_packets.frame_ack(session_id, cookie, self.peer_epoch, self.epoch, place, flags))
        return found

    def _due(self, now_ns: int) -> list[tuple[int, _Sent]]:
        """Returns the frames to send now: lost ones first, then new ones while there is room."""
        found: list[tuple[int, _Sent]] = []
        self._paced_ns = None
        on_the_way = len(self._on_the_way())
        end = min(self._limit, self._base + len(self._sent))
        for number, each in enumerate(self._sent, self._base):
            is_due = each.lost if each.times else number < end
            if each.arrived or not is_due:
                continue
            if on_the_way >= self._allowed:
                break
            if self._pace is not None and not self._pace.take(len(each.frame), now_ns):
                self._paced_ns = self._pace.next_ns(len(each.frame), now_ns)
                if not on_the_way:
                    self._progress_ns = now_ns  # it is this side that waits
                break
            if not on_the_way:
                self._timer_ns = now_ns + self._timeout
            on_the_way += 1
            self._order += 1
            self.counts.frames_sent += not each.times
            self.counts.frames_retransmitted += each.times > 0
            each.times, each.order, each.sent_ns, each.lost = each.times + 1, self._order, now_ns, False
            self._next_new = max(self._next_new, number + 1)
            found.append((number, each))
        return found

    def end(self, reason: str) -> None:
        """Ends the channel, without a word to the other side."""
        if not self.over:
            self._break(reason)

    def _break(self, reason: str) -> None:
        self.over = reason
        self._wants_room = False
        self._sent.clear()
        self._held.clear()


class FrameAcceptor:
    """The accepting side for one peer: the channel that exists, and those that the peer may be about to open."""

    def __init__(
        self, settings: FrameSettings, random: Random, pace: Pace | None = None, counts: FrameCounts | None = None
    ) -> None:
        """Starts without a channel.

        Args:
            settings: the times.
            random: draws the epochs.
            pace: limits the frames that this side sends.
            counts: the counters of its channels; None for counters of each channel.
        """
        self._settings, self._random, self._pace, self._counts = settings, random, pace, counts
        self.window: FrameWindow | None = None
        """The channel; broken ones stay until the peer opens another one."""
        self._candidates: dict[int, int] = {}  # of the peer's epochs, each with the one that it was given
        self._answers: list[tuple[int, int, int]] = []

    def receive(self, packet: Frame | FrameAck, now_ns: int) -> bool:
        """Takes a packet of the peer; returns whether that makes a new channel, which replaces an older one."""
        window = self.window
        if window is not None and packet.sender == window.peer_epoch and packet.to in (0, window.epoch):
            if packet.to and not window.over:
                window.receive(packet, now_ns)
            elif not packet.flags & ENDED:
                self._answer(packet, 0 if window.over else window.epoch)
            return False
        if not packet.sender or packet.flags & ENDED:
            return False
        given = self._candidates.get(packet.sender, 0)
        if packet.to == 0:
            # Several, because openings of earlier channels may come late.
            self._candidates[packet.sender] = given = given or self._random.getrandbits(32) or 1
            while len(self._candidates) > _CANDIDATES_MAX:
                del self._candidates[next(iter(self._candidates))]
        if packet.to != given:
            self._answer(packet, given if packet.to == 0 else 0)
            return False
        if window is not None:
            window.end("the other side has opened another channel")
        del self._candidates[packet.sender]
        self.window = FrameWindow(
            self._settings, given, now_ns, peer_epoch=packet.sender, pace=self._pace, counts=self._counts
        )
        self.window.receive(packet, now_ns)
        return True

    @property
    def next_ns(self) -> int | None:
        """The time at which to call the channel's `turn` and `packets`; None when nothing is due."""
        return self.window.next_ns if self.window is not None else None

    def _answer(self, packet: Frame | FrameAck, epoch: int) -> None:
        """Answers with an epoch, or with 0 that there is no such channel."""
        answer = (packet.sender, epoch or packet.to, ASKS if epoch else ENDED)
        if answer not in self._answers and len(self._answers) < _ANSWERS_MAX:
            self._answers.append(answer)

    def packets(self, session_id: int, cookie: int, now_ns: int) -> list[bytes]:
        """Returns, once, the packets to send now; see `FrameWindow`."""
        found = [
            udp_packets.frame_ack(session_id, cookie, to, epoch, (0, self._settings.window, 0), flags)
            for to, epoch, flags in self._answers
        ]
        self._answers.clear()
        return found + (self.window.packets(session_id, cookie, now_ns) if self.window is not None else [])
