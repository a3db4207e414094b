"""The offsets that a log lost: holes are merged, and each lost offset has one reason."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipcbus.archive import json_files, removed_offsets
from ipcbus.archive.archive_layout import FORMAT
from ipcbus.archive.removed_offsets import RemovedOffsets
from ipcbus.storage.files import Disk

if TYPE_CHECKING:
    from pathlib import Path

SPANS = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), max_size=6)


def test_the_first_list_of_a_log_takes_a_gap_at_its_begin_as_removed() -> None:
    assert RemovedOffsets.of([(0, 5), (7, 9)]) == RemovedOffsets(5, ((7, 9),))
    assert RemovedOffsets.of([(1, 5)]) == RemovedOffsets(0, ((1, 5),))
    assert RemovedOffsets.of([]) == RemovedOffsets()


def test_removing_covers_holes_and_never_goes_back() -> None:
    gone = RemovedOffsets(0, ((2, 4), (6, 8)))
    assert gone.removed(7) == RemovedOffsets(7, ((7, 8),))
    assert gone.removed(7).kept == 8
    assert gone.removed(7).removed(3) == gone.removed(7)


@given(st.integers(0, 40), SPANS, st.integers(0, 40), st.integers(0, 40))
def test_each_offset_has_the_reason_of_its_place(first: int, spans: list[tuple[int, int]], low: int, high: int) -> None:
    begin, end = sorted((low, high))
    gone = RemovedOffsets(first).with_holes(spans)
    assert all(one[1] < other[0] for one, other in zip(gone.holes, gone.holes[1:], strict=False))
    found = [(offset, why) for low, high, why in gone.why(begin, end) for offset in range(low, high)]
    holes = {offset for low, high in spans for offset in range(low, high)}
    assert found == [
        (offset, "retention" if offset < first else "hole" if offset in holes else "damage")
        for offset in range(begin, end)
    ]


def test_a_saved_list_is_loaded(tmp_path: Path) -> None:
    gone = RemovedOffsets(3, ((5, 7), (9, 12)))
    assert removed_offsets.load(Disk(), tmp_path) is None
    removed_offsets.save(Disk(), tmp_path, gone)
    assert removed_offsets.load(Disk(), tmp_path) == gone


@pytest.mark.parametrize(
    "wrong", [{"format": 999}, {"first": -1}, {"holes": 7}, {"holes": [7]}, {"holes": [[1]]}, {"holes": [[1, -2]]}]
)
def test_a_list_that_no_writer_wrote_is_not_believed(tmp_path: Path, wrong: dict[str, object]) -> None:
    found: dict[str, object] = {"first": 0, "format": FORMAT, "holes": []}
    (tmp_path / removed_offsets.NAME).write_bytes(json_files.pack(found | wrong))
    assert removed_offsets.load(Disk(), tmp_path) is None
