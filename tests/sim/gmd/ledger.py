"""What must be true of a guaranteed delivery, whatever happened: checked with each send, delivery and release."""

from __future__ import annotations

from dataclasses import dataclass, field

from ipcbus.gmd.delivery_modes import SOME


@dataclass
class Sent:
    """A send that returned."""

    number: int
    mode: int
    data: bytes
    expected: set[str]
    """Names that have to acknowledge it; filled by the first name that registers if there was none."""
    was_unassigned: bool
    failed: bool = False
    deleted: bool = False
    released: bool = False


@dataclass
class NameLedger:
    """What one named receiver got, over all its processes."""

    acknowledged: set[int] = field(default_factory=set)
    """By the application."""
    delivered: set[int] = field(default_factory=set)
    refused: set[int] = field(default_factory=set)
    taken_back: bool = False
    """Whether it does not have to acknowledge everything any more: it was forgotten, or left with `gmd_success`."""


@dataclass
class Life:
    """One process of a named receiver."""

    name: str
    unrecorded_max: int
    last_in_order: int = 0
    may_repeat: set[int] = field(default_factory=set)
    """Numbers that were delivered in an earlier life, and that the area does not know."""
    delivered: set[int] = field(default_factory=set)
    acknowledged: set[int] = field(default_factory=set)
    refused: set[int] = field(default_factory=set)
    area_failed: bool = False
    lost: set[int] = field(default_factory=set)
    lost_early: set[int] = field(default_factory=set)


class Ledger:
    """The account of one source."""

    def __init__(self) -> None:
        self.sent: dict[int, Sent] = {}
        self.names: dict[str, NameLedger] = {}
        self.zero_success = False
        self.expected = set[str]()
        self.trace: list[tuple[object, ...]] = []

    def name(self, name: str) -> NameLedger:
        """Returns the account of a name."""
        return self.names.setdefault(name, NameLedger())

    def save(self, number: int, mode: int, data: bytes, expected: set[str]) -> None:
        """A send returned."""
        assert number not in self.sent or self.sent[number].released is None, f"number {number} was given twice"
        self.sent[number] = Sent(number, mode, data, set(expected), not expected)
        self.trace.append(("save", number, mode, sorted(expected)))

    def registered(self, names: set[str]) -> None:
        """Receivers are expected now; what waited for the first one is theirs."""
        if names != self.expected:
            self.expected = names
            self.trace.append(("expected", *sorted(names)))
        for sent in self.sent.values():
            if not sent.expected and not sent.released and not sent.failed and names:
                sent.expected = set(names)

    def forget(self, name: str) -> None:
        """The application forgets a name; its messages may become those of other ones."""
        self.name(name).taken_back = True
        for sent in self.sent.values():
            sent.was_unassigned |= name in sent.expected

    def deliver(self, life: Life, number: int, data: bytes, *, is_resent: bool, is_late: bool) -> None:
        """A receiver got a message."""
        self.trace.append(("deliver", life.name, number, is_resent, is_late))
        sent, name = self.sent.get(number), self.name(life.name)
        assert sent is not None, f"{life.name} got {number}, which was never sent"
        assert data == sent.data, f"{life.name} got {number} with other bytes"
        if is_late:
            reason = number in name.refused or sent.failed or sent.was_unassigned
            assert is_resent, f"{life.name} got {number} late without the flag"
            assert reason, f"{life.name} got {number} late without a reason"
        else:
            assert number > life.last_in_order, f"{life.name} got {number} after {life.last_in_order}"
            life.last_in_order = number
        if number in life.delivered:
            assert number in life.refused, f"{life.name} got {number} twice"
            life.refused.discard(number)
        elif number in name.delivered:
            assert is_resent, f"{life.name} got {number} again without the flag"
            assert number in life.may_repeat, f"{life.name} got {number} again, though its area had it"
        if number in life.lost and not is_late:
            raise AssertionError(f"{number} was reported lost, and was delivered")
        life.delivered.add(number)
        name.delivered.add(number)

    def acknowledge(self, life: Life, number: int) -> None:
        """An application acknowledged a message."""
        self.trace.append(("acknowledge", life.name, number))
        self.name(life.name).acknowledged.add(number)
        life.acknowledged.add(number)

    def refuse(self, life: Life, number: int) -> None:
        """An application refused a message."""
        self.trace.append(("refuse", life.name, number))
        life.refused.add(number)
        self.name(life.name).refused.add(number)

    def gave_up(self, first: int, last: int) -> None:
        """A receiver was informed that messages are deleted."""
        for number in range(first, last + 1):
            assert self.sent[number].deleted, f"{number} was given up, but not deleted"

    def lost(self, life: Life, numbers: list[int]) -> None:
        """A receiver reported topic numbers of these messages as lost."""
        self.trace.append(("lost", life.name, *numbers))
        for number in numbers:
            assert number not in life.delivered or number in life.lost_early, (
                f"{number} is reported lost, but was delivered"
            )
            life.lost.add(number)

    def release(self, numbers: list[int]) -> None:
        """Copies left the area."""
        for number in numbers:
            sent = self.sent[number]
            sent.released = True
            self.trace.append(("release", number))
            if sent.deleted or (self.zero_success and not sent.expected):
                continue
            done = {name for name in sent.expected if number in self.name(name).acknowledged}
            excused = {name for name in sent.expected if self.name(name).taken_back}
            anybody = {name for name, each in self.names.items() if number in each.acknowledged or each.taken_back}
            if sent.mode == SOME:
                assert anybody, f"{number} was released, but no receiver has acknowledged it"
            else:
                missing = sent.expected - done - excused
                assert not missing, f"{number} was released, but {missing} did not acknowledge it"
                assert anybody, f"{number} was released, but no receiver has acknowledged it"
