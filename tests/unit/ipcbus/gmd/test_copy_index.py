"""Where copies are."""

from __future__ import annotations

import random

import pytest

from ipcbus.gmd.copy_index import CopyIndex


def test_places_and_runs() -> None:
    index = CopyIndex()
    index.expect(1, 3)
    index.expect(7, 8)
    assert (index.count, index.bytes, index.missing()) == (5, 0, [(1, 3), (7, 8)])
    assert index.place(2, 4, 64, 56, 1)
    assert index.place(7, 4, 120, 64, 2)
    assert not index.place(5, 4, 184, 64, 2)
    assert index.where(2) == (4, 64, 56, 1)
    assert index.where(5) is None
    assert (index.bytes, index.segment_bytes, index.missing()) == (120, {4: 120}, [(1, 1), (3, 3), (8, 8)])
    assert index.release(3, 7) == 2
    assert index.segment_bytes == {4: 56}
    assert index.unreleased() == [(1, 2), (8, 8)]
    assert index.in_segment(4) == [2]
    assert index.modes() == [(2, 1), (8, 0)]
    assert index.place(2, 9, 8, 100, 1)
    assert index.segment_bytes == {4: 0, 9: 100}


@pytest.mark.parametrize("seed", range(5))
def test_it_agrees_with_a_dictionary(seed: int) -> None:
    rng = random.Random(seed)
    index, model, last = CopyIndex(), {}, 0
    for _ in range(2000):
        if rng.random() < 0.6:
            first = last + rng.choice((1, 1, 1, 50))
            last = first + rng.choice((0, 0, 3))
            index.expect(first, last)
            for number in range(first, last + 1):
                place = (rng.randint(1, 5), 8 * rng.randint(0, 1 << 20), rng.randint(48, 5000), rng.randint(1, 2))
                assert index.place(number, *place)
                model[number] = place
        else:
            first = rng.randint(0, last + 5)
            until = first + rng.choice((0, 3, 100))
            gone = [number for number in range(first, until + 1) if model.pop(number, None)]
            assert index.release(first, until) == len(gone)
    assert index.count == len(model)
    assert index.bytes == sum(length for _, _, length, _ in model.values())
    assert [n for first, until in index.unreleased() for n in range(first, until + 1)] == list(model)
    assert all(index.where(number) == model.get(number) for number in range(last + 5))
    for serial in range(1, 6):
        there = [number for number in model if model[number][0] == serial]
        assert index.in_segment(serial) == there
        assert index.segment_bytes.get(serial, 0) == sum(model[number][2] for number in there)
