from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ipcbus.gmd import sender_notes
from ipcbus.gmd.sender_notes import Note
from ipcbus.wire.control_messages import NUMBER_MAX
from tests.kit.cases import each_of

NUMBER = st.integers(1, NUMBER_MAX)
RANGES = st.lists(st.tuples(NUMBER, NUMBER).map(lambda pair: (min(pair), max(pair))), max_size=9)
U32 = st.integers(0, 2**32 - 1)


@given(st.integers(0, 12), st.binary(max_size=60))
def test_any_bytes_are_a_note_or_none(kind: int, rest: bytes) -> None:
    for each in (rest, bytes([kind]) + rest, bytes([kind, 0]) + rest):
        note = sender_notes.decode(each)
        assert note is None or note.kind == sender_notes.BEGIN or sender_notes.encode(note) == each


@given(U32, st.integers(0, 2**16 - 1), RANGES, st.text(min_size=1, max_size=9, alphabet="ab\u00e4"))
def test_notes(name_id: int, error: int, ranges: list[tuple[int, int]], name: str) -> None:
    for kind in (sender_notes.EXPECT, sender_notes.ACK, sender_notes.FAIL, sender_notes.SKIP):
        note = Note(kind, name_id, error, tuple(ranges))
        assert sender_notes.decode(sender_notes.encode(note)) == note
    named = Note(sender_notes.NAME, name_id, 0, (), name, 2)
    assert sender_notes.decode(sender_notes.encode(named)) == named


def test_many_ranges_take_several_notes() -> None:
    ranges = [(2 * number, 2 * number) for number in range(1, 2502)]
    notes = [sender_notes.decode(each) for each in sender_notes.encode_ranges(sender_notes.ACK, 3, ranges)]
    assert [len(note.ranges) for note in notes if note] == [1000, 1000, 501]
    assert [part for note in notes if note for part in note.ranges] == ranges


@each_of(
    "note",
    [
        Note(sender_notes.ACK, 1, 0, ((0, 1),)),
        Note(sender_notes.ACK, 1, 0, ((2, 1),)),
        Note(sender_notes.ACK, 1, 0, ((2, NUMBER_MAX + 1),)),
        Note(sender_notes.CLOSE, 1),
        Note(sender_notes.TIMEOUT, 1, 0, ((1, 1), (2, 2))),
        Note(sender_notes.NAME, 1),
        Note(99),
    ],
)
def test_what_contradicts_itself_is_skipped(note: Note) -> None:
    assert sender_notes.decode(sender_notes.encode(note)) is None


def test_a_name_is_valid_text() -> None:
    whole = sender_notes.encode(Note(sender_notes.NAME, 1, name="ab"))
    assert sender_notes.decode(whole[:-1] + b"\xff") is None
