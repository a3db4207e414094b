"""What the two ends of a session put on the wire, held against the times that the protocol promises."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ipcbus.wire import udp_packets

if TYPE_CHECKING:
    from collections.abc import Hashable

    from ipcbus.reliability.receiver_settings import ReceiverSettings
    from ipcbus.reliability.session_sender import SenderSettings


_AT_A_TIME = 16
"""Numbers that a receiver may ask for at a time, whatever the size of datagrams."""
_MEASURED = 10_000_000, 625_000_000
"""The shortest and the longest time between two NAKs for a number where that is measured."""
_IGNORE_MIN = 5_000_000
"""The shortest time between two answers, where that is measured."""


@dataclass
class SourceWatch:
    """Looks at all that a source sends."""

    terms: SenderSettings
    sent_ns: int
    faults: list[str] = field(default_factory=list)
    rxs: int = 0
    ncfs: int = 0
    _again: dict[tuple[int, Hashable], int] = field(default_factory=dict)
    _refused: dict[tuple[int, Hashable], int] = field(default_factory=dict)
    _silence: int = 0
    _balance: dict[Hashable, int] = field(default_factory=dict)
    _proven: set[Hashable] = field(default_factory=set)

    def came(self, packet: bytes, address: Hashable) -> None:
        """Something comes to the source."""
        self._balance[address] = self._balance.get(address, 0) + len(packet)

    def received(self, address: Hashable) -> None:
        """A receiver has got what the source sent there, and can prove it."""
        self._proven.add(address)

    def sent(self, packet: bytes, to: Hashable, now: int) -> None:
        """The source sends something."""
        if to is not None and to not in self._proven:
            self._balance[to] = self._balance.get(to, 0) - len(packet)
            if self._balance[to] < 0:
                self.faults.append(f"{now}: more goes to {to} than came from it")
        found = udp_packets.parse(packet)
        interval = self.terms.sending.ignore_interval
        interval = _IGNORE_MIN if interval < 0 else interval
        if isinstance(found, udp_packets.Data) and found.flags & udp_packets.AGAIN:
            self.rxs += 1
            self._once(self._again, (found.number, to), interval, now, "sent again")
        elif isinstance(found, udp_packets.Numbers):
            for number in found.numbers:
                self.ncfs += 1
                self._once(self._refused, (number, to), interval, now, "refused")
        elif isinstance(found, udp_packets.SessionMessage) and to is None and not found.flags:
            self._paced(now)
        elif found is None:
            self.faults.append(f"{now}: sent what is no packet")
        new = isinstance(found, udp_packets.SessionMessage) or (
            found is not None and not found.flags & udp_packets.AGAIN
        )
        if new and to is None and not isinstance(found, udp_packets.Numbers):
            self._silence = now - self.sent_ns if isinstance(found, udp_packets.SessionMessage) else 0
            self.sent_ns = now

    def _paced(self, now: int) -> None:
        """A session message comes after the minimum, the next after twice as long, up to the maximum."""
        terms = self.terms.sending
        due = min(max(2 * self._silence, terms.sm_minimum), terms.sm_maximum)
        if now - self.sent_ns != due:
            self.faults.append(f"{now}: session message after {now - self.sent_ns} ns, and not after {due}")

    def _once(
        self, known: dict[tuple[int, Hashable], int], asked: tuple[int, Hashable], interval: int, now: int, what: str
    ) -> None:
        last = known.get(asked)
        if last is not None and now - last < interval:
            self.faults.append(f"{now}: {asked} {what} {now - last} ns after the last time")
        known[asked] = now


@dataclass
class _Missing:
    since: int
    joined: bool
    earliest: int
    latest: int
    asked: int = 0


@dataclass
class ReceiverWatch:
    """Looks at all that a receiver asks for."""

    terms: ReceiverSettings
    faults: list[str] = field(default_factory=list)
    naks: int = 0
    _missing: dict[int, _Missing] = field(default_factory=dict)
    _unwatched: int = 0

    def found_missing(self, first: int, end: int, joined: bool, now: int) -> None:
        """Numbers were passed over."""
        backoff = self.terms.receiving.naks.initial_backoff
        for number in range(first, end):
            self._missing[number] = _Missing(now, joined, now + backoff // 2, now + backoff * 3 // 2)

    def delivered(self, number: int) -> None:
        """A number came."""
        self._missing.pop(number, None)

    def look_away(self, below: int) -> None:
        """The receiver catches up: which of these numbers it asks for, and when, is up to it."""
        self._unwatched = below
        self._missing.clear()

    def unjoined(self) -> None:
        """It may not ask for a while: when it does next is not promised."""
        for missing in self._missing.values():
            missing.joined = False

    def ncf(self, numbers: tuple[int, ...], reason: int, now: int) -> None:
        """The source will not send these now, or has sent them just before."""
        naks = self.terms.receiving.naks
        suppress = 0 if reason == udp_packets.NCF_IGNORED else naks.suppress
        for number in numbers:
            if (missing := self._missing.get(number)) is not None:
                self._excuse_wait(missing, now)
                missing.earliest, missing.latest = self._again(now + suppress)

    @staticmethod
    def _excuse_wait(missing: _Missing, now: int) -> None:
        """The time for which the first NAK had to wait is no age."""
        if not missing.asked and now > missing.latest:
            missing.since += now - missing.earliest

    def _again(self, now: int) -> tuple[int, int]:
        """When it may ask again, and when it has to."""
        backoff = self.terms.receiving.naks.backoff
        soon, late = _MEASURED if backoff < 0 else (backoff // 2, backoff * 3 // 2)
        return now + soon, now + late

    def nak(self, numbers: tuple[int, ...], now: int) -> None:
        """The receiver asks."""
        naks = self.terms.receiving.naks
        if len(self._missing) > _AT_A_TIME:
            self.unjoined()  # some wait until others have come
        for number in numbers:
            self.naks += 1
            if number < self._unwatched:
                continue
            missing = self._missing.get(number)
            if missing is None:
                self.faults.append(f"{now}: asks for {number}, which is not missing")
                continue
            if now < missing.earliest or (missing.joined and now > missing.latest):
                self.faults.append(f"{now}: asks for {number}, not in {missing}")
            self._excuse_wait(missing, now)
            if now - missing.since >= naks.generation:
                self.faults.append(f"{now}: asks for {number}, which is too old: {missing}")
            missing.joined = True
            missing.asked += 1
            missing.earliest, missing.latest = self._again(now)
