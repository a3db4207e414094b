from __future__ import annotations

import random
import zlib
from pathlib import Path

import numpy as np
import pytest

from ipcbus.archive import Archive, Limits
from ipcbus.archive.archive_layout import BATCH_WAIT, LOSS_TYPES, TYPE_LOSS_DAMAGE, TYPE_LOSS_RECORDER, WATERMARK_AT
from ipcbus.archive.repair import repair
from ipcbus.archive.verify import verify
from ipcbus.errors import ArchiveDamaged, ArchiveLocked, OffsetsExpired
from ipcbus.message import MessageType
from tests.kit.archives import add, made, values_of
from tests.kit.disks import FaultyDisk

ROOT = Path("/archive")
FOLDER = ROOT / "host" / "0"
DATA, EOS, BOS = (int(kind) for kind in (MessageType.DATA, MessageType.EOS, MessageType.BOS))
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
        assert "again" in done[0].what
    else:
        assert lost == list(range(finding.first, finding.end))
        assert base < lost[0]
        assert sum(each.lost for each in done) == 10
    segments = archive.log("host/0").segments()
    assert sum(each.losses for each in segments) == sum(each.lost for each in segments) == len(lost)
    assert TYPE_LOSS_DAMAGE in LOSS_TYPES


@pytest.mark.parametrize("suffix", ["dat", "idx"])
def test_events_stay_and_losses_count_numbers_where_only_messages_are_damaged(suffix: str) -> None:
    disk = FaultyDisk(random.Random(1))
    archive = Archive.create(ROOT, files=disk)
    with archive.writer("host") as writer:
        values = [b"", b"abc", b"defgh", b"", b"ijk", b""]
        rows, data = made(values, topic=writer.topic("t"), session=writer.session("s"))
        rows["type"] = [BOS, DATA, DATA, TYPE_LOSS_RECORDER, DATA, EOS]
        rows["numbers"] = [0, BATCH_WAIT | 7, 3, 40, 1, 0]
        writer.append(rows, data)
        add(writer, [b"good"])
    path = segment(disk, 0, suffix)
    disk.spoil(path, flipped(disk.content()[path], 1))
    (done,) = repair(archive)
    assert verify(archive) == []
    chunks = list(archive.log("host/0").read(0, 7))
    rows = np.concatenate([chunk.rows for chunk in chunks])
    kept = [(int(row["type"]), int(row["numbers"])) for row in rows]
    if suffix == "idx":  # what the rows were is not known
        assert (kept[:6], done.lost) == ([(TYPE_LOSS_DAMAGE, 1)] * 6, 6)
        return
    lost = [(TYPE_LOSS_DAMAGE, numbers) for numbers in (1, 3, 1)]
    assert kept == [(BOS, 0), *lost[:2], (TYPE_LOSS_RECORDER, 40), lost[2], (EOS, 0), (DATA, 1)]
    assert done.lost == 3
    assert "except 3 rows" in done.what
    assert values_of(chunks) == [b""] * 6 + [b"good"]
    assert (rows["topic"] > 0).tolist() == [True, False, False, True, False, True, True]
    (found,) = archive.log("host/0").segments()
    assert (found.losses, found.lost) == (4, 45)


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


@pytest.mark.parametrize("suffixes", [("blk",), ("blk", "idx", "dat")])
@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_deleted_segment_is_damage(disk: FaultyDisk, number: int, suffixes: tuple[str, ...]) -> None:
    """And no power loss: the log knows which offsets power losses and retention took."""
    base = int(segment(disk, number, "blk").stem)
    end = ROWS if number == 2 else int(segment(disk, number + 1, "blk").stem)
    for suffix in suffixes:
        disk.spoil(FOLDER / f"{base:020d}.{suffix}", None)
    archive = Archive(ROOT, files=disk)
    log = archive.log("host/0")
    assert log.bounds() == (0, ROWS)
    assert log.missing() == [(base, end)]
    (finding,) = verify(archive)
    assert (finding.file, finding.first, finding.end) == (f"host/0/{base:020d}.blk", base, end)
    assert "neither retention nor a power loss" in finding.what
    with pytest.raises(ArchiveDamaged, match=f"rows {base} to {end - 1} .*neither retention nor a power loss"):
        list(log.read(0, ROWS))
    told: list[tuple[int, int]] = []
    rows = log.read(0, ROWS, on_damage=lambda first, end, _why: told.append((first, end)))
    assert len(values_of(rows)) == ROWS - (end - base)
    assert told == [(base, end)]
    with archive.writer("host"):  # the next recorder does not take it for a hole either
        pass
    assert archive.log("host/0").missing() == [(base, end)]
    assert sum(each.lost for each in repair(archive)) == end - base
    assert verify(archive) == []
    found, lost, holes = read_all(archive)
    assert (lost, holes, len(found)) == (list(range(base, end)), 0, ROWS - (end - base))


