from __future__ import annotations

import pytest

from ipcbus.errors import GmdError
from ipcbus.gmd import sender_notes
from ipcbus.gmd.delivery_modes import ALL, SOME
from ipcbus.gmd.delivery_terms import DeliveryTerms
from ipcbus.gmd.expected_names import ExpectedNames
from ipcbus.gmd.sender_notes import Note
from ipcbus.wire.control_messages import NUMBER_MAX


def state(names: ExpectedNames) -> object:
    return [
        (
            *(each.id, each.name, each.disconnect_mode, list(each.expected), list(each.owed)),
            {error: list(ranges) for error, ranges in each.failed.items()},
        )
        for each in names.all
    ]


def again(notes: list[bytes]) -> ExpectedNames:
    names = ExpectedNames(lambda _: None)
    for payload in notes:
        note = sender_notes.decode(payload)
        assert note is not None
        names.replay(note)
    return names


def test_notes_and_checkpoint_make_everything_again() -> None:
    notes: list[bytes] = []
    names = ExpectedNames(notes.append)
    one = names.register("one", 0, 5)
    assert list(one.owed) == [(1, NUMBER_MAX)]
    assert list(names.unassigned.owed) == []
    two = names.register("two", 1, 8)
    assert list(two.owed) == [(8, NUMBER_MAX)]
    names.acknowledge(one, [(1, 3), (9, 9)])
    names.fail(two, [(8, 9)], 520)
    names.fail(two, [(9, 9)], 518)
    names.close(two, 20)
    names.register("two", 2, 30)
    assert list(two.owed) == [(10, 19), (30, NUMBER_MAX)]
    names.close(one, 40)
    names.close(one, 41)
    names.close(two, 50)
    assert list(names.unassigned.owed) == [(50, NUMBER_MAX)]
    names.fail(names.unassigned, [(50, 51)], 521)
    names.forget(one, [(10, 12)])
    assert list(names.unassigned.owed) == [(10, 12), (52, NUMBER_MAX)]
    assert state(again(notes)) == state(names)
    assert state(again([*notes[:5], *names.checkpoint()])) == state(names)
    names.register("three", 0, 60)
    assert names.by_name["three"].id == 3
    assert state(again(notes)) == state(names)


def test_notes_of_unknown_names_are_skipped() -> None:
    names = ExpectedNames(lambda _: None)
    for kind in range(sender_notes.BEGIN, sender_notes.PLACE + 1):
        if kind not in (sender_notes.NAME, sender_notes.BEGIN):
            names.replay(Note(kind, 9, 0, ((1, 1),)))
    assert not list(names)


def test_what_cannot_be_noted() -> None:
    def refuse(payload: bytes) -> None:
        raise GmdError("failed")

    names = ExpectedNames(refuse)
    with pytest.raises(GmdError):
        names.register("one", 0, 1)
    assert not names.by_name
    names.fail(names.unassigned, [(1, 1)], 521)
    assert names.not_noted == 1
    assert 1 not in names.unassigned.owed


def test_done_messages() -> None:
    names, terms = ExpectedNames(lambda _: None), DeliveryTerms()
    terms.change(5, SOME, 0)
    terms.change(9, ALL, 0)
    one, two = names.register("one", 0, 1), names.register("two", 0, 1)
    names.acknowledge(one, [(2, 10)])
    names.acknowledge(two, [(1, 3), (10, 10)])
    assert list(names.done(1, 20, terms)) == [(2, 3), (5, 8), (10, 10)]
    names.fail(two, [(4, 4)], 518)
    assert list(names.done(1, 8, terms)) == [(2, 3), (5, 8)]
    names.release(4, 8)
    assert two.failed == {}
    assert list(two.owed) == [(9, 9), (11, NUMBER_MAX)]
    assert list(one.acknowledged(1, 9)) == [(2, 9)]
    names.drop_below(8)
    assert list(one.acknowledged(1, 9)) == [(8, 9)]
