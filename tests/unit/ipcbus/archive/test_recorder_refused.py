"""The recorder and a disk that refuses: what finds memory waits, the rest is noted, and nothing is written twice."""

from __future__ import annotations

import contextlib
import random
import shutil
from typing import TYPE_CHECKING

import pytest

import ipcbus
from ipcbus import StorageError
from ipcbus.archive import Archive, Limits, LogWriter, Recorder
from tests.kit.disks import FaultyDisk
from tests.kit.recording import accounted, rows_of, values, written
from tests.kit.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SMALL = 1 << 17


@pytest.fixture
def context(domain: str) -> Iterator[ipcbus.Context]:
    """Sends and records."""
    with ipcbus.Context(domain=domain) as made:
        yield made


class Refusal:
    """A way for the disk to refuse, which can be ended."""

    def __init__(self, disk: FaultyDisk, monkeypatch: pytest.MonkeyPatch) -> None:
        self.disk, self.monkeypatch = disk, monkeypatch

    def begin(self, how: str) -> None:
        """From now on."""
        if how == "room":
            self.disk.room = self.disk.used() + 30_000
        elif how == "sync":
            self.disk.sync_fails = True
        else:
            self.monkeypatch.setattr(LogWriter, "append", self._fail)

    def end(self) -> None:
        """No longer."""
        self.disk.room, self.disk.sync_fails = None, False
        self.monkeypatch.undo()

    def _fail(self, _rows: object, _data: object) -> int:
        raise ValueError("a defect")


@pytest.fixture
def refusal(monkeypatch: pytest.MonkeyPatch) -> Refusal:
    """Of a disk in memory."""
    return Refusal(FaultyDisk(random.Random(1)), monkeypatch)


@pytest.fixture(autouse=True)
def hurry() -> Iterator[None]:
    """Has the disk tried again soon."""
    with pytest.MonkeyPatch.context() as kept:
        kept.setattr("ipcbus.archive.writer_thread.RETRY_S", 0.01)
        yield