def test_retention_is_told_from_damage_and_a_power_loss_from_both(disk: FaultyDisk) -> None:
    archive = Archive(ROOT, files=disk)
    archive.cursors.remove("spark")  # it would hold all segments
    with archive.writer("host", limits=Limits(retain_bytes=20_000)) as writer:
        assert writer.retain(0).segments == 1
        kept = writer.log.bounds()[0]
        add(writer, words(10, ROWS))
    assert (kept > 0, verify(archive), archive.log("host/0").missing()) == (True, [], [])
    with pytest.raises(OffsetsExpired, match=f"has offsets {kept} to"):
        archive.log("host/0").read(0, ROWS)
    writer = archive.writer("host", limits=Limits(sync="never"))
    add(writer, words(10, ROWS + 10))
    after = disk.lost_power()
    archive = Archive(ROOT, files=after)
    with archive.writer("host") as writer:
        assert writer.recovered.hole
        add(writer, words(1, 0))
    log = archive.log("host/0")
    assert (log.missing(), verify(archive)) == ([], [])
    with pytest.raises(OffsetsExpired, match="power was lost"):
        list(log.read(*log.bounds()))
    last = sorted(path for path in after.content() if path.suffix == ".blk")[-1]
    after.spoil(last, None)
    assert archive.log("host/0").missing() == [(int(last.stem), int(last.stem) + 1)]


def test_an_archive_of_an_older_release_is_read_and_gets_what_it_lacks(disk: FaultyDisk) -> None:
    """No checksum in `archive.json` and cursors, no list of what is gone."""
    archive = Archive(ROOT, files=disk)
    text = b'{"created_ns":1,"format":1,"host":"h","id":"%s"}' % archive.id.encode()
    disk.spoil(ROOT / "archive.json", text)
    disk.spoil(ROOT / "consumers" / "spark.json", b'{"format":1,"group":"spark","offsets":{"host/0":7},"time_ns":9}')
    older = bytearray(disk.content()[FOLDER / "watermark"])
    for at in WATERMARK_AT:
        older[at + 88 : at + 92] = bytes(4)
        older[at + 92 : at + 96] = zlib.crc32(older[at : at + 92]).to_bytes(4, "little")
    disk.spoil(FOLDER / "watermark", bytes(older))
    disk.spoil(FOLDER / "gone.json", None)
    disk.spoil(segment(disk, 1, "blk"), None)
    archive = Archive(ROOT, files=disk)
    assert archive.cursors.all()["spark"].offsets == {"host/0": 7}
    assert all("does not belong to a published segment" in finding.what for finding in verify(archive))
    with pytest.raises(OffsetsExpired, match="or their segment was removed"):
        list(archive.log("host/0").read(0, ROWS))
    with Archive.create(ROOT, files=disk).writer("host"):
        pass
    assert disk.content()[ROOT / "archive.json"] != text
    with pytest.raises(OffsetsExpired, match="power was lost"):  # what else, as nothing else is known
        list(archive.log("host/0").read(0, ROWS))
    assert Archive(ROOT, files=disk).id == archive.id


@pytest.mark.parametrize("bits", [1, pytest.param(8, marks=pytest.mark.long)])
@pytest.mark.parametrize("name", ["archive.json", "consumers/spark.json", "host/0/gone.json"])
def test_any_flipped_bit_of_a_small_file_is_found_and_mended(name: str, bits: int) -> None:
    """Of each byte one bit, in its turn; the long form flips all."""
    disk = FaultyDisk(random.Random(1))
    with Archive.create(ROOT, files=disk).writer("host") as writer:
        add(writer, words(1, 0))
    Archive(ROOT, files=disk).cursors.commit("spark", {"host/0": 1})
    good = disk.content()[ROOT / name]
    ident = Archive(ROOT, files=disk).id
    for number in range(bits * len(good)):
        at = number if bits == 8 else 8 * number + number % 8
        changed = bytearray(good)
        changed[at // 8] ^= 1 << at % 8
        disk.spoil(ROOT / name, bytes(changed))
        archive = Archive(ROOT, files=disk, lenient=True)
        assert [finding.file for finding in verify(archive)] == [name], at
        if number % 29 == 0:
            repair(archive)
            assert verify(archive) == []
            assert archive.id == ident
            if name == "archive.json":
                assert disk.content()[ROOT / name] == good


def test_an_archive_whose_identity_is_lost_is_not_given_another_one(disk: FaultyDisk) -> None:
    good = disk.content()[ROOT / "archive.json"]
    disk.spoil(ROOT / "archive.json", good.replace(b'"id":"', b'"id":"00')[:-3] + b'"}')
    with pytest.raises(ArchiveDamaged, match="restore it from a copy, or run 'ipcbus archive repair'"):
        Archive(ROOT, files=disk)
    with pytest.raises(ArchiveDamaged):
        Archive.create(ROOT, files=disk)
    archive = Archive(ROOT, files=disk, lenient=True)
    assert (archive.id, len(archive.log("host/0").segments())) == ("", 3)
    with pytest.raises(ArchiveDamaged, match="checksum"):
        repair(archive)


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


@pytest.mark.parametrize("part", [0, *(pytest.param(part, marks=pytest.mark.long) for part in range(1, 4))])
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
