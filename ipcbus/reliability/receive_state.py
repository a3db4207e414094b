"""The numbers of a session at its receiver: what to deliver, what to ask for, and when the session has timed out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ipcbus.reliability.loss_detector import LossDetector, NakSettings

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random


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
    ) -> None:
        """Starts before the first datagram.

        Args:
            settings: times and limits.
            random: draws the backoffs.
            now_ns: the time.
            first: the first number to receive; None begins with the first one that comes, since a receiver that joins
                a multicast group cannot know what was sent before.
            counts: the counters to use.
        """
        self.counts = counts or ReceiveCounts()
        self.first = first
        """The first number to receive; None before anything of the session has come."""
        self._settings = settings
        self._loss_detector = LossDetector(settings.naks, random)
        self._lead = first
        self._asked_mean = 0.0
        self._heard_ns = now_ns
        # Numbers given up, the oldest first: a datagram that comes late is not a duplicate.
        self._given_up: dict[int, None] = {}

    @property
    def lead(self) -> int | None:
        """The number after the highest known one; None before anything of the session has come."""
        return self._lead

    @property
    def missing(self) -> int:
        """The number of datagrams that are missing and not given up."""
        return len(self._loss_detector)

    def receive_data(self, number: int, trail: int, size: int, now_ns: int) -> bool:
        """Takes a datagram; returns whether to deliver it.

        Args:
            number: its number.
            trail: the oldest number that its source holds.
            size: its bytes, to be counted.
            now_ns: the time.
        """
        self._heard_ns = now_ns
        if self._lead is None:
            self._lead = self.first = number
        if number >= self._lead:
            if number > self._lead:
                self._mark_missing(number, trail, now_ns)
            self._lead = number + 1
        elif not self._recover(number, now_ns):
            self.counts.duplicate_data += 1
            self._give_up_below(trail)
            return False
        if self._loss_detector:
            self._give_up_below(trail)
        self.counts.msgs_rcved += 1
        self.counts.bytes_rcved += size
        return True

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
        known = self._loss_detector.ncf(numbers, now_ns)
        name = _NCF_COUNTS.get(reason, "ncfs_unknown")
        setattr(self.counts, name, getattr(self.counts, name) + known)

    def turn(self, now_ns: int, known: bool = True) -> list[int]:
        """Runs the timers; returns the numbers to ask for now.

        Args:
            now_ns: the time.
            known: whether the source knows the receiver; it ignores the NAKs of others.
        """
        asks, given_up = self._loss_detector.due(now_ns)
        self.counts.unrecovered_tmo += len(given_up)
        self._remember_given_up(given_up)
        if not (self._settings.send_naks and known):
            return []
        self.counts.naks_sent += len(asks)
        return asks

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
        self.counts.unrecovered_full += self._loss_detector.add_missing(held, end, now_ns)

    def _give_up_below(self, trail: int) -> None:
        dropped = self._loss_detector.drop_below(trail)
        self.counts.unrecovered_txw += len(dropped)
        self._remember_given_up(dropped)

    def _recover(self, number: int, now_ns: int) -> bool:
        found = self._loss_detector.recover(number, now_ns)
        if found is None:
            if number not in self._given_up:
                return False
            del self._given_up[number]
            self.counts.late += 1
            return True
        counts = self.counts
        counts.out_of_order += not found.asked
        if found.asked:
            counts.nak_stm_min = min(counts.nak_stm_min or found.missing_ns, found.missing_ns)
            counts.nak_stm_max = max(counts.nak_stm_max, found.missing_ns)
            counts.nak_stm_mean += (found.missing_ns - counts.nak_stm_mean) // 8
            self._asked_mean += (found.asked - self._asked_mean) / 8 if counts.nak_tx_max else found.asked
            counts.nak_tx_min = min(counts.nak_tx_min or found.asked, found.asked)
            counts.nak_tx_mean = round(self._asked_mean)
            counts.nak_tx_max = max(counts.nak_tx_max, found.asked)
        return True

    def _remember_given_up(self, numbers: Sequence[int]) -> None:
        for number in numbers:
            self._given_up[number] = None
        while len(self._given_up) > self._settings.late_max:
            del self._given_up[next(iter(self._given_up))]


_NCF_COUNTS = {1: "ncfs_ignored", 2: "ncfs_rx_delay", 3: "ncfs_shed"}
