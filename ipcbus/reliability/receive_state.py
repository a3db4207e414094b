"""The receiving end of a session: what to deliver, whom to ask for what, and when the session is over."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ipcbus.reliability.loss_detector import LossDetector, NakSettings

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random


@dataclass(frozen=True, slots=True)
class ReceiveSettings:
    """How a receiver behaves, in ns; named as the options.

    Attributes:
        naks: when it asks for what is missing.
        send_naks: whether it asks at all.
        activity_timeout: after so long without a sign of the session it is over.
        late_max: numbers given up that are still taken when they come after all.
    """

    naks: NakSettings = field(default_factory=NakSettings)
    send_naks: bool = True
    activity_timeout: int = 60_000_000_000
    late_max: int = 1 << 14


@dataclass(slots=True)
class ReceiveCounts:
    """What a receiver counts; Ultra Messaging's names.

    Attributes:
        msgs_rcved: datagrams that came for the first time.
        bytes_rcved: their bytes.
        lost: numbers that were found missing, also those that were only overtaken.
        naks_sent: numbers that were asked for.
        nak_pckts_sent: packets in which they were.
        ncfs_ignored: NCFs, by number: it was sent again just before.
        ncfs_shed: the source has no room for more retransmissions.
        ncfs_rx_delay: the source will send it later.
        ncfs_unknown: any other reason.
        duplicate_data: datagrams that had come before.
        unrecovered_txw: given up because the source does not hold them any more.
        unrecovered_tmo: given up because they stayed away for the generation interval.
        unrecovered_full: given up because too many are missing.
        late: came although they had been given up.
        out_of_order: came after a later one, without having been asked for.
        nak_stm_min: shortest time in ns from missing to there; 0 before the first.
        nak_stm_max: the longest.
        nak_stm_mean: a moving mean.
        nak_tx_min: fewest times that one number was asked for before it came; 0 before the first.
        nak_tx_mean: a moving mean, as a whole number.
        nak_tx_max: the most.
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
    late: int = 0
    out_of_order: int = 0
    nak_stm_min: int = 0
    nak_stm_max: int = 0
    nak_stm_mean: int = 0
    nak_tx_min: int = 0
    nak_tx_mean: int = 0
    nak_tx_max: int = 0


class ReceiveState:
    """One session at one receiving context. Datagrams are delivered as they come; the topic layer orders them."""

    def __init__(
        self,
        settings: ReceiveSettings,
        random: Random,
        now_ns: int,
        first: int | None = None,
        counts: ReceiveCounts | None = None,
    ) -> None:
        """Nothing has come.

        Args:
            settings: how it behaves.
            random: for the backoffs.
            now_ns: the time.
            first: the first number that it is to have; None begins with the first one that it hears of, because
                nobody can know what was sent before a multicast group was joined.
            counts: what to count in.
        """
        self.counts = counts or ReceiveCounts()
        self.first = first
        """The first number that it is to have; None before it has heard of the session."""
        self._settings = settings
        self._map = LossDetector(settings.naks, random)
        self._next = first
        self._asked_mean = 0.0
        self._heard_ns = now_ns
        # Numbers given up, the oldest first, so that what comes after all is told from what came twice.
        self._given_up: dict[int, None] = {}

    @property
    def lead(self) -> int | None:
        """The number after the highest that it knows of; None before it has heard of the session."""
        return self._next

    @property
    def missing(self) -> int:
        """How many numbers are missing and waited for."""
        return len(self._map)

    def data(self, number: int, trail: int, size: int, now_ns: int) -> bool:
        """Returns a datagram came; says whether to deliver it.

        Args:
            number: its own.
            trail: the oldest that its source holds.
            size: its bytes, to be counted.
            now_ns: the time.
        """
        self._heard_ns = now_ns
        if self._next is None:
            self._next = self.first = number
        if number >= self._next:
            if number > self._next:
                self._lack(number, trail, now_ns)
            self._next = number + 1
        elif not self._was_missing(number, now_ns):
            self.counts.duplicate_data += 1
            self._leave(trail)
            return False
        if self._map:
            self._leave(trail)
        self.counts.msgs_rcved += 1
        self.counts.bytes_rcved += size
        return True

    def session_message(self, lead: int, trail: int, now_ns: int) -> None:
        """The source has sent all below `lead`, and holds what is not below `trail`."""
        self._heard_ns = now_ns
        if self._next is None:
            self._next = self.first = lead
        if lead > self._next:
            self._lack(lead, trail, now_ns)
            self._next = lead
        self._leave(trail)

    def ncf(self, numbers: Sequence[int], reason: int, now_ns: int) -> None:
        """The source will not send these now."""
        self._heard_ns = now_ns
        known = self._map.ncf(numbers, now_ns)
        name = _NCF_COUNTS.get(reason, "ncfs_unknown")
        setattr(self.counts, name, getattr(self.counts, name) + known)

    def turn(self, now_ns: int, known: bool = True) -> list[int]:
        """Numbers to ask the source for now; gives up what is too old.

        Args:
            now_ns: the time.
            known: the source knows who asks; else asking is useless.
        """
        asks, given_up = self._map.due(now_ns)
        self.counts.unrecovered_tmo += len(given_up)
        self._remember(given_up)
        if not (self._settings.send_naks and known):
            return []
        self.counts.naks_sent += len(asks)
        return asks

    @property
    def base(self) -> int | None:
        """Below it every number has come or was given up; None before anything is known."""
        first = self._map.first
        return first if first is not None else self.lead

    def heard(self, now_ns: int) -> None:
        """The source has given a sign of life."""
        self._heard_ns = now_ns

    def over(self, now_ns: int) -> bool:
        """Returns whether the session has been silent for too long."""
        return now_ns - self._heard_ns >= self._settings.activity_timeout

    @property
    def next_ns(self) -> int:
        """When to call `turn`, and look whether it is over."""
        silent = self._heard_ns + self._settings.activity_timeout
        due = self._map.next_ns
        return silent if due is None else min(silent, due)

    def _lack(self, end: int, trail: int, now_ns: int) -> None:
        """All from the next number up to `end` was passed over."""
        first = self._next if self._next is not None else end
        self.counts.lost += end - first
        # What the source holds no more is not worth an entry, and a number from nowhere not a billion of them.
        held = min(max(first, trail), end)
        self.counts.unrecovered_txw += held - first
        self._remember(range(max(first, held - self._settings.late_max), held))
        self.counts.unrecovered_full += self._map.lack(held, end, now_ns)

    def _leave(self, trail: int) -> None:
        gone = self._map.left_window(trail)
        self.counts.unrecovered_txw += len(gone)
        self._remember(gone)

    def _was_missing(self, number: int, now_ns: int) -> bool:
        found = self._map.came(number, now_ns)
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

    def _remember(self, numbers: Sequence[int]) -> None:
        for number in numbers:
            self._given_up[number] = None
        while len(self._given_up) > self._settings.late_max:
            del self._given_up[next(iter(self._given_up))]


_NCF_COUNTS = {1: "ncfs_ignored", 2: "ncfs_rx_delay", 3: "ncfs_shed"}
