"""The numbers of a session at its receiver: what to deliver, what to ask for, and when the session has timed out."""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from ipcbus.reliability.loss_detector import ASKS_MAX, LossDetector, NakSettings
from ipcbus.reliability.round_trip import RoundTrip

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

    from ipcbus.reliability.loss_detector import Recovered

_ASKED_BYTES: Final = 1 << 17
"""Bytes of datagrams to ask for at a time: they fit into the buffer of a socket, beside new datagrams."""
_ASKS_MIN: Final = 16
_USUAL_BYTES: Final = 1400
"""The size of a datagram before the first one has come."""
_REPAIRED_MAX: Final = 256


@dataclass(frozen=True, slots=True)
class ReceiveSettings:
    """The settings of a receiver, times in ns; named as the options.

    Attributes:
        naks: the times of NAKs.
        send_naks: whether the receiver sends NAKs at all.
        activity_timeout: the session has ended for the receiver after this time without a sign of life.
        late_max: numbers that are remembered after they were given up, to deliver their datagrams if they come late.
    """

    naks: NakSettings = field(default_factory=NakSettings)
    send_naks: bool = True
    activity_timeout: int = 60_000_000_000
    late_max: int = 1 << 14


@dataclass(slots=True)
class ReceiveCounts:
    """The counters of a receiver, by Ultra Messaging's names.

    Attributes:
        msgs_rcved: datagrams that came for the first time.
        bytes_rcved: the bytes of these datagrams.
        lost: numbers that were found missing, also those that were only overtaken.
        naks_sent: numbers for which the receiver sent a NAK, each time counted.
        nak_pckts_sent: packets with these NAKs.
        ncfs_ignored: numbers in NCFs that say: the datagram was sent again just before.
        ncfs_shed: numbers in NCFs that say: the source has no room for more retransmissions.
        ncfs_rx_delay: numbers in NCFs that say: the source will send the datagram later.
        ncfs_unknown: numbers in NCFs with any other reason.
        duplicate_data: datagrams that had come before.
        unrecovered_txw: numbers given up because the source does not hold them any more.
        unrecovered_tmo: numbers given up because they were missing for the generation interval.
        unrecovered_full: numbers given up because too many were missing.
        dgrams_filtered: numbers that the source did not send, since the receiver has none of their topics.
        late: datagrams that came after their numbers had been given up.
        out_of_order: datagrams that came after a later one, without a NAK.
        nak_stm_min: shortest time from loss to recovery, in ns; 0 before the first recovery.
        nak_stm_max: longest time from loss to recovery, in ns.
        nak_stm_mean: moving mean of the time from loss to recovery, in ns.
        nak_tx_min: fewest NAKs that a recovered number took; 0 before the first recovery.
        nak_tx_mean: moving mean of the NAKs that a recovered number took, as a whole number.
        nak_tx_max: most NAKs that a recovered number took.
    """

    msgs_rcved: int = 0
    bytes_rcved: int = 0
    lost: int = 0
    naks_sent: int = 0
    nak_pckts_sent: int = 0
    ncfs_ignored: int = 0
    ncfs_shed: int = 0
    ncfs_rx_delay: int = 0
    ncfs_unknown: int = 0
    duplicate_data: int = 0
    unrecovered_txw: int = 0
    unrecovered_tmo: int = 0
    unrecovered_full: int = 0
    dgrams_filtered: int = 0
    late: int = 0
    out_of_order: int = 0
    nak_stm_min: int = 0
    nak_stm_max: int = 0
    nak_stm_mean: int = 0
    nak_tx_min: int = 0
    nak_tx_mean: int = 0
    nak_tx_max: int = 0


