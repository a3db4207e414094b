"""An archive as history: which rows are found, in how many steps, and what damage costs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ipcbus import MessageType
from ipcbus.archive import Archive, Log, block_steps, recorded_history, recorded_topics
from ipcbus.archive.archive_layout import TYPE_LOSS_RECORDER
from ipcbus.archive.recorded_history import RecordedHistory, RecordedTopic
from ipcbus.embedding import NUMBER_MAX
from tests.kit.archives import lose_in_power_loss, made
from tests.kit.retaining import kept

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ipcbus.archive import LogWriter
    from ipcbus.embedding import OlderPiece

SECOND = 1_000_000_000
NUMBER = 7


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[LogWriter]:
    """Of an empty log."""
    with Archive.create(tmp_path).writer("s") as opened:
        yield opened


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A log is looked at each time, and no recorder is given time."""
    monkeypatch.setattr(recorded_history, "_LOOK_S", 0)
    monkeypatch.setattr(recorded_history, "_PATIENCE_S", 0)
    monkeypatch.setattr(recorded_history, "_BEHIND_S", 0)


def add(writer: LogWriter, first: int, count: int, *, source: str = "x", topic: str = "a", sent_ns: int = 0) -> None:
    """Some messages, which hold their numbers."""
    values = [str(first + number).encode() for number in range(count)]
    rows, data = made(values, topic=writer.topic(topic), session=writer.session(source), first=first)
    rows["send_ns"] = sent_ns + rows["sequence"]
    writer.append(rows, data)


def begun(found: RecordedTopic, next_sequence: int = 1 << 40, wanted: int = 0) -> int:
    """Searches to the end; returns the first number."""
    while (first := found.begin(next_sequence, wanted)) is None:
        pass
    return first


def all_from(found: RecordedTopic, first: int) -> list[int]:
    """Reads to the end; returns the numbers, and checks what the messages hold."""
    got: list[int] = []
    while True:
        piece = found.read(first, NUMBER_MAX)
        if piece is None:
            continue
        if piece.first == NUMBER_MAX:
            return got
        for each in kept(piece.entries):
            assert int(each.payload) == each.sequence
            assert each.topic == NUMBER
            got.append(each.sequence)
        if piece.messages:
            assert got[-1] == piece.last == piece.first + piece.messages - 1
        first = max(first, piece.first if not piece.messages else piece.last + 1)


@pytest.mark.parametrize("size", [1, 100, 1 << 20])
def test_only_rows_of_the_topic_and_session_come(
    writer: LogWriter, tmp_path: Path, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorded_history, "_MESSAGES", 2)
    monkeypatch.setattr(block_steps, "_BYTES", size)
    add(writer, 0, 5, source="other")
    add(writer, 4, 3)
    add(writer, 0, 5, topic="b")
    add(writer, 7, 2)
    writer.roll()
    add(writer, 12, 2)
    found = RecordedHistory(str(tmp_path)).of("a", "x", NUMBER)
    assert begun(found) == 4
    assert all_from(found, 4) == [4, 5, 6, 7, 8, 12, 13]
    assert found.faults == 0


