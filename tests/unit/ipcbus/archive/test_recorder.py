"""The recorder in one process: what it takes, what it says, how it begins and ends."""

from __future__ import annotations

import functools
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

import ipcbus
from ipcbus import ArchiveLocked, ConfigError, IpcBusError, stats
from ipcbus.archive import Archive, Limits
from ipcbus.archive.archive_layout import TYPE_LOSS_RECORDER
from ipcbus.archive.record_buffer import RecordBuffer
from ipcbus.archive.recorder import Recorder, union
from tests.kit.cases import each_of
from tests.kit.recording import accounted, losses, messages, rows_of, values, written
from tests.kit.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

BOS, EOS = 20, 1
SMALL = 1 << 17


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    """An empty one."""
    return Archive.create(tmp_path / "archive")


@pytest.fixture
def context(domain: str) -> Iterator[ipcbus.Context]:
    """Sends and records."""
    with ipcbus.Context(domain=domain) as made:
        yield made


def readable(archive: Archive, count: int) -> None:
    """Waits until so many messages can be read."""
    until(lambda: len(messages(rows_of(archive))) == count, f"{count} messages")


def ended(recorder: Recorder) -> None:
    """Waits until each session is recorded from BOS over one message to EOS."""
    until(lambda: recorder.stats.next_offset % 3 == 0 < recorder.stats.next_offset, "the end")


def test_everything_of_a_topic_is_recorded(context: ipcbus.Context, archive: Archive) -> None:
    source, other = context.source("t"), context.source("u")
    with Recorder(context, archive, ["t", "t"]) as recorder:
        source.wait_for_receivers(1, 30)
        source.send(b"one", headers=[("key", b"k"), ("key", b"")])
        other.send(b"not wanted")
        source.send(b"")
        source.send(bytes(100_000), flush=True)
        source.close()
        until(lambda: recorder.stats.messages == 3 and recorder.stats.next_offset == 5, "all rows")
        found = recorder.stats
    assert found.state == "recording"
    assert (found.bytes, found.losses, found.dropped, found.errors, found.behind_ns) == (100_003 + 15, 0, 0, 0, 0)
    assert recorder.stats.state == "closed"
    rows = rows_of(archive)
    assert [row.type for row in rows] == [BOS, 0, 0, 0, EOS]
    assert values(rows) == [b"one", b"", bytes(100_000)]
    assert [len(row.block) for row in rows] == [0, 15, 0, 0, 0]
    assert {row.source for row in rows} == {source.source}


def test_topics_of_several_patterns_are_recorded_once(context: ipcbus.Context, archive: Archive) -> None:
    sources = [context.source(topic) for topic in ("quotes.A", "quotes.B", "trades.A", "news")]
    with Recorder(context, archive, [r"quotes\..*", r".*\.A"], pattern=True, stream="desk") as recorder:
        for source in sources[:3]:
            source.wait_for_receivers(1, 30)
        for source in sources:
            source.send(source.topic.encode(), flush=True)
        written(recorder, 3)
    assert sorted(row.value for row in messages(rows_of(archive))) == [b"quotes.A", b"quotes.B", b"trades.A"]
    assert [log.key for log in archive.logs()] == ["desk/0"]


@each_of("patterns", [["("], [r"(a)\1", "b"], ["(?P<n>a)", "(?P<n>b)"], ["a", "(?i)b"]])
def test_patterns_that_cannot_be_put_together_are_refused(patterns: list[str]) -> None:
    with pytest.raises(ConfigError, match="regular expression|do not work together"):
        union(patterns)


def test_one_pattern_stays_as_it_is() -> None:
    assert union([r"(?i)(a)\1"]) == r"(?i)(a)\1"


@pytest.mark.parametrize(
    "options",
    [
        {"when_full": "lose"},
        {"buffer_bytes": SMALL - 1},
        {"buffer_bytes": 99_999_999 << 40},
        {"flush_seconds": 0},
        {"flush_seconds": float("nan")},
        {"topics": []},
        {"topics": "t"},
        {"topics": [""]},
        {"stream": "a/b"},
    ],
)
def test_bad_arguments_are_refused(context: ipcbus.Context, archive: Archive, options: dict[str, object]) -> None:
    topics = options.pop("topics", ["t"])
    with pytest.raises(ConfigError):
        Recorder(context, archive, topics, **options).start()
    with Recorder(context, archive, ["t"]):
        pass  # nothing holds the log or the topic


