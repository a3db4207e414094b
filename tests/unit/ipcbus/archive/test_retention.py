from __future__ import annotations

import random
import zlib
from pathlib import Path

import pytest

from ipcbus.archive import Archive, Limits, LogWriter
from ipcbus.errors import ConfigError, OffsetsExpired
from tests.kit.archives import add, values_of
from tests.kit.disks import FaultyDisk

ROOT = Path("/archive")
S = 10**9
EACH = 1016  # bytes of a segment on the disk: a row, a block and a message
NOW = 100 * S


@pytest.fixture
def disk() -> FaultyDisk:
    return FaultyDisk(random.Random(1))


def filled(disk: FaultyDisk, **limits: object) -> LogWriter:
    """A log of ten closed segments of one row each, a second apart, and one that is written."""
    writer = Archive.create(ROOT, files=disk).writer("host", limits=Limits(**limits))
    for number in range(10):
        add(writer, [bytes(904)], time_ns=number * S)
        writer.roll()
    add(writer, [b"last"], time_ns=10 * S)
    assert {segment.disk_bytes for segment in writer.log.segments()[:-1]} == {EACH}
    return writer


def test_without_limits_all_is_kept(disk: FaultyDisk) -> None:
    with filled(disk) as writer:
        assert writer.retain(10**18).segments == 0
        assert writer.log.bounds() == (0, 11)


def test_by_bytes_the_oldest_go(disk: FaultyDisk) -> None:
    with filled(disk, retain_bytes=5 * EACH) as writer:
        done = writer.retain(NOW)
        assert (done.segments, done.rows, done.bytes, done.missed) == (6, 6, 6 * EACH, {})
        assert writer.log.bounds() == (6, 11)
        assert writer.retain(NOW).segments == 0
        with pytest.raises(OffsetsExpired, match="6 to 10"):
            writer.log.read(5, 11)
        assert len(values_of(writer.log.read(6, 11))) == 5
        kept = {int(path.stem) for path in disk.content() if path.suffix in (".dat", ".idx", ".blk")}
        assert kept == {6, 7, 8, 9, 10}


def test_by_age_all_goes_that_is_older(disk: FaultyDisk) -> None:
    with filled(disk, retain_seconds=6) as writer:
        assert writer.retain(10 * S).segments == 4
        assert writer.log.bounds() == (4, 11)
        assert writer.retain(10**18).segments == 6
        assert writer.log.bounds() == (10, 11)  # what is written stays
        writer.roll()
        assert writer.retain(10**18).segments == 1
        assert writer.log.bounds() == (11, 11)
        assert add(writer, [b"next"]) == 11
    with Archive(ROOT, files=disk).writer("host") as again:
        assert again.next_offset == 12


def test_a_cursor_holds_what_it_needs_below_the_hard_cap(disk: FaultyDisk) -> None:
    cursors = Archive.create(ROOT, files=disk).cursors
    cursors.commit("fast", {"host/0": 9}, time_ns=NOW)
    cursors.commit("slow", {"host/0": 3}, time_ns=NOW)
    cursors.commit("elsewhere", {"other/1": 0}, time_ns=NOW, partitions=[1])
    with filled(disk, retain_bytes=2 * EACH, hard_cap_bytes=9 * EACH) as writer:
        assert writer.retain(NOW).segments == 3
        assert writer.log.bounds() == (3, 11)
        for number in range(4):
            add(writer, [bytes(904)], time_ns=(20 + number) * S)
            writer.roll()
        done = writer.retain(NOW)
        assert done.segments == 3
        assert done.missed == {"slow": 3}
        assert writer.log.bounds() == (6, 15)
        cursors.commit("slow", {"host/0": 14}, time_ns=NOW)
        writer.retain(NOW)
        assert writer.log.bounds()[0] == 9  # the other one needs that
        cursors.remove("fast")
        writer.retain(NOW)
        assert writer.log.bounds()[0] == 13


def test_the_hard_cap_is_twice_the_limit_by_default(disk: FaultyDisk) -> None:
    Archive.create(ROOT, files=disk).cursors.commit("slow", {"host/0": 0}, time_ns=NOW)
    with filled(disk, retain_bytes=2 * EACH) as writer:
        assert writer.retain(NOW).missed == {"slow": 7}
        assert writer.log.bounds() == (7, 11)


def test_a_stale_cursor_holds_nothing(disk: FaultyDisk) -> None:
    Archive.create(ROOT, files=disk).cursors.commit("gone", {"host/0": 0}, time_ns=NOW)
    with filled(disk, retain_seconds=1, cursor_max_age_seconds=60) as writer:
        assert writer.retain(NOW + 60 * S).segments == 0
        assert writer.retain(NOW + 61 * S).segments == 10


@pytest.mark.parametrize(("partitions", "removed"), [(None, 0), ([0, 5], 0), ([1, 5], 10)])
def test_a_cursor_holds_a_log_that_it_has_not_seen_yet(
    disk: FaultyDisk, partitions: list[int] | None, removed: int
) -> None:
    Archive.create(ROOT, files=disk).cursors.commit("reader", {"other/1": 7}, time_ns=NOW, partitions=partitions)
    with filled(disk, retain_seconds=1) as writer:
        assert writer.retain(NOW).segments == removed


