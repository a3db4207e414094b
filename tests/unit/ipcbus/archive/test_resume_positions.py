"""What a recorder finds out about the one before it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ipcbus.archive import Archive, resume_positions
from ipcbus.archive.archive_layout import TYPE_LOSS_DAMAGE, TYPE_LOSS_RECORDER
from ipcbus.archive.resume_positions import read_resume_positions
from tests.kit.archives import Watch, made

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ipcbus.archive import Log, LogWriter

BOS, EOS, LOSS = 20, 1, 4


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[LogWriter]:
    """Of an empty log."""
    with Archive.create(tmp_path).writer("s") as opened:
        yield opened


def add(writer: LogWriter, topic: str, source: str, last: int, kind: int = 0, numbers: int = 1) -> None:
    """One row."""
    rows, _ = made([b""], topic=writer.topic(topic), session=writer.session(source), first=last, type=kind)
    rows["numbers"] = numbers
    writer.append(rows, b"")


def numbers(log: Log, *rows: int) -> dict[tuple[str, str], int]:
    """The positions without their times."""
    return {key: number for key, (number, _) in read_resume_positions(log, *rows).items()}


def test_an_empty_log_tells_nothing(writer: LogWriter) -> None:
    assert numbers(writer.log) == {}


def test_the_last_number_of_each_topic_of_each_session(writer: LogWriter) -> None:
    add(writer, "a", "x", -1, BOS, 0)
    add(writer, "a", "x", 0)
    add(writer, "b", "x", 7, LOSS, 3)
    add(writer, "a", "y", 100)
    add(writer, "a", "x", 5, TYPE_LOSS_RECORDER, 5)
    add(writer, "c", "y", -1, BOS, 0)
    assert numbers(writer.log) == {("a", "x"): 6, ("b", "x"): 8, ("a", "y"): 101}


def test_a_position_has_the_time_of_its_row(writer: LogWriter) -> None:
    rows, data = made([b"", b""], topic=writer.topic("a"), session=writer.session("x"), first=3, time_ns=70)
    writer.append(rows, data)
    assert read_resume_positions(writer.log) == {("a", "x"): (5, 71)}


def test_what_has_ended_is_over_until_it_begins_again(writer: LogWriter) -> None:
    for topic in ("a", "b"):
        add(writer, topic, "x", 9)
        add(writer, topic, "x", -1, EOS, 0)
    add(writer, "b", "x", -1, BOS, 0)
    add(writer, "b", "x", 3)
    assert numbers(writer.log) == {("b", "x"): 4}


def test_what_a_repair_took_out_is_nobodys(writer: LogWriter) -> None:
    rows, _ = made([b""], first=9, type=TYPE_LOSS_DAMAGE)
    writer.append(rows, b"")
    assert numbers(writer.log) == {}


@pytest.mark.parametrize("step", [1, 2, 3, 100])
def test_only_the_last_rows_are_looked_at(writer: LogWriter, step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resume_positions, "_STEP", step)
    add(writer, "old", "x", 9)
    for number in range(4):
        add(writer, "a", "x", number)
        add(writer, "b", "x", number)
    assert numbers(writer.log) == {("old", "x"): 10, ("a", "x"): 4, ("b", "x"): 4}
    assert numbers(writer.log, 3) == {("a", "x"): 4, ("b", "x"): 4}


def test_rows_that_name_no_topic_or_session_tell_nothing(writer: LogWriter) -> None:
    add(writer, "a", "x", 1)
    for topic, session in ((0, 0), (0, writer.session("x")), (writer.topic("a"), 0)):
        rows, _ = made([b""], topic=topic, session=session, first=9)
        rows["numbers"] = 1
        writer.append(rows, b"")
    assert numbers(writer.log) == {("a", "x"): 2}


def test_only_rows_are_read(writer: LogWriter, monkeypatch: pytest.MonkeyPatch) -> None:
    rows, data = made([bytes(1000)] * 3, topic=writer.topic("a"), session=writer.session("x"))
    writer.append(rows, data)
    watch = Watch(monkeypatch)
    assert numbers(writer.log) == {("a", "x"): 3}
    assert ".dat" not in watch.suffixes


def test_damage_is_left_out(writer: LogWriter, tmp_path: Path) -> None:
    add(writer, "a", "x", 1)
    writer.roll()
    add(writer, "a", "x", 2)
    damaged = sorted(tmp_path.rglob("*.blk"))[1]
    damaged.write_bytes(bytes(damaged.stat().st_size))
    assert numbers(writer.log) == {("a", "x"): 2}
