"""What a recorder finds out about the one before it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ipcbus.archive import Archive, resume_positions
from ipcbus.archive.archive_layout import AGAIN_NS, CLOCK_SKEW_MAX_NS, TYPE_LOSS_DAMAGE, TYPE_LOSS_RECORDER
from ipcbus.archive.resume_positions import ResumePosition, read_resume_positions
from tests.kit.archives import Watch, made
from tests.kit.cases import each_of

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
    """The numbers of the positions alone."""
    return {key: position.following for key, position in read_resume_positions(log, *rows).items()}


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


def test_a_position_has_the_send_time_of_its_row(writer: LogWriter) -> None:
    rows, data = made([b"", b""], topic=writer.topic("a"), session=writer.session("x"), first=3)
    rows["send_ns"] = 60, 70
    writer.append(rows, data)
    assert read_resume_positions(writer.log) == {("a", "x"): ResumePosition(5, 70 + AGAIN_NS, frozenset())}


@pytest.mark.parametrize(("source", "skew_ns"), [("LBT-IPC:1:1", 0), ("LBT-RU:127.0.0.1:1:1", CLOCK_SKEW_MAX_NS)])
def test_after_a_loss_a_position_has_the_receive_time_by_the_clock_of_the_source(
    writer: LogWriter, source: str, skew_ns: int
) -> None:
    add(writer, "a", source, 8, LOSS, 3)
    (position,) = read_resume_positions(writer.log).values()
    (chunk,) = writer.log.read(0, 1)
    assert position.until_ns == chunk.rows["receive_ns"][0] + skew_ns


def test_a_position_has_the_numbers_of_the_topic(writer: LogWriter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resume_positions, "_STEP", 2)
    for number in (7, 3, 7):
        add(writer, "a", "x", -2 - number, BOS, 0)
        add(writer, "a", "x", 1)
    add(writer, "b", "x", -1, BOS, 0)
    add(writer, "b", "x", 1)
    found = read_resume_positions(writer.log)
    assert [found[topic, "x"].topic_numbers for topic in "ab"] == [{3, 7}, {-1}]


@each_of(
    ("recorded", "number", "goes_on"),
    [
        ([7], 7, "surely"),
        ([7], 8, "again"),
        ([3, 7], 8, "again"),
        ([3, 7], 7, "by time"),
        ([], 7, "by time"),
        ([-1], 7, "by time"),
        ([-1, 7], 8, "by time"),
        ([7], -1, "by time"),
        ([-1], -1, "by time"),
    ],
)
def test_where_a_topic_goes_on(recorded: list[int], number: int, goes_on: str) -> None:
    found = ResumePosition(5, 99, frozenset(recorded)).of(number)
    assert found == {"surely": (5, (1 << 63) - 1), "again": (0, 0), "by time": (5, 99)}[goes_on]


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
