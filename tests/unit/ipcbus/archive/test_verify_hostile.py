"""Files that lie, with good checksums or bad ones: a typed error or a told loss, never a crash or a hang."""

from __future__ import annotations

import contextlib
import os
import random
import resource
import tracemalloc
import zlib
from typing import TYPE_CHECKING

import numpy as np
import pytest

from ipcbus.archive import Archive, blocks
from ipcbus.archive.archive_layout import BLOCK, ROW, SEGMENT_BYTES_MAX, WATERMARK
from ipcbus.archive.repair import repair
from ipcbus.archive.verify import verify
from ipcbus.errors import ArchiveDamaged, ArchiveError, IpcBusError, OffsetsExpired, StorageError
from ipcbus_tools.render.archive_output import ArchiveInfo
from tests.kit.archives import add, made
from tests.kit.cases import each_of
from tests.kit.disks import FaultyDisk
from tests.unit.ipcbus.archive.test_repair import FOLDER, ROOT, damaged, fill

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ipcbus.storage.files import Files

BASE = f"{0:020d}"


def use(files: Files, root: Path) -> int:
    """Reads all there is in every way; how many rows came. Anything but a typed error goes through."""
    rows = 0
    try:
        archive = Archive(root, files=files)
        logs = archive.logs()
    except IpcBusError:
        return 0
    for log in logs:
        for look in (log.bounds, log.topics, log.sessions, log.segments, lambda log=log: log.offset_at(150)):
            try:
                look()
            except IpcBusError:
                continue
        for check in (True, False):
            for told in (None, lambda *_: None):
                try:
                    first, end = log.bounds()
                    for chunk in log.read(first, end, verify=check, on_damage=told, on_hole=told):
                        rows += len(chunk.rows)
                        starts = chunk.rows["position"].astype(np.int64) - chunk.data_start
                        assert (starts >= 0).all()
                        assert (starts + chunk.rows["headers"] + chunk.rows["length"] <= len(chunk.data)).all()
                except (ArchiveError, StorageError):
                    continue
    verify(archive)
    with contextlib.suppress(IpcBusError):
        ArchiveInfo.of(archive, count=True)
    return rows


@pytest.mark.parametrize("part", [0, *(pytest.param(part, marks=pytest.mark.long) for part in range(1, 4))])
def test_damaged_files_are_typed_errors(part: int) -> None:
    rows = 0
    for seed in range(100 + 25 * part, 125 + 25 * part):
        rng = random.Random(seed)
        disk = FaultyDisk(rng)
        fill(disk)
        damaged(rng, disk)
        rows += use(disk, ROOT)
    assert rows > 5_000


def sealed(record: np.ndarray[tuple[int], np.dtype[np.void]]) -> bytes:
    """A record whose last field is the checksum of the others."""
    data = record.tobytes()[:-4]
    return data + zlib.crc32(data).to_bytes(4, "little")


@pytest.mark.parametrize(
    "lie",
    [
        {"rows": 0},
        {"rows": 11},
        {"rows": 2**32 - 1},
        {"rows": 9},
        {"position": 2**32 - 1},
        {"position": 1},
        {"bytes": 2**31},
        {"bytes": 2**32 - 1},
        {"first_offset": 2**64 - 1},
        {"first_offset": 1},
        {"format": 3},
    ],
)
def test_blocks_that_lie(lie: dict[str, int]) -> None:
    disk = FaultyDisk(random.Random(1))
    archive = fill(disk)
    path = FOLDER / f"{BASE}.blk"
    records = np.frombuffer(disk.content()[path], BLOCK).copy()
    for field, value in lie.items():
        records[field][2] = value
    records[2:3] = np.frombuffer(sealed(records[2:3]), BLOCK)
    disk.spoil(path, records.tobytes())
    with pytest.raises(ArchiveDamaged):
        list(archive.log("host/0").read(0, 400))
    assert verify(archive)
    assert use(disk, ROOT) > 300


@each_of(
    ("field", "value"),
    [
        ("position", 2**32 - 1),
        ("position", 0),
        ("length", 2**32 - 1),
        ("length", 10),
        ("headers", 65535),
        ("topic", 99),
        ("topic", 2),  # of a session
        ("session", 1),  # of a topic
        ("session", 2**32 - 1),
    ],
)
def test_rows_that_lie_with_good_checksums(field: str, value: int) -> None:
    disk = FaultyDisk(random.Random(1))
    archive = Archive.create(ROOT, files=disk)
    with archive.writer("host") as writer:
        rows, data = made([b"abc"] * 5, topic=writer.topic("t"), session=writer.session("s"))
        writer.append(rows, data)
    rows[field][2] = value
    disk.spoil(FOLDER / f"{BASE}.idx", rows.tobytes())
    disk.spoil(FOLDER / f"{BASE}.blk", blocks.describe(0, rows, 0, data))
    for check in (True, False):
        with pytest.raises(ArchiveDamaged):
            list(archive.log("host/0").read(0, 5, verify=check))
    assert verify(archive)


