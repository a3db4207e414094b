from __future__ import annotations

import random
from pathlib import Path

import pytest

from ipcbus.archive import Archive, Limits
from ipcbus.archive.layout import LOSS_TYPES, TYPE_LOSS_DAMAGE
from ipcbus.archive.repair import repair
from ipcbus.archive.verify import verify
from ipcbus.errors import ArchiveDamaged, ArchiveLocked, OffsetsExpired
from tests.kit.archives import add, values_of
from tests.kit.disks import FaultyDisk

ROOT = Path("/archive")
FOLDER = ROOT / "host" / "0"
ROWS = 400


def words(count: int, start: int) -> list[bytes]:
    return [f"value {number}".encode() for number in range(start, start + count)]


@pytest.fixture
def disk() -> FaultyDisk:
    """A disk with an archive of three segments, of ten blocks each."""
    made = FaultyDisk(random.Random(1))
    fill(made)
    return made


def fill(disk: FaultyDisk) -> Archive:
    archive = Archive.create(ROOT, files=disk)
    with archive.writer("host", limits=Limits(segment_bytes=10_000)) as writer:
        for start in range(0, ROWS, 10):
            add(writer, words(10, start), topic=f"topic {start // 100}", time_ns=start)
        assert len(writer.log.segments()) == 3
    archive.cursors.commit("spark", {"host/0": 7})
    return archive


def flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :]


def segment(disk: FaultyDisk, number: int, suffix: str) -> Path:
    return [path for path in sorted(disk.content()) if path.suffix == f".{suffix}"][number]


def read_all(archive: Archive) -> tuple[dict[int, bytes], list[int], int]:
    """Values by offset, offsets of rows that damage took, and how many offsets are holes."""
    log = archive.log("host/0")
    found: dict[int, bytes] = {}
    lost: list[int] = []
    holes: list[int] = []
    for chunk in log.read(*log.bounds(), on_hole=lambda first, end: holes.append(end - first)):
        for offset, row, value in zip(
            range(chunk.offset, chunk.offset + len(chunk.rows)), chunk.rows, values_of([chunk]), strict=True
        ):
            if row["type"] == TYPE_LOSS_DAMAGE:
                assert (row["numbers"], row["topic"], row["session"], value) == (1, 0, 0, b"")
                lost.append(offset)
            else:
                found[offset] = value
    first, end = log.bounds()
    assert len(found) + len(lost) + sum(holes) == end - first
    return found, lost, sum(holes)


def test_a_whole_archive_has_no_finding_and_needs_no_repair(disk: FaultyDisk) -> None:
    archive = Archive(ROOT, files=disk)
    before = disk.content()
    assert verify(archive) == []
    assert repair(archive) == []
    after = disk.content()
    assert {path for path in after if before.get(path) != after[path]} <= {FOLDER / "watermark"}
    assert verify(archive) == []


