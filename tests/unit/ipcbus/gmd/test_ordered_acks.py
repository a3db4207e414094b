"""Acknowledgements in order: taken by compiled code, with the notes and releases of the machine; all else is left."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from ipcbus.errors import GmdError
from ipcbus.gmd import sender_notes
from ipcbus.gmd.ordered_acks import OrderedAcks
from ipcbus.gmd.sender_notes import Note
from tests.kit.cases import each_of

INCARNATION = (1 << 64) - 1


@dataclass
class Stand:
    """What the area got."""

    confirms: bool = False
    notes: list[Note] = field(default_factory=list)
    released: list[tuple[int, int]] = field(default_factory=list)
    refuses: bool = False

    def __post_init__(self) -> None:
        self.acks = OrderedAcks(self._note, self._release, INCARNATION, confirms=self.confirms)

    def _note(self, payload: bytes) -> None:
        if self.refuses:
            raise GmdError("the area failed")
        note = sender_notes.decode(payload)
        assert note is not None
        self.notes.append(note)

    def _release(self, first: int, last: int) -> None:
        self.released.append((first, last))

    def begin(self, low: int = 1, *floors: int, any_is_enough: bool = False) -> None:
        """Names 1, 2 ... with these floors; instance 10 * n of the channel `n` is that of name n."""
        floors = floors or (low - 1,)
        self.acks.begin(
            low,
            any_is_enough=any_is_enough,
            names=[(place + 1, floor) for place, floor in enumerate(floors)],
            receivers=[(place + 1, 10 * (place + 1), place) for place in range(len(floors))],
        )

    def ack(self, name: int, first: int, last: int, *, last_number: int = 100) -> bool:
        """An acknowledgement of a name."""
        return self.acks.try_take(name, 10 * name, INCARNATION, first, last, last_number)


def test_the_next_numbers_are_noted_and_released() -> None:
    stand = Stand()
    stand.begin()
    assert stand.ack(1, 1, 4)
    assert stand.ack(1, 5, 5)
    assert stand.notes == [Note(sender_notes.ACK, 1, 0, ((1, 4),)), Note(sender_notes.ACK, 1, 0, ((5, 5),))]
    assert stand.released == [(1, 4), (5, 5)]
    assert (stand.acks.low, stand.acks.count, stand.acks.floors()) == (6, 5, [(5, True)])
    assert stand.acks.floors() == [(5, False)]


def test_all_names_have_to_acknowledge() -> None:
    stand = Stand()
    stand.begin(3, 2, 7, 2)
    assert stand.ack(1, 3, 9)
    assert not stand.released
    assert stand.ack(3, 3, 5)
    assert stand.released == [(3, 5)]
    assert stand.ack(3, 6, 12)
    assert stand.released == [(3, 5), (6, 7)]
    assert [floor for floor, _ in stand.acks.floors()] == [9, 7, 12]
    assert stand.acks.count == 17


def test_any_name_may_be_enough() -> None:
    stand = Stand()
    stand.begin(1, 0, 0, any_is_enough=True)
    assert stand.ack(2, 1, 5)
    assert stand.released == [(1, 5)]
    assert [floor for floor, _ in stand.acks.floors()] == [5, 5]
    assert stand.ack(1, 1, 4)
    assert stand.ack(1, 4, 8)
    assert stand.released == [(1, 5), (6, 8)]
    assert stand.notes[-1] == Note(sender_notes.ACK, 1, 0, ((6, 8),))


def test_what_is_acknowledged_again_is_taken_without_a_note() -> None:
    stand = Stand()
    stand.begin(5)
    assert stand.ack(1, 1, 4)
    assert (stand.notes, stand.released, stand.acks.floors()) == ([], [], [(4, True)])
    assert stand.ack(1, 2, 6)
    assert stand.notes == [Note(sender_notes.ACK, 1, 0, ((5, 6),))]


@each_of(
    ("peer", "instance", "incarnation", "first", "last"),
    [
        pytest.param(2, 10, INCARNATION, 1, 1, id="another channel"),
        pytest.param(1, 11, INCARNATION, 1, 1, id="another instance"),
        pytest.param(1, 10, 5, 1, 1, id="another incarnation"),
        pytest.param(1, 10, INCARNATION, 2, 2, id="a gap"),
        pytest.param(1, 10, INCARNATION, 1, 101, id="a number that was not given"),
        pytest.param(1, 10, INCARNATION, 1, (1 << 64) - 1, id="the last number there is"),
    ],
)
def test_all_else_is_left_to_the_machine(peer: int, instance: int, incarnation: int, first: int, last: int) -> None:
    stand = Stand()
    stand.begin()
    assert not stand.acks.try_take(peer, instance, incarnation, first, last, 100)
    assert (stand.notes, stand.released, stand.acks.floors()) == ([], [], [(0, False)])


def test_it_takes_nothing_while_it_is_not_ready() -> None:
    stand = Stand()
    assert not stand.ack(1, 1, 1)
    stand.begin()
    stand.acks.pause()
    assert not stand.acks.is_ready
    assert not stand.ack(1, 1, 1)
    stand.begin(4)
    assert stand.ack(1, 4, 4)


def test_a_note_that_the_area_refuses_is_left_to_the_machine() -> None:
    stand = Stand(refuses=True)
    stand.begin()
    assert not stand.ack(1, 1, 1)
    assert (stand.acks.low, stand.acks.count, stand.released) == (1, 0, [])


def test_complete_deliveries_are_told_once() -> None:
    stand = Stand(confirms=True)
    stand.begin()
    assert stand.acks.take_confirmed() is None
    stand.ack(1, 1, 4)
    stand.ack(1, 5, 6)
    assert stand.acks.take_confirmed() == (1, 6)
    assert stand.acks.take_confirmed() is None
    stand.ack(1, 7, 7)
    stand.acks.pause()
    assert stand.acks.take_confirmed() == (7, 7)
