"""A copy of an archive that is being written, made in the order of docs/how-to/cluster.md: never wrong, only older."""

from __future__ import annotations

import os
import random
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from ipcbus import ArchiveError
from ipcbus.archive import Archive, Limits, LogWriter
from tests.kit.records import append, counted

PAGE = Path(__file__).parents[4] / "docs" / "how-to" / "cluster.md"
LIMITS = Limits(segment_bytes=6_000, segment_seconds=1e9, retain_bytes=60_000)


class Recording:
    """An archive into which something is written at every turn."""

    def __init__(self, archive: Archive, writer: LogWriter, seed: int) -> None:
        """Has some segments already."""
        self.archive, self.writer, self.dice = archive, writer, random.Random(seed)
        self.next = 0
        for _ in range(150):
            self.go_on()

    def go_on(self) -> None:
        """Messages, now and then of a new topic; the oldest are given up."""
        count = self.dice.randrange(1, 20)
        append(self.writer, counted(count, self.next, f"t{self.next // 100}"))
        self.next += count
        self.writer.retain(0)


def files(root: Path) -> list[Path]:
    """What the archive has, without what is not shipped."""
    found = (path.relative_to(root) for path in sorted(root.rglob("*")) if path.is_file())
    return [path for path in found if path.name != "lock" and path.parts[0] != "consumers"]


def copy(recording: Recording, to: Path, wanted: list[Path]) -> None:
    """Copies files while the recorder goes on; what is gone meanwhile is not copied."""
    recording.dice.shuffle(wanted)
    for path in wanted:
        target = to / path
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            shutil.copyfile(recording.archive.path / path, target.with_name("copying"))
        except FileNotFoundError:
            continue
        target.with_name("copying").rename(target)
        recording.go_on()


def ship(recording: Recording, to: Path, marks: Path) -> None:
    """The order of the page."""
    root = recording.archive.path
    copy(recording, marks, [path for path in files(root) if path.name == "watermark"])
    late = ("watermark", "gone.json")
    copy(recording, to, [path for path in files(root) if path.name not in late and path.suffix != ".blk"])
    copy(recording, to, [path for path in files(root) if path.suffix == ".blk"])
    copy(recording, to, [path for path in files(root) if path.name == "gone.json"])
    for path in files(marks):
        shutil.copyfile(marks / path, to / path)


def check(copied: Path, upto: int) -> int:
    """Reads all of a copy, whose values are their offsets; returns its end."""
    (log,) = Archive(copied).logs()
    first, end = log.bounds()
    assert first < end <= upto
    at = first
    for chunk in log.read(first, end):
        assert chunk.offset == at
        at += len(chunk.rows)
        assert np.array_equal(chunk.data.view(">u8"), np.arange(chunk.offset, at))
    assert at == end
    return end


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1, 8))])
def test_copies_one_over_the_other_are_always_whole(tmp_path: Path, seed: int) -> None:
    archive, to = Archive.create(tmp_path / "from"), tmp_path / "to"
    end = 0
    with archive.writer("host", limits=LIMITS) as writer:
        recording = Recording(archive, writer, seed)
        for number in range(4):
            before = recording.next
            ship(recording, to, tmp_path / f"marks{number}")
            assert check(to, recording.next) >= before > end
            end = before
        assert archive.log("host/0").bounds()[0] > 0
    assert Archive(to).id == archive.id


def test_a_copy_whose_watermark_is_from_after_its_rows_is_noticed(tmp_path: Path) -> None:
    """So the order matters, and the check above can fail."""
    archive, to = Archive.create(tmp_path / "from"), tmp_path / "to"
    with archive.writer("host", limits=LIMITS) as writer:
        recording = Recording(archive, writer, 0)
        everything = files(archive.path)
        copy(recording, to, [path for path in everything if path.name != "watermark"])
        copy(recording, to, [path for path in everything if path.name == "watermark"])
        with pytest.raises(ArchiveError):
            check(to, recording.next)


@pytest.mark.skipif(shutil.which("rsync") is None, reason="there is no rsync")
def test_the_script_of_the_page(tmp_path: Path) -> None:
    (text,) = re.findall(r"^```sh\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    archive, to = Archive.create(tmp_path / "from"), tmp_path / "to"
    to.mkdir()
    script = text.replace("/data/traffic", str(archive.path)).replace("storage:/mnt/traffic/desk1", str(to))
    assert str(archive.path) in script
    assert str(to) in script
    with archive.writer("host", limits=LIMITS) as writer:
        recording = Recording(archive, writer, 1)
        for _ in range(2):
            env = {**os.environ, "TMPDIR": str(tmp_path)}
            subprocess.run(["sh", "-eu"], input=script, text=True, check=True, env=env)
            assert check(to, recording.next) == recording.next
            recording.go_on()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["from", "to"]
    assert not (to / "host" / "lock").exists()
