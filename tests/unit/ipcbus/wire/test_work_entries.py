"""Retained messages as entries for the members of a share."""

from __future__ import annotations

from ipcbus.wire.work_entries import goes_on, take_apart
from tests.kit.datagrams import fragments
from tests.kit.retaining import entry


def test_whole_messages_are_taken_apart_and_a_message_in_pieces_waits_for_its_last_piece() -> None:
    pieces = [entry(item.sequence, item.payload, item.flags) for item in fragments(5, b"abcdefgh", 2)]
    before = entry(4, b"one")
    found, following = take_apart(before + b"".join(pieces[:3]), 4)
    assert ([(each.first, each.last) for each in found], following) == ([(4, 4)], 5)
    found, following = take_apart(b"".join(pieces), 5)
    assert ([(each.first, each.last) for each in found], following) == ([(5, 8)], 9)
    assert found[0].entry.endswith(b"abcdefgh")


def test_only_a_piece_of_the_same_message_that_is_not_the_last_goes_on() -> None:
    pieces = [entry(item.sequence, item.payload, item.flags) for item in fragments(5, b"abcdefgh", 2)]
    assert [goes_on(piece, 5) for piece in pieces] == [True, True, True, False]
    assert not goes_on(pieces[1], 4)
    assert not goes_on(entry(6, b"a message of 24 bytes ..."), 5)
    assert not goes_on(b"", 5)
    assert not goes_on(pieces[1][:39], 5)
