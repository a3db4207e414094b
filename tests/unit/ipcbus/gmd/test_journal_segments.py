"""Heads and checkpoints of segments."""

from __future__ import annotations

from ipcbus.gmd.journal_segments import Checkpoint, Segment, SegmentHead, count, joined, text_of

HEAD = SegmentHead(1 << 63, 2, 3, bytes(range(16)), 5, 96)


def test_heads() -> None:
    data = HEAD.pack()
    assert SegmentHead.unpack(data) == HEAD
    assert HEAD.numbers_end == 6
    assert SegmentHead.unpack(data[:63]) is None
    assert SegmentHead.unpack(data[:5] + b"x" + data[6:]) is None


def test_checkpoints() -> None:
    state = Checkpoint(50, [Segment(1, 2, 3), Segment(4, 5, 6)], [(1, 2), (9, 50)], [(4, 4)])
    body = state.pack()
    assert Checkpoint.unpack(body) == state
    assert Checkpoint.unpack(Checkpoint(0, [], [], []).pack()) == Checkpoint(0, [], [], [])
    assert Checkpoint.unpack(body[:-1]) is None
    assert Checkpoint.unpack(body[:10]) is None
    for wrong in ([(2, 1)], [(0, 1)], [(3, 4), (4, 5)], [(1, 51)]):
        assert Checkpoint.unpack(state._replace(unreleased=wrong).pack()) is None


def test_runs() -> None:
    assert joined([(7, 9), (1, 2), (3, 3), (8, 12), (20, 20)]) == [(1, 3), (7, 12), (20, 20)]
    assert count([(1, 3), (7, 7)]) == 4
    assert text_of([(1, 3), (7, 7)]) == "1 to 3, 7"
    assert text_of([(1, 1), (3, 3), (5, 5)], 2) == "1, 3 and 1 more ranges"
