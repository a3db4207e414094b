from __future__ import annotations

import os
import random
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from ipcbus.archive import Archive, Limits, LogWriter, archive_layout, blocks, log_writer, segment_writer
from ipcbus.archive import log_names as naming
from ipcbus.archive.verify import verify
from ipcbus.errors import ClosedError, ConfigError, StorageError, StorageFull, WrongProcess
from ipcbus.storage.files import DiskFile
from tests.kit.archives import add, made, values_of
from tests.kit.disks import CutOff, FaultyDisk, FaultyFile

if TYPE_CHECKING:
    from typing_extensions import Buffer

ROOT = Path("/archive")
FOLDER = ROOT / "host" / "0"


@pytest.fixture
def disk() -> FaultyDisk:
    return FaultyDisk(random.Random(1))


def opened(disk: FaultyDisk, **limits: object) -> LogWriter:
    return Archive.create(ROOT, files=disk).writer("host", limits=Limits(**limits))


def everything(disk: FaultyDisk) -> list[bytes]:
    log = Archive(ROOT, files=disk).log("host/0")
    return values_of(log.read(*log.bounds()))


# Seven bytes are less than any part that is written; the long form tries every byte.
@pytest.mark.parametrize("step", [7, pytest.param(1, marks=pytest.mark.long)])
@pytest.mark.parametrize("new_segment", [False, True])
def test_no_room_at_any_byte_publishes_nothing_and_the_writer_goes_on(new_segment: bool, step: int) -> None:
    needed = 0
    for room in range(0, 1000, step):
        disk = FaultyDisk(random.Random(room))
        with opened(disk) as writer:
            add(writer, [b"first"])
            if new_segment:
                writer.roll()
            before = disk.used()
            disk.room = before + room
            try:
                add(writer, [b"second", b"third"], topic="another")
            except StorageFull:
                assert (writer.next_offset, writer.log.bounds()) == (1, (0, 1))
                assert everything(disk) == [b"first"]
            else:
                needed = disk.used() - before
            disk.room = None
            add(writer, [b"fourth"])
            assert everything(disk)[:: 3 if needed else 1] == [b"first", b"fourth"]
        assert verify(Archive(ROOT, files=disk)) == []
        if needed:
            break
    assert room - step < needed <= room
    assert needed > 150


def test_a_segment_that_got_no_row_leaves_nothing(disk: FaultyDisk) -> None:
    with opened(disk) as writer:
        number = writer.topic("t")
        writer.append(*made([b"x"], topic=number))
        writer.roll()
        writer.roll()
        disk.room = disk.used() + 10
        with pytest.raises(StorageFull):
            writer.append(*made([bytes(100)], topic=number))
        disk.room = None
        writer.roll()
        assert len(writer.log.segments()) == 1
    assert verify(Archive(ROOT, files=disk)) == []
    assert len([path for path in disk.content() if path.suffix == ".blk"]) == 1


def test_a_writer_that_cannot_sync_gives_up(disk: FaultyDisk) -> None:
    writer = opened(disk, sync_seconds=0)
    add(writer, [b"synced"])
    disk.sync_fails = True
    with pytest.raises(StorageError, match="make a new one"):
        add(writer, [b"shown"])
    disk.sync_fails = False
    for call in (writer.sync, writer.roll, lambda: add(writer, [b"x"]), lambda: writer.retain(0)):
        with pytest.raises(StorageError, match="make a new one"):
            call()
    writer.close()
    with opened(disk) as again:
        assert (again.next_offset, again.recovered.lost_power) == (2, False)
    assert everything(disk) == [b"synced", b"shown"]