def test_only_one_recorder_writes_a_stream(context: ipcbus.Context, archive: Archive) -> None:
    with Recorder(context, archive, ["t"], stream="s"):
        with pytest.raises(ArchiveLocked):
            Recorder(context, archive, ["t"], stream="s").start()
        with Recorder(context, archive, ["u"], stream="other"):
            pass


def test_a_recorder_starts_once(context: ipcbus.Context, archive: Archive) -> None:
    recorder = Recorder(context, archive, ["t"])
    assert recorder.stats.state == "new"
    assert recorder.stop().state == "new"
    recorder.start()
    with pytest.raises(IpcBusError, match="started before"):
        recorder.start()
    assert recorder.stop() == recorder.stop()


def test_what_came_before_the_end_is_written(context: ipcbus.Context, archive: Archive) -> None:
    source = context.source("t")
    with Recorder(context, archive, ["t"], flush_seconds=60):
        source.wait_for_receivers(1, 30)
        receiver = context.receiver("t")
        for number in range(1000):
            source.send(number.to_bytes(2, "little"), flush=True)
        for _ in range(1001):
            assert receiver.receive(30) is not None  # then the recorder has it too
        assert rows_of(archive) == []
    assert values(rows_of(archive)) == [number.to_bytes(2, "little") for number in range(1000)]


def test_a_quiet_message_is_readable_soon(context: ipcbus.Context, archive: Archive) -> None:
    source = context.source("t")
    with Recorder(context, archive, ["t"], flush_seconds=0.01):
        source.wait_for_receivers(1, 30)
        for number in range(3):
            source.send(bytes([number]), flush=True)
            readable(archive, number + 1)


def test_a_message_longer_than_the_memory_is_recorded(context: ipcbus.Context, archive: Archive) -> None:
    value = bytes(range(256)) * 12_000
    source = context.source("t")
    with Recorder(context, archive, ["t"], buffer_bytes=SMALL, limits=Limits(segment_bytes=1 << 20)) as recorder:
        source.wait_for_receivers(1, 30)
        for part in (b"before", value, b"after"):
            source.send(part, flush=True)
        written(recorder, 3)
    assert values(rows_of(archive)) == [b"before", value, b"after"]