@pytest.mark.parametrize(
    ("how", "limits", "text"),
    [
        ("room", Limits(sync="never"), "no room for"),
        ("sync", Limits(sync="always"), "and make a new one"),
        ("sync", Limits(sync_seconds=0), "and make a new one"),  # after the rows were published
        ("defect", Limits(), "a defect"),
    ],
)
def test_a_disk_that_refuses_costs_only_what_finds_no_memory(
    context: ipcbus.Context, refusal: Refusal, how: str, limits: Limits, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    archive = Archive.create("/archive", files=refusal.disk)
    source = context.source("t")
    with Recorder(context, archive, ["t"], buffer_bytes=SMALL, limits=limits) as recorder:
        source.wait_for_receivers(1, 30)
        refusal.begin(how)
        for number in range(200):
            source.send(bytes([number]) * 4000, flush=True)
        until(lambda: recorder.stats.dropped > 50 and recorder.stats.errors > 2, "the disk to refuse")
        found = recorder.stats
        assert found.state == "failing"
        assert text in found.error or found.error.endswith("cannot sync it: input/output error")
        assert found.buffered_bytes > SMALL // 2
        assert found.behind_ns > 0
        refusal.end()
        until(lambda: recorder.stats.state == "recording", "the disk to take it")
        source.send(b"again", flush=True)
        until(lambda: recorder.stats.messages == 201 - recorder.stats.dropped, "the rest")
        dropped = recorder.stats.dropped
    rows = rows_of(archive)
    assert accounted(rows, "t", source.source) == (0, 201, 201 - dropped, dropped)
    assert values(rows)[-1] == b"again"
    assert caplog.records[0].levelname == "ERROR"
    assert caplog.records[-1].levelname == "WARNING"


@pytest.mark.parametrize("sessions", [1, 4])
def test_a_single_message_that_was_refused_keeps_its_topic(
    context: ipcbus.Context, refusal: Refusal, sessions: int, domain: str
) -> None:
    archive = Archive.create("/archive", files=refusal.disk)
    topics = [f"t{each}" for each in range(sessions)]
    with contextlib.ExitStack() as others:
        sources = [others.enter_context(ipcbus.Context(domain=domain, name=topic)).source(topic) for topic in topics]
        with Recorder(context, archive, topics) as recorder:
            # Each alone, so that the log gives its numbers in another order than the stage.
            for at, source in enumerate(sources):
                source.wait_for_receivers(1, 30)
                source.send(b"before", flush=True)
                written(recorder, at + 1)
            refusal.disk.room = refusal.disk.used()
            sources[0].send(b"refused", flush=True)
            until(lambda: recorder.stats.errors > 2, "the disk to refuse")
            refusal.end()
            written(recorder, sessions + 1)
        rows = rows_of(archive)
        assert values(rows, "t0") == [b"before", b"refused"]
        assert accounted(rows, "t0", sources[0].source) == (0, 2, 2, 0)


@pytest.mark.parametrize("when_full", ["drop", "wait"])
def test_a_disk_that_refuses_for_good_does_not_hold_up_the_end(
    context: ipcbus.Context, refusal: Refusal, when_full: str
) -> None:
    archive = Archive.create("/archive", files=refusal.disk)
    source = context.source("t", transport_lbtipc_behavior="source_paced")
    recorder = Recorder(context, archive, ["t"], buffer_bytes=SMALL, when_full=when_full)
    recorder.start()
    source.wait_for_receivers(1, 30)
    refusal.begin("room")
    for _ in range(100):
        source.send(bytes(4000), flush=True)
    until(lambda: recorder.stats.state == "failing" and recorder.stats.buffered_bytes > SMALL - 5000, "no memory")
    with pytest.raises(StorageError, match="are not in the log"):
        recorder.stop()
    refusal.end()
    with Recorder(context, archive, ["t"]):
        pass  # the log is free again


def test_what_cannot_be_written_at_the_end_is_counted(context: ipcbus.Context, refusal: Refusal) -> None:
    archive = Archive.create("/archive", files=refusal.disk)
    source = context.source("t")
    recorder = Recorder(context, archive, ["t"], buffer_bytes=SMALL)
    recorder.start()
    source.wait_for_receivers(1, 30)
    source.send(b"written", flush=True)
    written(recorder, 1)
    refusal.disk.room = refusal.disk.used()
    for _ in range(25):  # more than one buffer
        source.send(bytes(4000), flush=True)
    until(lambda: recorder.stats.buffered_bytes > 25 * 4000, "all of them to come")
    assert recorder.stats.unwritten == 0
    with pytest.raises(StorageError, match="are not in the log"):
        recorder.stop()
    assert (recorder.stats.messages, recorder.stats.dropped, recorder.stats.unwritten) == (1, 0, 25)
    refusal.end()
    with Recorder(context, archive, ["t"]) as after:
        source.wait_for_receivers(1, 30)
        source.send(b"again", flush=True)
        written(after, 1)
        assert after.stats.missed == 25
    assert accounted(rows_of(archive), "t", source.source) == (0, 27, 2, 25)


def test_retention_makes_room_on_a_full_disk(
    context: ipcbus.Context, refusal: Refusal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ipcbus.archive.writer_thread._RETAIN_S", 3600)
    archive = Archive.create("/archive", files=refusal.disk)
    source = context.source("t")
    limits = Limits(segment_bytes=20_000, retain_bytes=50_000, sync="never")
    with Recorder(context, archive, ["t"], flush_seconds=0.001, limits=limits) as recorder:
        source.wait_for_receivers(1, 30)
        refusal.disk.room = refusal.disk.used() + 100_000
        for number in range(200):
            source.send(bytes(4000), flush=True)
            # One by one, so that segments are short.
            until(lambda: recorder.stats.messages > number, "the message to be recorded")  # noqa: B023 - at once
        assert recorder.stats.errors > 0


def test_segments_that_cannot_be_removed_do_not_keep_others_from_being_written(
    context: ipcbus.Context, refusal: Refusal, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def retain(_writer: LogWriter, _now_ns: int) -> None:
        raise StorageError("consumers: cannot list it: permission denied")

    monkeypatch.setattr("ipcbus.archive.writer_thread._HOUSEKEEPING_S", 0.001)
    monkeypatch.setattr("ipcbus.archive.writer_thread._RETAIN_S", 0)
    archive = Archive.create("/archive", files=refusal.disk)
    source = context.source("t")
    with Recorder(context, archive, ["t"], flush_seconds=0.001, limits=Limits(retain_bytes=1 << 30)) as recorder:
        source.wait_for_receivers(1, 30)
        with pytest.MonkeyPatch.context() as refused:
            refused.setattr(LogWriter, "retain", retain)
            for number in range(1, 4):
                source.send(b"", flush=True)
                written(recorder, number)
                before = recorder.stats.errors
                until(lambda: recorder.stats.errors > before + 2, "retention to be tried")  # noqa: B023 - at once
            assert (recorder.stats.state, recorder.stats.error) == (
                "failing",
                "consumers: cannot list it: permission denied",
            )
        until(lambda: recorder.stats.state == "recording", "retention")
    assert len(archive.logs()[0].segments()) == 1
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert "the oldest segments cannot be removed" in caplog.text


def test_a_message_waits_for_the_disk(context: ipcbus.Context, refusal: Refusal) -> None:
    archive = Archive.create("/archive", files=refusal.disk)
    source = context.source("t")
    with Recorder(context, archive, ["t"], buffer_bytes=SMALL, when_full="wait") as recorder:
        source.wait_for_receivers(1, 30)
        refusal.begin("room")
        for number in range(100):
            source.send(bytes([number]) * 4000, flush=True)
        until(lambda: recorder.stats.buffered_bytes > SMALL - 5000, "no memory")
        refusal.end()
        written(recorder, 100)
        assert recorder.stats.dropped == 0
    assert values(rows_of(archive)) == [bytes([number]) * 4000 for number in range(100)]


def take_away(archive: Archive, what: str) -> None:
    """Removes or moves an archive, or the open files of its log."""
    if what == "moved":
        archive.path.rename(archive.path.with_name("elsewhere"))
    elif what == "archive":
        shutil.rmtree(archive.path)
    else:
        for path in archive.path.rglob("*.dat" if what == "segment" else "watermark"):
            path.unlink()


@pytest.mark.parametrize("what", ["archive", "moved", "segment", "watermark"])
def test_a_recorder_whose_archive_is_removed_fails(
    context: ipcbus.Context,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    what: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("ipcbus.archive.writer_thread._HOUSEKEEPING_S", 0.01)
    monkeypatch.setattr("ipcbus.archive.writer_thread._RETAIN_S", 0)
    archive, source = Archive.create(tmp_path / "archive"), context.source("t")
    recorder = Recorder(context, archive, ["t"], limits=Limits(sync="never"))
    recorder.start()
    source.wait_for_receivers(1, 30)
    source.send(b"written", flush=True)
    written(recorder, 1)
    take_away(archive, what)
    until(lambda: recorder.stats.state == "failing", "the recorder to see it")
    source.send(b"later", flush=True)
    until(lambda: recorder.stats.buffered_bytes > 0 and recorder.stats.errors > 2, "another try")
    with pytest.raises(StorageError, match="bytes of messages are not in the log .*: files of the log, or its archive"):
        recorder.stop()
    assert (recorder.stats.messages, recorder.stats.unwritten) == (1, 1)
    assert archive.path.exists() == (what in ("segment", "watermark"))
    assert "tries again" not in caplog.text


@pytest.mark.parametrize("what", ["archive", "moved", "segment", "watermark"])
def test_a_recorder_looks_at_its_stop_whether_its_archive_is_there(
    context: ipcbus.Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    monkeypatch.setattr("ipcbus.archive.writer_thread._HOUSEKEEPING_S", 3600)
    archive, source = Archive.create(tmp_path / "archive"), context.source("t")
    recorder = Recorder(context, archive, ["t"])
    recorder.start()
    source.wait_for_receivers(1, 30)
    source.send(b"written", flush=True)
    written(recorder, 1)
    take_away(archive, what)
    with pytest.raises(StorageError, match="were removed or moved while the log was written"):
        recorder.stop()