def test_a_damaged_cursor_is_told_and_holds_nothing(disk: FaultyDisk) -> None:
    archive = Archive.create(ROOT, files=disk)
    good = {"group": "spark", "format": 1, "offsets": {"host/0": 0}, "time_ns": NOW}
    for wrong in (
        *(b"", b"{", b"[]", b"\xff", b"[" * 100_000, b"1", b'{"format":1}', b'"' + bytes(2_000_000)),
        *(
            str(good).replace("'", '"').replace(*change).encode()
            for change in (
                ('"format": 1', '"format": 2'),
                ('"host/0": 0', '"host/0": -1'),
                ('"host/0": 0', '"host/0": 1.5'),
                ('"host/0": 0', '"host/0": true'),
                ('"host/0": 0', f'"host/0": {2**64}'),
                (str(NOW), '"now"'),
                *(
                    (str(NOW), f'{NOW}, "partitions": {wrong}')
                    for wrong in ("0", "[-1]", '["0"]', "[true]", '{"0": 1}')
                ),
            )
        ),
    ):
        archive.cursors.commit("spark", {"host/0": 0}, time_ns=NOW)
        assert list(archive.cursors.all()) == ["spark"]
        disk.spoil(ROOT / "consumers" / "spark.json", wrong)
        assert archive.cursors.all() == {}
        assert list(archive.cursors.damaged()) == ["spark"]
    with filled(disk, retain_seconds=1) as writer:
        assert writer.retain(NOW).segments == 10


def test_cursors_are_canonical(disk: FaultyDisk) -> None:
    archive = Archive.create(ROOT, files=disk)
    archive.cursors.commit("a-b", {"z/1": 5, "a/0": 2**62}, time_ns=7)
    text = disk.content()[ROOT / "consumers" / "a-b.json"]
    plain = b'{"format":1,"group":"a-b","offsets":{"a/0":4611686018427387904,"z/1":5},"time_ns":7}'
    assert text == b'{"crc32":"%08x",' % zlib.crc32(plain) + plain[1:]
    found = archive.cursors.all()["a-b"]
    assert (found.offsets, found.time_ns, found.partitions) == ({"z/1": 5, "a/0": 2**62}, 7, None)
    archive.cursors.commit("some", {}, time_ns=7, partitions={3, 1})
    text = disk.content()[ROOT / "consumers" / "some.json"]
    assert text.endswith(b',"format":1,"group":"some","offsets":{},"partitions":[1,3],"time_ns":7}')
    assert archive.cursors.all()["some"].partitions == (1, 3)
    archive.cursors.remove("some")
    archive.cursors.commit("a-b", {})
    assert archive.cursors.all()["a-b"].time_ns > 10**18
    archive.cursors.remove("a-b")
    archive.cursors.remove("a-b")
    assert archive.cursors.all() == {}
    for group in ("", ".x", "a/b", "a\0", "x" * 101):
        with pytest.raises(ConfigError, match="consumer"):
            archive.cursors.commit(group, {})
        with pytest.raises(ConfigError, match="consumer"):
            archive.cursors.remove(group)
    with pytest.raises(ConfigError, match="offset -1"):
        archive.cursors.commit("a", {"host/0": -1})


def test_who_reads_a_segment_that_is_removed_reads_it_to_its_end(tmp_path: Path) -> None:
    archive = Archive.create(tmp_path)
    with archive.writer("host", limits=Limits(retain_bytes=0)) as writer:
        for number in range(20):
            add(writer, [b"%d" % number] * 50)
        writer.roll()
        add(writer, [b"x"])
        reading = writer.log.read(0, 1001, max_rows=10)
        first = next(reading)
        assert writer.retain(NOW).segments == 1
        values = [b"%d" % number for number in range(20) for _ in range(50)]
        assert values_of([first, *reading]) == [*values, b"x"]


def test_who_comes_to_a_segment_that_was_removed_is_told(tmp_path: Path) -> None:
    archive = Archive.create(tmp_path)
    with archive.writer("host", limits=Limits(retain_bytes=0)) as writer:
        for _ in range(3):
            add(writer, [b"x"] * 50)
            writer.roll()
        reading = writer.log.read(0, 150, max_rows=50)
        next(reading)
        writer.retain(NOW)
        with pytest.raises(OffsetsExpired, match="150"):
            list(reading)


def test_a_damaged_segment_is_as_old_as_what_follows_it(disk: FaultyDisk) -> None:
    with filled(disk, retain_seconds=5) as writer:
        for path in disk.content():
            if path.suffix == ".blk" and int(path.stem) in (1, 8):
                disk.spoil(path, b"?" * 64)
        log = Archive(ROOT, files=disk).log("host/0")
        assert [segment.last_receive_ns for segment in log.segments() if segment.damaged] == [0, 0]
        assert writer.retain(8 * S).segments == 3  # 2 is the first that is young enough, and 1 ended before it
        assert writer.retain(13 * S).segments == 5
        assert writer.log.bounds() == (8, 11)