class ReceiveState:
    """The numbers of one session at one receiving context.

    Datagrams are delivered as they come; delivery controllers order their messages.
    """

    def __init__(
        self,
        settings: ReceiveSettings,
        random: Random,
        now_ns: int,
        first: int | None = None,
        counts: ReceiveCounts | None = None,
        round_trip: RoundTrip | None = None,
    ) -> None:
        """Starts before the first datagram.

        Args:
            settings: times and limits.
            random: draws the backoffs.
            now_ns: the time.
            first: the first number to receive; None begins with the first one that comes, since a receiver of a group
                that the source has not registered cannot know what was sent before.
            counts: the counters to use.
            round_trip: the measured times of the session.
        """
        self.counts = counts or ReceiveCounts()
        self.first = first
        """The first number to receive; None before anything of the session has come."""
        self._settings = settings
        self._round_trip = round_trip or RoundTrip()
        self._loss_detector = LossDetector(settings.naks, random, self._round_trip)
        self._room = ASKS_MAX
        # Of numbers that were sent again last: since when they had been missing, and the time from the first of
        # several NAKs. The datagram, or the answer to another NAK, may still come.
        self._repaired: dict[int, tuple[int, int]] = {}
        # The lowest of the numbers that were given up for their age, and until when they count as not settled.
        self._unsettled: deque[tuple[int, int]] = deque()
        self._lead = first
        self._asked_mean = 0.0
        self._heard_ns = now_ns
        # Numbers given up, the oldest first: a datagram that comes late is not a duplicate.
        self._given_up: OrderedDict[int, None] = OrderedDict()

    @property
    def lead(self) -> int | None:
        """The number after the highest known one; None before anything of the session has come."""
        return self._lead

    @property
    def missing(self) -> int:
        """The number of datagrams that are missing and not given up."""
        return len(self._loss_detector)

    @property
    def missing_max(self) -> int:
        """The largest number of datagrams that may be missing; more are given up."""
        return self._settings.naks.entries_max

    def receive_data(self, number: int, trail: int, size: int, now_ns: int, *, again: bool = False) -> bool:
        """Takes a datagram; returns whether to deliver it.

        Args:
            number: its number.
            trail: the oldest number that its source holds.
            size: its bytes, to be counted.
            now_ns: the time.
            again: whether the source sent it again.
        """
        self._heard_ns = now_ns
        if self._lead is None:
            self._lead = self.first = number
        if number >= self._lead:
            if number > self._lead:
                self._mark_missing(number, trail, now_ns)
            self._lead = number + 1
        elif not self._recover(number, now_ns, again=again):
            self.counts.duplicate_data += 1
            if (repaired := self._repaired.pop(number, None)) is not None:
                if not again:
                    self._round_trip.note_overtaken(now_ns - repaired[0])
                elif repaired[1]:
                    # The first NAK was answered, too, and the next one came too early.
                    self._round_trip.note_answer(repaired[1])
            self._give_up_below(trail)
            return False
        if self._loss_detector:
            self._give_up_below(trail)
        self.counts.msgs_rcved += 1
        self.counts.bytes_rcved += size
        return True

    def take_in_order(self, count: int, size: int, now_ns: int) -> None:
        """Takes datagrams that begin at the lead, without a gap, and say nothing about missing ones; all are delivered.

        Args:
            count: their number.
            size: their bytes.
            now_ns: the time.
        """
        if self._lead is not None:
            self._heard_ns = now_ns
            self._lead += count
            self.counts.msgs_rcved += count
            self.counts.bytes_rcved += size

    def receive_session_message(self, lead: int, trail: int, now_ns: int) -> None:
        """Takes note, by a packet of the source, that it has sent all below `lead` and holds those from `trail` on."""
        self._heard_ns = now_ns
        self.note_position(lead, trail, now_ns)

    def note_position(self, lead: int, trail: int, now_ns: int) -> None:
        """Takes note that the source has sent all numbers below `lead` and holds those from `trail` on."""
        if self._lead is None:
            self._lead = self.first = lead
        if lead > self._lead:
            self._mark_missing(lead, trail, now_ns)
            self._lead = lead
        self._give_up_below(trail)

    def pass_over(self, first: int, end: int, trail: int, now_ns: int) -> None:
        """Takes note that the source does not send the numbers from `first` to below `end` to this receiver.

        Args:
            first: the first of these numbers; lower numbers that are not known are missing.
            end: the number after the last of them.
            trail: the oldest number that the source holds.
            now_ns: the time.
        """
        self._heard_ns = now_ns
        self.counts.dgrams_filtered += self._loss_detector.drop_range(first, end)
        if self._lead is not None and end > self._lead:
            if first > self._lead:
                self._mark_missing(first, trail, now_ns)
            self.counts.dgrams_filtered += end - max(first, self._lead)
            self._lead = end

    def receive_ncf(self, numbers: Sequence[int], reason: int, now_ns: int) -> None:
        """Takes note that the source does not send these numbers now."""
        self._heard_ns = now_ns
        known = self._loss_detector.ncf(numbers, reason, now_ns)
        name = _NCF_COUNTS.get(reason, "ncfs_unknown")
        setattr(self.counts, name, getattr(self.counts, name) + known)

    def turn(self, now_ns: int, known: bool = True) -> list[int]:
        """Runs the timers; returns the numbers to ask for now.

        Args:
            now_ns: the time.
            known: whether the source knows the receiver; it ignores the NAKs of others.
        """
        if not self._loss_detector:
            return []
        self._loss_detector.asks_max = min(self._asks_max, self._room)
        asks, given_up = self._loss_detector.due(now_ns)
        self.counts.unrecovered_tmo += len(given_up)
        if given_up:
            self._unsettled.append((given_up[0], now_ns + self._settings.naks.generation))
        self._remember_given_up(given_up)
        if not (self._settings.send_naks and known):
            return []
        self.counts.naks_sent += len(asks)
        return asks

    @property
    def _asks_max(self) -> int:
        mean = self.counts.bytes_rcved // self.counts.msgs_rcved if self.counts.msgs_rcved else _USUAL_BYTES
        return max(_ASKS_MIN, min(ASKS_MAX, _ASKED_BYTES // max(1, mean)))

    def limit_asks(self, room: int) -> bool:
        """Limits the datagrams to ask for at a time to `room`; returns whether that is less than usual."""
        self._room = max(0, room)
        return self._room < self._asks_max

    def settled(self, now_ns: int) -> int:
        """Returns the number below which each datagram has come, or is known to be gone.

        A number that was given up for its age counts as gone only after the generation interval has passed once more:
        the delivery controllers wait by themselves for that time, as in Ultra Messaging.
        """
        while self._unsettled and self._unsettled[0][1] <= now_ns:
            self._unsettled.popleft()
        base = self.base or 0
        return min(base, self._unsettled[0][0]) if self._unsettled else base

    @property
    def base(self) -> int | None:
        """The number below which every datagram has come or was given up; None before anything has come."""
        first = self._loss_detector.first
        return first if first is not None else self.lead

    def note_life(self, now_ns: int) -> None:
        """Takes note of a sign of life of the source."""
        self._heard_ns = now_ns

    def timed_out(self, now_ns: int) -> bool:
        """Returns whether the source has been silent for the activity timeout."""
        return now_ns - self._heard_ns >= self._settings.activity_timeout

    @property
    def next_ns(self) -> int:
        """The time at which to call `turn` and `timed_out`."""
        silent = self._heard_ns + self._settings.activity_timeout
        due = self._loss_detector.next_ns
        return silent if due is None else min(silent, due)

    def _mark_missing(self, end: int, trail: int, now_ns: int) -> None:
        """Marks the numbers from the lead up to `end` as missing."""
        first = self._lead if self._lead is not None else end
        self.counts.lost += end - first
        # Numbers that the source does not hold any more get no entry: a forged number could cost a billion of them.
        held = min(max(first, trail), end)
        self.counts.unrecovered_txw += held - first
        self._remember_given_up(range(max(first, held - self._settings.late_max), held))
        for numbers in self._loss_detector.add_missing(held, end, now_ns):
            self.counts.unrecovered_full += len(numbers)
            self._remember_given_up(numbers[-self._settings.late_max :])

    def _give_up_below(self, trail: int) -> None:
        dropped = self._loss_detector.drop_below(trail)
        self.counts.unrecovered_txw += len(dropped)
        self._remember_given_up(dropped)

    def _recover(self, number: int, now_ns: int, *, again: bool) -> bool:
        found = self._loss_detector.recover(number, now_ns)
        if found is None:
            if number not in self._given_up:
                return False
            del self._given_up[number]
            self.counts.late += 1
            return True
        if again:
            self._note_repaired(number, found, now_ns)
        else:
            self._round_trip.note_overtaken(found.missing_ns)
        counts = self.counts
        counts.out_of_order += not found.asked
        if found.asked:
            first = not counts.nak_tx_max
            counts.nak_stm_min = min(counts.nak_stm_min or found.missing_ns, found.missing_ns)
            counts.nak_stm_max = max(counts.nak_stm_max, found.missing_ns)
            counts.nak_stm_mean += (found.missing_ns - counts.nak_stm_mean) // (1 if first else 8)
            self._asked_mean += (found.asked - self._asked_mean) / (1 if first else 8)
            counts.nak_tx_min = min(counts.nak_tx_min or found.asked, found.asked)
            counts.nak_tx_mean = round(self._asked_mean)
            counts.nak_tx_max = max(counts.nak_tx_max, found.asked)
        return True

    def _note_repaired(self, number: int, found: Recovered, now_ns: int) -> None:
        if found.answered_ns:
            self._round_trip.note_answer(found.answered_ns)
        self._round_trip.note_loss()
        self._repaired[number] = now_ns - found.missing_ns, found.first_asked_ns if found.asked > 1 else 0
        if len(self._repaired) > _REPAIRED_MAX:
            del self._repaired[next(iter(self._repaired))]

    def _remember_given_up(self, numbers: Sequence[int]) -> None:
        for number in numbers:
            self._given_up[number] = None
        while len(self._given_up) > self._settings.late_max:
            self._given_up.popitem(last=False)


_NCF_COUNTS = {1: "ncfs_ignored", 2: "ncfs_rx_delay", 3: "ncfs_shed"}
