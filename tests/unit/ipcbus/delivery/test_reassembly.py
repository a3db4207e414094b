"""What a fragment may say, and the message that it is of."""

from __future__ import annotations

from ipcbus.delivery.reassembly import Fragment, Partial, read_fragment
from ipcbus.wire.wire_layout import MESSAGE_MAX
from tests.kit.cases import each_of
from tests.kit.datagrams import fragment, fragments


def read(sequence: int, first: int, offset: int, total: int, piece: bytes) -> Fragment | None:
    """A fragment from what stands in it."""
    return read_fragment(sequence, memoryview(fragment(sequence, first, offset, total, piece).payload))


@each_of("length", [9, 15, 16, 17, 24, 25])
def test_every_fragment_tells_the_whole_message(length: int) -> None:
    payload = bytes(range(length))
    items = fragments(7, payload, 8)
    read = [read_fragment(item.sequence, memoryview(item.payload)) for item in items]
    for i, each in enumerate(read):
        assert each is not None
        assert (each.first, each.last, each.total, each.piece_bytes) == (7, 7 + len(items) - 1, length, 8)
        assert each.same_message(read[0])
        assert (each.offset, bytes(each.piece)) == (8 * i, payload[8 * i : 8 * i + 8])


WRONG = {
    "no piece": (7, 5, 16, 24, b""),
    "before its message": (4, 5, 0, 24, b"x" * 8),
    "first not at 0": (5, 5, 8, 24, b"x" * 8),
    "second at 0": (6, 5, 0, 24, b"x" * 8),
    "not at a multiple": (7, 5, 15, 24, b"x" * 8),
    "all in one": (5, 5, 0, 8, b"x" * 8),
    "longer than all": (5, 5, 0, 7, b"x" * 8),
    "beyond the end": (7, 5, 16, 23, b"x" * 8),
    "offset behind the end": (8, 5, 24, 24, b"x" * 8),
    "short within": (6, 5, 8, 24, b"x" * 7),
    "long within": (6, 5, 8, 24, b"x" * 9),
    "longest at the end": (7, 5, 16, 25, b"x" * 9),
    "an index past its offset": (2**62, 5, 8, 24, b"x" * 8),
    "total 0": (5, 5, 0, 0, b"x"),
    "more than any message": (5, 5, 0, 2**31, b"x" * 8),
    "the largest of everything": (2**63 - 1, 2**64 - 1, 2**32 - 1, 2**32 - 1, b"x"),
}


@each_of("name", WRONG)
def test_a_fragment_that_contradicts_itself_is_none(name: str) -> None:
    assert read(*WRONG[name]) is None


@each_of("length", [0, 1, 15, 16])
def test_a_fragment_without_room_for_its_header_and_a_byte_is_none(length: int) -> None:
    assert read_fragment(0, memoryview(bytes(length))) is None


def test_the_longest_message_of_all_is_one() -> None:
    found = read(0, 0, 0, MESSAGE_MAX, b"x" * 1000)
    assert found is not None
    assert found.last == -(-MESSAGE_MAX // 1000) - 1


@each_of(
    ("other", "same", "overlaps"),
    [
        ((5, 5, 0, 24, b"y" * 8), True, True),
        ((7, 7, 0, 24, b"y" * 8), False, True),
        ((8, 8, 0, 24, b"y" * 8), False, False),
        ((5, 5, 0, 23, b"y" * 8), False, True),
        ((5, 5, 0, 24, b"y" * 7), False, True),
        ((2, 2, 0, 24, b"y" * 8), False, False),
    ],
)
def test_messages_are_told_apart(other: tuple[int, int, int, int, bytes], same: bool, overlaps: bool) -> None:
    mine, theirs = read(5, 5, 0, 24, b"x" * 8), read(*other)
    assert mine is not None
    assert theirs is not None
    assert mine.same_message(theirs) == theirs.same_message(mine) == same
    assert mine.overlaps(theirs) == theirs.overlaps(mine) == overlaps


def test_a_partial_is_whole_with_its_last_piece_and_gathers_flags() -> None:
    payload = bytes(range(20))
    found = [read_fragment(item.sequence, memoryview(item.payload)) for item in fragments(3, payload, 8)]
    assert found[1] is not None
    partial = Partial(found[1], 99)
    assert partial.send_ticks == 99
    for each, flags in ((found[1], 0x4), (found[2], 0x6)):
        assert each is not None
        assert not partial.put(each, flags, 0)
    assert found[0] is not None
    assert partial.put(found[0], 0x5, 0)
    assert partial.parts() == (None, 0, None, payload)
    assert partial.flags == 0x7