@pytest.mark.parametrize("kind", ["always", "never", "interval"])
def test_how_much_is_synced(disk: FaultyDisk, kind: str) -> None:
    writer = opened(disk, sync=kind, sync_seconds=1e9)
    add(writer, [b"one"])
    add(writer, [b"two"])
    disk.cut_off = True
    after = disk.lost_power()
    while after.content().get(FOLDER / f"{0:020d}.dat"):  # by chance kept though not synced
        if kind == "always":
            break
        after = disk.lost_power()
    with opened(after) as again:
        assert again.recovered.lost_power
        if kind == "always":
            assert (again.next_offset, again.recovered.hole) == (2, 0)
        else:
            assert again.next_offset == again.recovered.hole == log_writer.RESERVE_MIN


def test_an_interrupted_append_is_settled_by_the_next_writer(disk: FaultyDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = opened(disk)
    add(writer, [b"one"])
    publish = LogWriter._publish

    def interrupted(self: LogWriter) -> None:
        publish(self)
        raise KeyboardInterrupt

    monkeypatch.setattr(LogWriter, "_publish", interrupted)
    with pytest.raises(KeyboardInterrupt):
        add(writer, [b"two"])
    monkeypatch.undo()
    assert everything(disk) == [b"one", b"two"]
    with pytest.raises(StorageError, match="interrupted"):
        add(writer, [b"three"])
    writer.close()
    with opened(disk) as again:
        assert again.next_offset == 2
    assert everything(disk) == [b"one", b"two"]


def test_a_closed_writer_does_nothing(disk: FaultyDisk) -> None:
    writer = opened(disk)
    add(writer, [b"one"])
    writer.close()
    before = disk.operations
    for call in (writer.sync, writer.roll, lambda: add(writer, [b"x"]), lambda: writer.topic("new")):
        with pytest.raises(ClosedError):
            call()
    writer.close()
    assert disk.operations == before


def test_blocks_keep_their_limit(disk: FaultyDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (archive_layout, log_writer, blocks):
        monkeypatch.setattr(module, "BLOCK_BYTES_MAX", 480)
    values = [b"x" * size for size in (0, 100, 300, 80, 900, 1, 479, 480, 481, 0, *[3] * 25)]
    with opened(disk) as writer:
        add(writer, values)
        blk = disk.content()[FOLDER / f"{0:020d}.blk"]
        found = np.frombuffer(blk, archive_layout.BLOCK)
        assert found["rows"].sum() == len(values)
        assert all(rows == 1 or (rows <= 10 and size <= 480) for rows, size in found[["rows", "bytes"]].tolist())
        assert len(found) == 8
        assert everything(disk) == values
    assert verify(Archive(ROOT, files=disk)) == []


def test_more_than_a_segment_can_hold_is_refused(disk: FaultyDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (log_writer, segment_writer, blocks):
        monkeypatch.setattr(module, "SEGMENT_BYTES_MAX", 10_000)
    with opened(disk) as writer:
        with pytest.raises(ValueError, match="in parts"):
            add(writer, [bytes(6000), bytes(6000)])
        for _ in range(3):
            add(writer, [bytes(6000)])
        assert len(writer.log.segments()) == 3
        assert everything(disk) == [bytes(6000)] * 3


def test_rows_of_the_caller_stay_as_they_are(disk: FaultyDisk) -> None:
    rows, data = made([b"a", b"bb", b"", b"cccc"])
    view = rows[::2]
    before = rows.copy()
    with opened(disk) as writer:
        writer.append(rows, data)
        writer.append(rows, bytearray(data))
        assert (rows == before).all()
        picked = view.copy()
        picked["position"] = [0, 1]
        writer.append(picked[:1], b"a")
        with pytest.raises(ValueError, match="ROW"):
            writer.append(np.zeros(3, np.uint8), b"")
        with pytest.raises(ValueError, match="ROW"):
            writer.append(rows.reshape(2, 2), data)
    assert everything(disk) == [b"a", b"bb", b"", b"cccc"] * 2 + [b"a"]


def test_names_are_given_once(disk: FaultyDisk) -> None:
    with opened(disk) as writer:
        numbers = [writer.topic("t"), writer.session("t"), writer.topic("\N{SNOWMAN}"), writer.topic("t")]
        assert numbers == [1, 2, 3, 1]
        assert FOLDER / "names" in disk.content()
        assert disk.content()[FOLDER / "names"] == b""  # not before rows use them
        writer.append(*made([b"x"], topic=3, session=2))
        assert writer.log.topics() == {1: "t", 3: "\N{SNOWMAN}"}
        assert writer.log.sessions() == {2: "t"}
        with pytest.raises(ValueError, match="longer"):
            writer.topic("x" * 70_000)
        with pytest.raises(UnicodeEncodeError):
            writer.topic("\udcff")
        assert writer.topic("next") == 4
    with opened(disk) as writer:
        assert [writer.topic("t"), writer.session("t"), writer.topic("next")] == [1, 2, 4]


def test_limits_that_make_no_sense_are_refused() -> None:
    for wrong in (
        {"segment_bytes": 10},
        {"segment_bytes": 2**31},
        {"segment_seconds": 0},
        {"segment_seconds": float("nan")},
        {"retain_bytes": -1},
        {"retain_seconds": -1.0},
        {"retain_bytes": 100, "hard_cap_bytes": 99},
        {"sync": "sometimes"},
        {"sync_seconds": -1},
        {"cursor_max_age_seconds": -1},
    ):
        with pytest.raises(ConfigError, match=next(iter(reversed(wrong)))):
            Limits(**wrong)
    assert Limits(retain_bytes=100).cap_bytes == 200
    assert Limits(retain_bytes=100, hard_cap_bytes=150).cap_bytes == 150
    assert Limits(hard_cap_bytes=150).cap_bytes == 150
    assert Limits().cap_bytes is None


@pytest.mark.parametrize("step", [3, pytest.param(1, marks=pytest.mark.long)])
def test_readers_never_see_a_row_before_its_bytes(disk: FaultyDisk, step: int) -> None:
    """At every operation of a writer all that is published can be read."""
    shown = 0
    for cut in range(1, 200, step):
        trial = FaultyDisk(random.Random(cut), cut_at=cut)
        try:
            with opened(trial, segment_bytes=4096, sync_seconds=0) as writer:
                for number in range(8):
                    add(writer, [b"x" * 1000] * 2, topic=f"topic {number}")
        except CutOff:
            found = trial.killed()
            logs = Archive.create(ROOT, files=found).logs()
            for log in logs:
                values = values_of(log.read(*log.bounds()))
                assert values == [b"x" * 1000] * len(values)
                assert len(values) >= shown
                shown = len(values)
        else:
            assert shown == 16
            return
    pytest.fail("it takes more operations than that")


def test_a_child_neither_writes_nor_closes_the_log_of_its_parent(tmp_path: Path) -> None:
    writer = Archive.create(tmp_path).writer("host")
    add(writer, [b"before"])
    told, tell = os.pipe()
    child = os.fork()
    if not child:
        try:
            add(writer, [b"of the child"])
        except WrongProcess as error:
            os.write(tell, str(error).encode())
        writer.close()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    os.close(tell)
    with os.fdopen(told) as said:
        assert "belongs to the parent" in said.read()
    mark = writer.log.watermark()
    assert (mark.next_offset, mark.closed) == (1, False)
    add(writer, [b"after"])
    writer.close()
    assert values_of(writer.log.read(0, 2)) == [b"before", b"after"]


def test_no_more_names_than_readers_take(disk: FaultyDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(naming, "SIZE_MAX", 2000)
    with opened(disk) as writer:
        add(writer, [b"x"], topic="t" * 900)
        with pytest.raises(StorageError, match="and more do not fit; use another stream"):
            for number in range(9):
                add(writer, [b"x"], topic=f"{number}" * 300)
        assert add(writer, [b"last"], topic="t" * 900) > 1
    assert everything(disk)[-1] == b"last"
    opened(disk).close()


def test_a_watermark_that_is_refused_publishes_nothing(disk: FaultyDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    """The writer goes on at the same offset; with another one readers would find a gap and be told `OffsetsExpired`."""
    with opened(disk) as writer:
        add(writer, [b"one"])
        write_at = FaultyFile.write_at

        def refused(file: FaultyFile, offset: int, data: Buffer) -> None:
            if file.path.name == "watermark":
                raise StorageFull(f"{file.path}: no room")
            write_at(file, offset, data)

        with monkeypatch.context() as patch:
            patch.setattr(FaultyFile, "write_at", refused)
            with pytest.raises(StorageFull):
                add(writer, [b"two", b"three"])
        assert writer.next_offset == 1
        assert add(writer, [b"two", b"three"]) == 1
        assert everything(disk) == [b"one", b"two", b"three"]
    assert verify(Archive(ROOT, files=disk)) == []


def test_no_offset_is_given_twice_where_no_synced_watermark_is_left(
    disk: FaultyDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A power loss leaves the oldest watermark of readers, both synced ones are damaged, and no row is there."""
    monkeypatch.setattr(log_writer, "RESERVE_MIN", 8)
    writer = opened(disk, sync_seconds=1e9)
    add(writer, [b"x"])
    mark = disk.content()[FOLDER / "watermark"][: archive_layout.WATERMARK.itemsize]
    for _ in range(50):
        add(writer, [b"y"])
    shown = writer.next_offset
    after = disk.lost_power()
    after.spoil(FOLDER / "watermark", mark + bytes(archive_layout.WATERMARK_AT[-1]))
    for suffix in ("dat", "idx", "blk"):
        after.spoil(FOLDER / f"{0:020d}.{suffix}", b"")
    with opened(after) as again:
        assert again.recovered.lost_power
        assert again.next_offset >= shown
        assert add(again, [b"z"]) >= shown


@pytest.mark.parametrize("closing", ["works", "is refused"])
def test_a_writer_that_failed_leaves_no_file_open_and_gives_its_lock_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, closing: str
) -> None:
    writer = Archive.create(tmp_path).writer("host", limits=Limits(sync="always"))
    add(writer, [b"one"])
    close = DiskFile.close

    def failing_sync(file: DiskFile) -> None:
        raise StorageError(f"{file.path}: cannot sync it")

    def failing_close(file: DiskFile) -> None:
        close(file)
        raise StorageError(f"{file.path}: cannot close it")

    with monkeypatch.context() as patch:
        patch.setattr(DiskFile, "sync", failing_sync)
        with pytest.raises(StorageError, match="make a new one"):
            add(writer, [b"two"])
        if closing == "works":
            writer.close()
        else:
            patch.setattr(DiskFile, "close", failing_close)
            with pytest.raises(StorageError, match="cannot close"):
                writer.close()
    links = [
        os.readlink(f"/proc/self/fd/{fd}")
        for fd in os.listdir("/proc/self/fd")
        if os.path.islink(f"/proc/self/fd/{fd}")
    ]
    assert [link for link in links if link.startswith(str(tmp_path))] == []
    with Archive(tmp_path).writer("host") as again:
        assert again.next_offset in (1, 2)


@pytest.mark.parametrize("found_by", ["sync", "roll", "close"])
@pytest.mark.parametrize("gone", ["*.dat", "watermark", "names*", "lock"])
def test_a_writer_whose_open_files_are_removed_fails(tmp_path: Path, found_by: str, gone: str) -> None:
    archive = Archive.create(tmp_path)
    writer = archive.writer("host")
    add(writer, [b"first"])
    (path,) = tmp_path.rglob(gone)
    path.unlink()
    with pytest.raises(StorageError, match="were removed or moved while the log was written"):
        getattr(writer, found_by)()
    if found_by != "close":
        with pytest.raises(StorageError, match="close it and make a new one"):
            add(writer, [b"second"])
        writer.close()
    assert archive.writing("host") is None
