"""The entries of a GMD_RESENT, taken one by one; test_gmd_messages has the bytes."""

from __future__ import annotations

import pytest

from ipcbus.wire import gmd_messages, topic_places
from ipcbus.wire.resent_entries import Entry, ResentEntries, checked

ENTRIES = [
    Entry(4, 10, 3, None, b"", b""),
    Entry(5, 11, 3, (7, 9), b"head", b"value"),
    Entry(6, 12, 3, (10, 10), b"", b"12345678"),
    Entry(7, 13, 3, (20, 20), b"", b"x"),
]


def packed(entry: Entry) -> bytes:
    """As a source sends it."""
    number, send_time_ns, opening, numbers, block, data = entry
    return gmd_messages.entry(number, send_time_ns, opening, topic_places.pack(*numbers) if numbers else 0, block, data)


def entries(some: list[Entry]) -> ResentEntries:
    """As a receiver gets them."""
    found = gmd_messages.decode(gmd_messages.resent(1, 2, 3, 1, 100, 0, [packed(each) for each in some]))
    assert isinstance(found, gmd_messages.Resent)
    return found.entries


def test_entries_are_taken_from_the_front() -> None:
    some = entries(ENTRIES)
    assert (len(some), some.first, some.last, some.is_run, some.size) == (4, 4, 7, True, 18)
    assert some == ENTRIES
    assert some.pop() == ENTRIES[0]
    assert (len(some), some.first, some.last, list(some)) == (3, 5, 7, ENTRIES[1:])
    some.clear()
    assert (len(some), list(some)) == (0, [])
    with pytest.raises(IndexError):
        some.pop()


def test_ranges() -> None:
    assert entries(ENTRIES).topic_ranges() == [(3, 7, 10), (3, 20, 20)]
    assert not entries([ENTRIES[0], ENTRIES[2]]).is_run
    assert not entries([]).is_run
    assert entries([]).topic_ranges() == []


def test_a_length_that_points_behind_the_message_is_refused() -> None:
    whole = packed(ENTRIES[1])
    assert checked(whole, 0, 5, 6) is not None
    for at in (32, 36):
        assert checked(whole[:at] + b"\xff\xff\xff\xff" + whole[at + 4 :], 0, 5, 6) is None
    assert checked(whole[:39], 0, 5, 6) is None