@pytest.mark.parametrize("suffix", ["idx", "dat", "blk"])
def test_a_damaged_block_becomes_losses(disk: FaultyDisk, suffix: str) -> None:
    path = segment(disk, 1, suffix)
    base = int(path.stem)
    size = len(disk.content()[path])
    disk.spoil(path, flipped(disk.content()[path], size // 2))
    archive = Archive(ROOT, files=disk)
    (finding,) = verify(archive)
    assert finding.log == "host/0"
    assert finding.file.startswith("host/0/")
    assert finding.first is not None
    assert finding.end == finding.first + 10
    with pytest.raises(ArchiveDamaged, match="repair"):
        read_all(archive)
    done = repair(archive)
    found, lost, holes = read_all(archive)
    assert verify(archive) == []
    assert repair(archive) == []
    assert holes == 0
    assert sorted({*found, *lost}) == list(range(ROWS))
    assert all(found[offset] == words(1, offset)[0] for offset in found)
    if suffix == "blk":  # only its record was damaged
        assert lost == []
        assert "anew" in done[0].what
    else:
        assert lost == list(range(finding.first, finding.end))
        assert base < lost[0]
        assert sum(each.lost for each in done) == 10
    segments = archive.log("host/0").segments()
    assert sum(each.losses for each in segments) == sum(each.lost for each in segments) == len(lost)
    assert TYPE_LOSS_DAMAGE in LOSS_TYPES


def test_two_damaged_records_of_blocks_are_written_anew(disk: FaultyDisk) -> None:
    path = segment(disk, 0, "blk")
    data = disk.content()[path]
    disk.spoil(path, flipped(flipped(data, 64 * 3 + 60), 64 * 4 + 45))
    archive = Archive(ROOT, files=disk)
    assert len(verify(archive)) == 1
    repair(archive)
    found, lost, holes = read_all(archive)
    assert (len(found), lost, holes) == (ROWS, [], 0) or lost == list(range(40, 50))
    assert verify(archive) == []


@pytest.mark.parametrize("suffix", ["idx", "dat"])
def test_a_missing_file_costs_its_segment(disk: FaultyDisk, suffix: str) -> None:
    path = segment(disk, 0, suffix)
    disk.spoil(path, None)
    archive = Archive(ROOT, files=disk)
    assert "missing" in verify(archive)[0].what
    with pytest.raises(ArchiveDamaged, match="there is none"):
        read_all(archive)
    repair(archive)
    found, lost, holes = read_all(archive)
    assert holes == 0
    assert lost == list(range(int(segment(disk, 1, "blk").stem)))
    assert len(found) == ROWS - len(lost)
    assert verify(archive) == []


def test_a_segment_without_records_of_blocks_is_a_hole(disk: FaultyDisk) -> None:
    disk.spoil(segment(disk, 1, "blk"), None)
    archive = Archive(ROOT, files=disk)
    assert len(verify(archive)) == 2
    with pytest.raises(OffsetsExpired, match="lost"):
        list(archive.log("host/0").read(0, ROWS))
    repair(archive)
    assert verify(archive) == []
    found, lost, holes = read_all(archive)
    assert (lost, len(found) + holes) == ([], ROWS)


def test_a_missing_watermark_is_made_anew(disk: FaultyDisk) -> None:
    archive = Archive(ROOT, files=disk)
    for spoilt in (None, b"", b"\0" * 1120):
        copy = disk.killed()
        copy.spoil(FOLDER / "watermark", spoilt)
        archive = Archive(ROOT, files=copy)
        (finding,) = verify(archive)
        assert "watermark" in finding.file
        with pytest.raises(ArchiveDamaged, match="repair"):
            archive.writer("host")
        repair(archive)
        assert verify(archive) == []
        assert len(read_all(archive)[0]) == ROWS
        with archive.writer("host") as writer:
            assert writer.next_offset > ROWS
            add(writer, words(1, 0))
        assert len(read_all(archive)[0]) == ROWS + 1


def test_one_damaged_watermark_of_three_costs_nothing(disk: FaultyDisk) -> None:
    for at in (0, 512, 1024):
        copy = disk.killed()
        copy.spoil(FOLDER / "watermark", flipped(copy.content()[FOLDER / "watermark"], at + 20))
        archive = Archive(ROOT, files=copy)
        assert [finding.at for finding in verify(archive)] == [at]
        repair(archive)
        assert verify(archive) == []
        assert read_all(archive)[::2] == (dict(enumerate(words(ROWS, 0))), 0)
        assert archive.log("host/0").bounds() == (0, ROWS)


def test_names_that_are_lost_get_names_that_say_so(disk: FaultyDisk) -> None:
    data = disk.content()[FOLDER / "names"]
    disk.spoil(FOLDER / "names", flipped(data, 12))
    archive = Archive(ROOT, files=disk)
    assert any(finding.file.endswith("names") for finding in verify(archive))
    with pytest.raises(ArchiveDamaged, match="names"):
        archive.log("host/0").topics()
    with pytest.raises(ArchiveDamaged, match="repair"):
        archive.writer("host")
    repair(archive)
    assert verify(archive) == []
    assert sorted(archive.log("host/0").topics().values()) == [
        "lost name 1",
        "lost name 2",
        *map("topic {}".format, (1, 2, 3)),
    ]
    assert len(read_all(archive)[0]) == ROWS
    with archive.writer("host") as writer:
        assert writer.topic("new") == 6


def test_a_damaged_cursor_goes_and_a_missing_claim_comes_back(disk: FaultyDisk) -> None:
    disk.spoil(ROOT / "consumers" / "spark.json", b"{")
    disk.spoil(ROOT / "partitions" / "0", None)
    archive = Archive(ROOT, files=disk)
    assert sorted(finding.file for finding in verify(archive)) == ["consumers/spark.json", "partitions/0"]
    assert archive.cursors.all() == {}
    repair(archive)
    assert verify(archive) == []
    assert disk.content()[ROOT / "partitions" / "0"] == b"host\n"


def test_repair_refuses_while_somebody_writes(disk: FaultyDisk) -> None:
    archive = Archive(ROOT, files=disk)
    with archive.writer("host") as writer:
        add(writer, words(10, 0))
        assert verify(archive) == []
        with pytest.raises(ArchiveLocked, match="host"):
            repair(archive)
        archive.writer("another").close()
        with archive.writer("zebra"):
            pass
        with pytest.raises(ArchiveLocked, match="host"):
            repair(archive)
        assert disk.locks == {str(ROOT / "host" / "lock")}
    assert disk.locks == set()


def damaged(rng: random.Random, disk: FaultyDisk) -> None:
    """Damages some files in some way."""
    paths = [path for path in sorted(disk.content()) if path.name not in ("archive.json", "lock")]
    for path in rng.sample(paths, rng.randint(1, 4)):
        data = disk.content()[path]
        kind = rng.random()
        if kind < 0.15:
            disk.spoil(path, None)
        elif kind < 0.3:
            disk.spoil(path, data[: rng.randint(0, len(data))])
        elif kind < 0.4:
            disk.spoil(path, data + rng.randbytes(rng.randint(1, 200)))
        elif kind < 0.5:
            disk.spoil(path, rng.randbytes(rng.randint(0, 2 * len(data))))
        else:
            for _ in range(rng.randint(1, 3)):
                start = rng.randrange(len(data))
                data = data[:start] + rng.randbytes(rng.choice((1, 8, 500))) + data[start + 1 :]
            disk.spoil(path, data)


@pytest.mark.parametrize("part", range(4))
def test_whatever_is_damaged_can_be_repaired(part: int) -> None:
    for seed in range(25 * part, 25 * part + 25):
        rng = random.Random(seed)
        disk = FaultyDisk(rng)
        fill(disk)
        damaged(rng, disk)
        archive = Archive(ROOT, files=disk)
        findings = verify(archive)
        done = repair(archive)
        assert bool(findings) >= bool(done), f"seed {seed}"
        assert verify(archive) == [], f"seed {seed}"
        found, _, _ = read_all(archive)
        wrong = [offset for offset, value in found.items() if value != words(1, offset)[0]]
        assert wrong == [], f"seed {seed}"
        with archive.writer("host") as writer:
            assert writer.next_offset >= ROWS, f"seed {seed}"