@pytest.mark.parametrize(
    "lie",
    [
        {"next_offset": 2**62, "limit": 2**62},
        {"next_offset": 2**61, "limit": 2**61, "base": 0},
        {"next_offset": 10**6, "limit": 10**6, "base": 0, "blocks": 2**32 - 1},
        {"blocks": 0, "base": 0, "next_offset": 400, "limit": 400},
        {"next_offset": 5, "limit": 400},
        {"next_offset": 500, "limit": 400},
        {"base": 500},
    ],
)
def test_watermarks_that_lie(lie: dict[str, int]) -> None:
    disk = FaultyDisk(random.Random(1))
    fill(disk)
    path = FOLDER / "watermark"
    data = disk.content()[path]
    record = np.frombuffer(data, WATERMARK, 1).copy()
    for field, value in lie.items():
        record[field] = value
    disk.spoil(path, sealed(record) + data[96:])
    use(disk, ROOT)


def test_an_archive_of_another_format_is_refused_by_name() -> None:
    disk = FaultyDisk(random.Random(1))
    fill(disk)
    data = disk.content()[FOLDER / "watermark"]
    record = np.frombuffer(data, WATERMARK, 1).copy()
    record["format"] = 7
    disk.spoil(FOLDER / "watermark", sealed(record) + data[96:])
    with pytest.raises(ArchiveDamaged, match="format 7"):
        Archive(ROOT, files=disk).log("host/0").bounds()
    disk.spoil(ROOT / "archive.json", b'{"format":3,"id":"%s"}' % (b"0" * 32))
    with pytest.raises(ArchiveDamaged, match="format 3"):
        Archive(ROOT, files=disk)


NAMES = ("archive.json", "host/0/names", "host/0/watermark", *(f"host/0/{BASE}.{s}" for s in ("dat", "idx", "blk")))


@pytest.mark.parametrize("kind", ["symbolic link", "FIFO", "directory", "gigantic", "memory of a process"])
def test_what_is_no_plain_file_of_its_size(tmp_path: Path, kind: str) -> None:
    for number, name in enumerate(NAMES):
        archive = Archive.create(tmp_path / str(number))
        with archive.writer("host") as writer:
            add(writer, [b"abc"] * 100)
        path = archive.path / name
        if kind == "gigantic":
            os.truncate(path, 1 << 40)
        else:
            path.rename(path.with_name("kept"))
            if kind == "symbolic link":
                path.symlink_to(path.with_name("kept"))
            elif kind == "FIFO":
                os.mkfifo(path)
            elif kind == "directory":
                path.mkdir()
            else:
                path.symlink_to("/proc/self/mem")
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        rows = use(archive.files, archive.path)
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 500_000, name
        assert rows == 0 or kind == "gigantic", name


def test_a_file_that_is_cut_while_it_is_read(tmp_path: Path) -> None:
    archive = Archive.create(tmp_path)
    with archive.writer("host") as writer:
        for _ in range(20):
            add(writer, [b"x" * 1000] * 100)
    reading = archive.log("host/0").read(0, 2000, max_rows=100)
    next(reading)
    os.truncate(tmp_path / "host" / "0" / f"{BASE}.dat", 500_000)
    with pytest.raises(ArchiveDamaged, match="the file has 0 of"):
        list(reading)
    os.truncate(tmp_path / "host" / "0" / f"{BASE}.blk", 0)
    with pytest.raises(ArchiveDamaged, match="missing"):
        list(archive.log("host/0").read(0, 2000))


def test_a_sparse_block_takes_no_more_memory_than_its_file_has(tmp_path: Path) -> None:
    """A record of 2 GiB with a good checksum, over files that are as long but empty."""
    archive = Archive.create(tmp_path)
    with archive.writer("host") as writer:
        add(writer, [b"abc"])
    record = np.frombuffer((tmp_path / "host" / "0" / f"{BASE}.blk").read_bytes(), BLOCK).copy()
    record["rows"] = 40 << 20
    record["bytes"] = SEGMENT_BYTES_MAX
    (tmp_path / "host" / "0" / f"{BASE}.blk").write_bytes(sealed(record))
    for suffix in ("idx", "dat"):
        os.truncate(tmp_path / "host" / "0" / f"{BASE}.{suffix}", SEGMENT_BYTES_MAX)
    tracemalloc.start()
    try:
        with pytest.raises(ArchiveDamaged, match="record of its block"):
            list(archive.log("host/0").read(0, 1))
        assert verify(archive)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 10 << 20
    assert ROW.itemsize * (40 << 20) < SEGMENT_BYTES_MAX