def test_a_message_that_no_segment_can_hold_is_noted(
    context: ipcbus.Context, archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ipcbus.archive.recorder.RecordBuffer", functools.partial(RecordBuffer, message_max=100_000))
    source = context.source("t")
    with Recorder(context, archive, ["t"], buffer_bytes=SMALL) as recorder:
        source.wait_for_receivers(1, 30)
        source.send(b"before", flush=True)
        source.send(bytes(100_001), flush=True)
        source.send(b"after", flush=True)
        written(recorder, 2)
        assert (recorder.stats.dropped, recorder.stats.too_large) == (2, 2)  # its pieces
    assert values(rows_of(archive)) == [b"before", b"after"]
    assert [(row.first, row.last) for row in losses(rows_of(archive))] == [(1, 2)]


def test_a_process_that_ends_without_stop_has_written_everything(domain: str, tmp_path: Path) -> None:
    program = f"""
import ipcbus
from ipcbus.archive import Archive
from ipcbus.archive.recorder import Recorder
context = ipcbus.Context(domain={domain!r})
source, receiver = context.source("t"), context.receiver("t")
Recorder(context, Archive.create({str(tmp_path)!r}), ["t"], flush_seconds=60).start()
source.wait_for_receivers(1, 30)
for _ in range(100):
    source.send(b"x", flush=True)
for _ in range(101):
    receiver.receive(30)
"""
    subprocess.run([sys.executable, "-c", program], check=True)
    assert values(rows_of(Archive(tmp_path))) == [b"x"] * 100


def test_a_recorder_belongs_to_the_process_that_made_it(domain: str, tmp_path: Path) -> None:
    program = f"""
import os, sys, warnings
import ipcbus
from ipcbus.archive import Archive, Recorder
warnings.simplefilter("ignore")  # of forks in processes with threads
context = ipcbus.Context(domain={domain!r})
source, receiver = context.source("t"), context.receiver("t")
recorder = Recorder(context, Archive.create({str(tmp_path)!r}), ["t"], flush_seconds=60)
recorder.start()
source.wait_for_receivers(1, 30)
source.send(b"x", flush=True)
receiver.receive(30), receiver.receive(30)
child = os.fork()
if not child:
    try:
        recorder.stop()
    except ipcbus.WrongProcess:
        sys.exit(3)
    sys.exit(4)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), recorder.stop().messages)
"""
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert done.stdout == "3 1\n"
    assert values(rows_of(Archive(tmp_path))) == [b"x"]


# ---------------------------------------------------------------------------------------- one after the other


def test_the_next_recorder_goes_on_and_tells_what_was_missed(context: ipcbus.Context, archive: Archive) -> None:
    source, quiet = context.source("t"), context.source("quiet")

    def record(numbers: range, *, away: int) -> None:
        with Recorder(context, archive, ["t", "quiet"]) as recorder:
            source.wait_for_receivers(1, 30)
            quiet.wait_for_receivers(1, 30)
            for number in numbers:
                source.send(bytes([number]), flush=True)
            quiet.send(b"", flush=True)
            written(recorder, len(numbers) + 1)
            assert (recorder.stats.missed, recorder.stats.dropped) == (away, 0)
        until(lambda: source.receivers == 0, "its end")

    record(range(3), away=0)
    for _ in range(4):
        source.send(b"nobody is there", flush=True)
    record(range(7, 10), away=4)
    record(range(10, 12), away=0)
    rows = rows_of(archive)
    assert accounted(rows, "t", source.source) == (0, 12, 8, 4)
    assert accounted(rows, "quiet", quiet.source) == (0, 3, 3, 0)
    assert [(row.topic, row.type, row.first, row.last) for row in losses(rows)] == [("t", TYPE_LOSS_RECORDER, 3, 6)]
    assert len(archive.logs()) == 1


def test_a_topic_that_had_ended_begins_anew(context: ipcbus.Context, archive: Archive) -> None:
    for _ in range(2):
        source = context.source("t", transport_lbtipc_id=20100)
        with Recorder(context, archive, ["t"]) as recorder:
            source.wait_for_receivers(1, 30)
            source.send(b"", flush=True)
            source.close()
            ended(recorder)
    assert losses(rows_of(archive)) == []


# ---------------------------------------------------------------------------------------- beside it


def test_the_oldest_segments_go(context: ipcbus.Context, archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ipcbus.archive.writer_thread._RETAIN_S", 0)
    limits = Limits(segment_bytes=10_000, retain_bytes=30_000)
    source = context.source("t")
    with Recorder(context, archive, ["t"], flush_seconds=0.001, limits=limits) as recorder:
        source.wait_for_receivers(1, 30)
        for number in range(30):
            source.send(bytes(5000), flush=True)
            written(recorder, number + 1)
        until(lambda: archive.logs()[0].bounds()[0] > 12, "retention")


def test_whoever_watches_sees_it(context: ipcbus.Context, archive: Archive) -> None:
    source = context.source("t")

    def shown() -> list[stats.RecorderStats]:
        return [each for found in stats.take_snapshot(context.domain).contexts for each in found.recorders]

    with Recorder(context, archive, ["t"]) as recorder:
        source.wait_for_receivers(1, 30)
        source.send(b"one", flush=True)
        written(recorder, 1)
        until(lambda: shown()[0].counters["messages"] == 1, "its numbers")
        (found,) = shown()
        assert found.log == str(archive.path / recorder.stream)
        assert {name: getattr(recorder.stats, name) for name in found.counters if name != "behind_ns"} == {
            name: value for name, value in found.counters.items() if name != "behind_ns"
        }
    assert shown() == []
