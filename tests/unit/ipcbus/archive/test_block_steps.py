"""Blocks are read in steps: whole, checked, and each once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from ipcbus.archive import Archive, block_steps
from ipcbus.archive.archive_layout import ROW
from ipcbus.archive.block_steps import BlockSteps
from tests.kit.archives import made

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ipcbus.archive import LogWriter


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[LogWriter]:
    """Of an empty log."""
    with Archive.create(tmp_path).writer("s") as opened:
        yield opened


def add(writer: LogWriter, first: int, count: int) -> None:
    """A block of messages, which hold their numbers."""
    values = [str(first + number).encode() for number in range(count)]
    writer.append(*made(values, topic=writer.topic("a"), session=writer.session("x"), first=first))


def read(writer: LogWriter, start: int = 0, wants: bool = True) -> tuple[list[int], list[str], int]:
    """Numbers that come, faults, and how many parts they come in; checks where the messages lie."""
    faults: list[str] = []
    steps = BlockSteps(writer.log, start, (lambda rows, offset: True) if wants else None, faults.append)
    end, got, parts = writer.log.bounds()[1], [], 0
    while steps.offset < end:
        found = steps.step(end)
        if found is None:
            continue
        parts += 1
        rows = np.frombuffer(bytes(found.rows), ROW)
        for row in rows.tolist() if wants else ():
            begin = row[0] - found.position
            assert int(bytes(found.data)[begin : begin + row[1]]) == row[8]
        got += rows["sequence"].tolist()
    return got, faults, parts


@pytest.mark.parametrize("size", [1, 1000, 1 << 20])
@pytest.mark.parametrize("wants", [True, False])
def test_all_blocks_come_once(writer: LogWriter, monkeypatch: pytest.MonkeyPatch, size: int, wants: bool) -> None:
    monkeypatch.setattr(block_steps, "_BYTES", size)
    for first in range(0, 100, 10):
        add(writer, first, 10)
        if first == 50:
            writer.roll()
    got, faults, parts = read(writer, wants=wants)
    assert (got, faults) == (list(range(100)), [])
    assert parts == (2 if size == 1 << 20 else 10 if size == 1 else parts)


def test_it_begins_with_the_block_that_holds_an_offset(writer: LogWriter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(block_steps, "_BYTES", 1)
    for first in (0, 10, 20):
        add(writer, first, 10)
    assert read(writer, 15)[0] == list(range(10, 30))


@pytest.mark.parametrize("suffix", ["idx", "dat", "blk"])
def test_of_blocks_that_are_read_together_only_the_damaged_one_is_left_out(
    writer: LogWriter, tmp_path: Path, suffix: str
) -> None:
    for first in (0, 10, 20):
        add(writer, first, 10)
    (file,) = tmp_path.rglob(f"*.{suffix}")
    raw = bytearray(file.read_bytes())
    raw[len(raw) // 2] ^= 1
    file.write_bytes(raw)
    got, faults, _ = read(writer)
    assert got == [*range(10), *range(20, 30)]
    assert len(faults) == 1
    assert faults[0].startswith("rows 10 to 19: ")


def test_a_segment_that_retention_removes_meanwhile_is_left_out_silently(writer: LogWriter, tmp_path: Path) -> None:
    add(writer, 0, 10)
    writer.roll()
    add(writer, 10, 10)
    faults: list[str] = []
    steps = BlockSteps(writer.log, 0, lambda rows, offset: True, faults.append)
    assert steps.step(20) is None
    for file in tmp_path.rglob("*00000.*"):
        if file.stem == "0" * 20:
            file.unlink()
    got = []
    while steps.offset < 20:
        if (found := steps.step(20)) is not None:
            got.append(found.offset)
    assert (got, faults) == ([10], [])
