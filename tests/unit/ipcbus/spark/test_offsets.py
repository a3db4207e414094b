from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipcbus.errors import ArchiveError, ArchiveMissing
from ipcbus.spark.offsets import Offsets

if TYPE_CHECKING:
    import random

KEYS = st.text(st.characters(codec="utf-8"), min_size=1, max_size=8)
NUMBERS = st.integers(0, 2**63 - 1)
MAPS = st.dictionaries(KEYS, NUMBERS, max_size=5)
OFFSETS = st.builds(
    Offsets,
    st.just("a" * 32),
    MAPS,
    is_first=st.booleans(),
    begun=st.none() | MAPS,
    skip=st.dictionaries(KEYS, st.dictionaries(KEYS, NUMBERS, min_size=1, max_size=3), max_size=3),
)


def test_form() -> None:
    offsets = Offsets("a1", {"h/1": 7, "g/0": 5})
    assert json.dumps(offsets.to_json(), separators=(",", ":")) == '{"archive":"a1","o":{"g/0":5,"h/1":7},"v":1}'


@given(OFFSETS)
def test_comes_back_from_json(offsets: Offsets) -> None:
    written = json.dumps(offsets.to_json())
    again = Offsets.parse(json.loads(written), offsets.archive)
    assert again == offsets
    assert json.dumps(again.to_json()) == written


@given(OFFSETS, st.randoms(use_true_random=False))
def test_equal_offsets_are_equal_to_the_letter(offsets: Offsets, shuffle: random.Random) -> None:
    items = list(offsets.next.items())
    shuffle.shuffle(items)
    other = Offsets(offsets.archive, dict(items), offsets.is_first, offsets.begun, dict(reversed(offsets.skip.items())))
    assert json.dumps(other.to_json()) == json.dumps(offsets.to_json())


def test_numbers_of_numpy_do_not_leak() -> None:
    five: Any = np.int64(5)
    one: Any = np.uint64(1)
    written = Offsets("a", {"h/0": five}, begun={"h/0": one}, skip={"h/0": {"t": five}}).to_json()
    assert (
        json.dumps(written)
        == '{"archive": "a", "from": {"h/0": 1}, "o": {"h/0": 5}, "skip": {"h/0": {"t": 5}}, "v": 1}'
    )


def test_another_archive() -> None:
    with pytest.raises(ArchiveMissing, match="offsets are of archive 'b', but option archive leads to 'a'"):
        Offsets.parse(Offsets("b", {}).to_json(), "a")


@pytest.mark.parametrize(
    "found",
    [
        None,
        [],
        {},
        {"o": {}, "v": 1},
        {"archive": "a", "o": {}, "v": 2},
        {"archive": "a", "o": {}, "v": 1, "x": 0},
        {"archive": "a", "o": [], "v": 1},
        {"archive": "a", "o": {"h/0": -1}, "v": 1},
        {"archive": "a", "o": {"h/0": 1.0}, "v": 1},
        {"archive": "a", "o": {"h/0": True}, "v": 1},
        {"archive": "a", "o": {"h/0": "1"}, "v": 1},
        {"archive": "a", "o": {"h/0": 2**63}, "v": 1},
        {"archive": "a", "o": {}, "v": 1, "from": 1},
        {"archive": "a", "o": {}, "v": 1, "skip": 1},
        {"archive": "a", "o": {}, "v": 1, "skip": {"h/0": 1}},
        {"archive": "a", "o": {"x" * 1000: None}, "v": 1},
    ],
)
def test_what_is_no_offset(found: object) -> None:
    with pytest.raises(ArchiveError, match="is not an offset of the data source ipcbus") as caught:
        Offsets.parse(found, "a")
    assert len(str(caught.value)) < 500