def test_logs_that_are_none(tmp_path: Path) -> None:
    archive = Archive.create(tmp_path)
    (tmp_path / "README").write_text("x")
    (tmp_path / "stream").mkdir()
    (tmp_path / "stream" / "x").mkdir()
    (tmp_path / "stream" / "01").mkdir()
    (tmp_path / "stream" / "9999999999").mkdir()
    (tmp_path / ".hidden").mkdir()
    assert archive.logs() == []
    (tmp_path / "link").symlink_to(tmp_path / "stream")
    for use in (archive.logs, lambda: archive.writer("link")):
        with pytest.raises(StorageError, match="symbolic link"):
            use()
    (tmp_path / "link").unlink()
    (tmp_path / "stream" / "0").mkdir()
    (log,) = archive.logs()
    assert (log.bounds(), log.topics(), log.segments(), log.offset_at(0)) == ((0, 0), {}, [], 0)
    (tmp_path / "copy").mkdir()
    (tmp_path / "copy" / "0").mkdir()
    with pytest.raises(ArchiveDamaged, match="twice"):
        archive.logs()
    assert [finding.file for finding in verify(archive)] == ["."]


def test_offsets_beyond_all_numbers_are_refused() -> None:
    disk = FaultyDisk(random.Random(1))
    log = fill(disk).log("host/0")
    for start, end in ((0, 2**70), (2**63, 2**64)):
        with pytest.raises(OffsetsExpired):
            log.read(start, end)
    assert log.offset_at(2**70) == 400
    assert log.offset_at(-(2**70)) == 0


@pytest.mark.parametrize("name", ["host", "host/0", "consumers"])
def test_a_linked_directory_is_refused_and_not_taken_for_an_empty_one(tmp_path: Path, name: str) -> None:
    archive = Archive.create(tmp_path / "a")
    with archive.writer("host") as writer:
        add(writer, [b"abc"] * 10)
    archive.cursors.commit("group", {"host/0": 0})
    moved = tmp_path / "moved"
    (archive.path / name).rename(moved)
    (archive.path / name).symlink_to(moved)
    before = {path: path.read_bytes() for path in moved.rglob("*") if path.is_file()}
    uses: list[Callable[[], object]] = [archive.cursors.all]
    if name != "consumers":
        uses = [lambda: archive.writer("host"), lambda: verify(archive), lambda: repair(archive)]
        uses += [lambda: archive.log("host/0").bounds()]
    for each in uses:
        with pytest.raises(StorageError, match="is a symbolic link"):
            each()
    assert {path: path.read_bytes() for path in moved.rglob("*") if path.is_file()} == before


def test_a_path_that_leads_to_itself(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for make in (Archive, Archive.create):
        with pytest.raises(StorageError):
            make(tmp_path / "loop" / "a")


@pytest.mark.parametrize("suffix", ["dat", "idx"])
def test_a_segment_that_has_lost_a_file_is_damage(suffix: str) -> None:
    disk = FaultyDisk(random.Random(1))
    archive = fill(disk)
    disk.spoil(FOLDER / f"{BASE}.{suffix}", None)
    first, end = archive.log("host/0").bounds()
    with pytest.raises(ArchiveDamaged, match=f"{suffix}.*there is none"):
        list(archive.log("host/0").read(first, end))
    told: list[tuple[int, int]] = []
    rows = archive.log("host/0").read(first, end, on_damage=lambda first, end, _why: told.append((first, end)))
    assert sum(len(chunk.rows) for chunk in rows) + sum(end - first for first, end in told) == end - first
    assert told


def test_a_segment_beyond_all_offsets_is_none(tmp_path: Path) -> None:
    archive = Archive.create(tmp_path)
    with archive.writer("host") as writer:
        add(writer, [b"abc"])
    folder = tmp_path / "host" / "0"
    (folder / ("9" * 20 + ".blk")).write_bytes(b"x")
    (folder / "watermark").unlink()
    repair(archive)
    assert archive.log("host/0").bounds()[0] == 0