@pytest.mark.parametrize("wanted", [0, 50, 99])
def test_what_is_not_wanted_is_not_read(
    writer: LogWriter, tmp_path: Path, wanted: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(block_steps, "_BYTES", 1)
    for first in range(0, 100, 10):
        add(writer, first, 10)
    found = RecordedHistory(str(tmp_path)).of("a", "x", NUMBER)
    assert begun(found, wanted=wanted) == 0
    assert found.logs[0]._reader.offset == wanted // 10 * 10
    assert all_from(found, wanted) == list(range(wanted, 100))


def test_messages_that_come_later_are_found(writer: LogWriter, tmp_path: Path) -> None:
    add(writer, 0, 3)
    found = RecordedHistory(str(tmp_path)).of("a", "x", NUMBER)
    begun(found)
    assert all_from(found, 0) == [0, 1, 2]
    add(writer, 3, 3)
    assert all_from(found, 3) == [3, 4, 5]
    piece = found.read(6, NUMBER_MAX)
    assert piece is not None
    assert piece.grows


def lose(writer: LogWriter, last: int, numbers: int, kind: int = TYPE_LOSS_RECORDER, topic: str = "a") -> None:
    """A row of a loss."""
    rows, _ = made([b""], topic=writer.topic(topic), session=writer.session("x"), first=last, type=kind)
    rows["numbers"] = numbers
    writer.append(rows, b"")


def look(found: RecordedTopic, first: int) -> OlderPiece:
    """What it has from a number on, when it has searched."""
    while (piece := found.read(first, NUMBER_MAX)) is None:
        pass
    return piece


def began(writer: LogWriter, number: int) -> None:
    """The row that says which number the topic has in its session from now on."""
    lose(writer, -2 - number, 0, kind=20)


@pytest.mark.parametrize("kind", [TYPE_LOSS_RECORDER, 4, 5])
def test_what_a_recorder_that_still_writes_has_lost_is_not_waited_for(
    writer: LogWriter, tmp_path: Path, kind: int
) -> None:
    add(writer, 0, 5)
    lose(writer, 9, 5, kind)
    lose(writer, 99, 50, topic="b")
    found = RecordedHistory(str(tmp_path)).of("a", "x", NUMBER)
    begun(found)
    assert all(look(found, first).first == 10 for first in range(5, 10))
    assert (look(found, 10).first, look(found, 10).grows) == (NUMBER_MAX, True)
    add(writer, 10, 2)
    assert all_from(found, 10) == [10, 11]


def test_what_one_recorder_has_lost_another_one_may_bring(writer: LogWriter, tmp_path: Path) -> None:
    with Archive(tmp_path).writer("other") as other:
        for each in (writer, other):
            add(each, 0, 5)
        lose(writer, 9, 5)
        found = RecordedHistory(str(tmp_path)).of("a", "x", NUMBER)
        begun(found)
        assert look(found, 5).first == NUMBER_MAX
        lose(other, 7, 3)
        assert look(found, 5).first == 8


def test_a_loss_of_a_topic_before_it_began_again_says_nothing(writer: LogWriter, tmp_path: Path) -> None:
    add(writer, 0, 5)
    lose(writer, 9, 5)
    began(writer, NUMBER)
    add(writer, 0, 2, sent_ns=SECOND)
    found = RecordedHistory(str(tmp_path)).of("a", "x", NUMBER)
    begun(found)
    assert look(found, 2).first == NUMBER_MAX


def event(writer: LogWriter, kind: int, topic: str = "a") -> None:
    """A row of a beginning or an end."""
    lose(writer, -1, 0, kind, topic)


@pytest.mark.parametrize("silent_s", [0, 3600])
@pytest.mark.parametrize("kind", [MessageType.BOS, MessageType.EOS], ids=["BOS", "EOS"])
def test_a_recorder_that_has_nothing_after_the_beginning_or_end_of_the_topic_is_waited_for_shortly(
    writer: LogWriter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, silent_s: float, kind: int
) -> None:
    """It may have joined the topic just now, or join it again after an eviction."""
    monkeypatch.setattr(recorded_history, "_SILENT_S", silent_s)
    recorded_topics.note(Archive(tmp_path), "s", ["a"], pattern=False, flush_s=0)
    add(writer, 0, 5)
    found = RecordedHistory(str(tmp_path)).of("a", "x", NUMBER)
    begun(found)
    event(writer, kind, "b")
    assert look(found, 5).grows
    event(writer, kind)
    assert look(found, 5).grows == (silent_s > 0)
    add(writer, 10, 1)
    assert all_from(found, 5) == [10]
    assert look(found, 11).grows


def test_a_step_reads_a_bounded_part_and_returns_a_bounded_number(
    writer: LogWriter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of blocks that are much larger, of many small messages and of few large ones."""
    add(writer, 0, 50_000)
    rows, data = made([bytes(100_000)] * 30, topic=writer.topic("a"), session=writer.session("x"), first=50_000)
    writer.append(rows, data)
    counted: list[int] = []
    real = Log.read_bytes

    def read_bytes(log: Log, base: int, suffix: str, at: int, size: int) -> bytes:
        counted.append(size)
        return real(log, base, suffix, at, size)

    monkeypatch.setattr(Log, "read_bytes", read_bytes)
    found = RecordedHistory(str(tmp_path)).of("a", "x", NUMBER)
    while found.begin(1 << 40, 0) is None:
        assert sum(counted) <= block_steps._BYTES
        counted.clear()
    first = 0
    while first < 50_030:
        piece = found.read(first, NUMBER_MAX)
        assert sum(counted) <= block_steps._BYTES
        counted.clear()
        if piece is not None:
            assert 1 <= piece.messages <= 256
            assert len(piece.entries) <= (256 << 10) + 64 * 256
            first = piece.last + 1


def test_without_a_search_only_what_is_recorded_later_is_read(writer: LogWriter, tmp_path: Path) -> None:
    add(writer, 0, 3)
    found = RecordedHistory(str(tmp_path)).of("a", "x", NUMBER)
    searched(found)
    assert all_from(found, 0) == []
    add(writer, 3, 3)
    assert all_from(found, 0) == [3, 4, 5]


def searched(found: RecordedTopic) -> None:
    """Reads until the topic number of what is recorded next is known; until then the source is asked."""
    while any(log._search.offset < log._search_end for log in found.logs):
        assert found.read(0, NUMBER_MAX) == (NUMBER_MAX, -1, 0, b"", True)


@pytest.mark.parametrize("searches", [False, True])
@pytest.mark.parametrize("blocks", [False, True])
def test_what_is_recorded_later_of_the_topic_before_it_began_again_does_not_come(
    writer: LogWriter, tmp_path: Path, searches: bool, blocks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The recorder is behind: the topic of the receiver has begun, but its beginning is not recorded yet."""
    monkeypatch.setattr(block_steps, "_BYTES", 1 if blocks else 1 << 20)
    began(writer, NUMBER - 1)
    add(writer, 0, 50)
    found = RecordedHistory(str(tmp_path)).of("a", "x", NUMBER)
    if searches:
        assert begun(found) == NUMBER_MAX
    else:
        searched(found)
    add(writer, 50, 50)
    assert all_from(found, 0) == []
    began(writer, NUMBER)
    add(writer, 30, 5)
    assert all_from(found, 0) == [30, 31, 32, 33, 34]
    began(writer, NUMBER + 1)
    add(writer, 35, 5)
    assert all_from(found, 35) == []


@pytest.mark.parametrize("blocks", [False, True])
@pytest.mark.parametrize(("first", "count"), [(0, 20), (10, 20), (60, 20)])
def test_a_topic_that_began_again_at_once_is_found_alone(
    writer: LogWriter, tmp_path: Path, blocks: bool, first: int, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its first message follows the last one of the topic before within no time, and it has fewer, or others."""
    monkeypatch.setattr(block_steps, "_BYTES", 1 if blocks else 1 << 20)
    began(writer, NUMBER - 1)
    add(writer, 0, 50)
    began(writer, NUMBER)
    add(writer, first, count)
    found = RecordedHistory(str(tmp_path)).of("a", "x", NUMBER)
    began(writer, NUMBER + 1)
    add(writer, 0, 100)
    assert begun(found, first + count) == first
    assert all_from(found, 0) == list(range(first, first + count))


def test_the_beginning_is_waited_for_while_a_recorder_has_only_an_earlier_topic(
    writer: LogWriter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorded_history, "_BEHIND_S", 3600)
    monkeypatch.setattr(recorded_history, "_PATIENCE_S", 3600)
    began(writer, NUMBER - 1)
    add(writer, 0, 50)
    found = RecordedHistory(str(tmp_path)).of("a", "x", NUMBER)
    for _ in range(100):
        assert found.begin(5, 0) is None
    add(writer, 50, 10)
    for _ in range(100):
        assert found.begin(5, 0) is None
    began(writer, NUMBER)
    add(writer, 3, 7)  # more than the source had when it was asked
    assert begun(found, 5) == 3
    assert all_from(found, 0) == [3, 4, 5, 6, 7, 8, 9]


def test_rows_that_were_recorded_twice_come_once(writer: LogWriter, tmp_path: Path) -> None:
    add(writer, 0, 5)
    add(writer, 2, 6)
    found = RecordedHistory(str(tmp_path)).of("a", "x", NUMBER)
    assert begun(found) == 0
    assert all_from(found, 0) == list(range(8))


def test_a_topic_that_began_again_is_found_alone(writer: LogWriter, tmp_path: Path) -> None:
    add(writer, 0, 50)
    add(writer, 0, 20, sent_ns=SECOND)
    found = RecordedHistory(str(tmp_path)).of("a", "x", NUMBER)
    assert begun(found) == 0
    assert found.logs[0].found.last == 19


def test_numbers_that_the_source_has_not_reached_are_of_another_source(writer: LogWriter, tmp_path: Path) -> None:
    add(writer, 0, 50)
    assert begun(RecordedHistory(str(tmp_path)).of("a", "x", NUMBER), 49) == NUMBER_MAX
    assert begun(RecordedHistory(str(tmp_path)).of("a", "x", NUMBER), 50) == 0


def test_a_session_that_is_not_recorded_has_nothing(writer: LogWriter, tmp_path: Path) -> None:
    add(writer, 0, 50)
    for topic, source in (("a", "y"), ("b", "x")):
        found = RecordedHistory(str(tmp_path)).of(topic, source, NUMBER)
        assert begun(found) == NUMBER_MAX
        assert all_from(found, 0) == []


@pytest.mark.parametrize("suffix", ["idx", "blk", "dat"])
def test_damage_costs_its_rows_and_is_counted_and_logged(
    writer: LogWriter, tmp_path: Path, suffix: str, caplog: pytest.LogCaptureFixture
) -> None:
    for first in (0, 10, 20):
        add(writer, first, 10)
        writer.roll()
    file = sorted(tmp_path.rglob(f"*.{suffix}"))[1]
    file.write_bytes(b"\xff" * file.stat().st_size)
    found = RecordedHistory(str(tmp_path)).of("a", "x", NUMBER)
    begun(found)
    assert all_from(found, 0) == [*range(10), *range(20, 30)]
    assert found.faults > 0
    assert "archive verify" in caplog.text


def test_a_hole_is_not_a_fault(writer: LogWriter, tmp_path: Path) -> None:
    for first in (0, 10, 20):
        add(writer, first, 10)
        writer.roll()
    lose_in_power_loss(writer.log.folder, 10, 20)
    found = RecordedHistory(str(tmp_path)).of("a", "x", NUMBER)
    begun(found)
    assert all_from(found, 0) == [*range(10), *range(20, 30)]
    assert found.faults == 0


def test_a_watermark_that_is_damaged_ends_it(writer: LogWriter, tmp_path: Path) -> None:
    add(writer, 0, 10)
    found = RecordedHistory(str(tmp_path)).of("a", "x", NUMBER)
    begun(found)
    (file,) = tmp_path.rglob("watermark")
    file.write_bytes(bytes(file.stat().st_size))
    assert all_from(found, 0) == []
    assert found.faults > 0
    again = RecordedHistory(str(tmp_path)).of("a", "x", NUMBER)
    assert begun(again) == NUMBER_MAX
    assert again.faults > 0
