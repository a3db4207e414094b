"""Archives between processes: readers beside a writer that is killed, and recorders that start at once."""

from __future__ import annotations

import itertools
import random
from typing import TYPE_CHECKING

import pytest

from ipcbus.archive import Archive, Limits
from ipcbus.archive.verify import verify
from ipcbus.errors import ArchiveLocked
from tests.kit.archives import add, values_of
from tests.rings.children import Children, Flag

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.stress

LIMITS = Limits(segment_bytes=200_000, segment_seconds=10**9)


def value(offset: int) -> bytes:
    """What stands at an offset; the next value tells what is wrong with this one."""
    return b"%d " % offset * (1 + offset % 9)


def write(path: Path, seed: int, wrote: Flag) -> None:
    """Appends until it is killed."""
    rng = random.Random(seed)
    with Archive(path).writer("host", limits=LIMITS) as writer:
        for number in itertools.count():
            start = writer.next_offset
            add(writer, [value(start + row) for row in range(rng.randint(1, 200))], topic=f"topic {rng.randint(0, 9)}")
            if number == 20:
                wrote.raise_it()


def read(path: Path, wanted: Flag) -> int:
    """Reads all that is published, as soon as it is, until there is a flag and nothing new."""
    log = Archive(path).log("host/0")
    told = 0
    while True:
        asked = wanted.is_up()
        first, end = log.bounds()
        assert (first, end >= told) == (0, True), f"{first} to {end} after {told}"
        for chunk in log.read(told, end, max_rows=1000):
            names = log.topics()
            assert all(number in names for number in set(chunk.rows["topic"].tolist()))
            expected = [value(chunk.offset + row) for row in range(len(chunk.rows))]
            assert values_of([chunk]) == expected
            told = chunk.offset + len(chunk.rows)
        assert told == end
        if asked:
            return told


@pytest.mark.parametrize("lives", [6, pytest.param(300, marks=pytest.mark.long)])
def test_readers_beside_a_writer_that_is_killed(tmp_path: Path, lives: int) -> None:
    archive = Archive.create(tmp_path)
    archive.writer("host").close()
    end = 0
    with Children() as children, Flag() as done:
        readers = [children.run(read, tmp_path, done) for _ in range(2)]
        for life in range(lives):
            with Flag() as wrote:
                child = children.run(write, tmp_path, life, wrote)
                children.until(wrote)
                child.kill()
            assert archive.writing("host") is None
            shown = archive.log("host/0").bounds()[1]
            with archive.writer("host") as writer:
                assert (writer.next_offset, writer.recovered.hole) == (shown, 0)
            assert shown > end
            end = shown
        done.raise_it()
        assert children.results(readers) == [end, end]
    assert verify(archive) == []
    log = archive.log("host/0")
    assert values_of(log.read(0, end)) == [value(offset) for offset in range(end)]
    assert len(log.segments()) >= lives


def start(path: Path, stream: str, ready: Flag, go: Flag, tried: Flag, until: Flag) -> str:
    """Makes the archive and a log of it, and writes a row."""
    ready.raise_it()
    go.wait()
    archive = Archive.create(path)
    try:
        with archive.writer(stream) as writer:
            tried.raise_it()
            until.wait()
            add(writer, [stream.encode()])
            return f"{archive.id} {writer.log.key}"
    except ArchiveLocked:
        tried.raise_it()
        until.wait()
        return ""


@pytest.mark.parametrize("rounds", [5, pytest.param(200, marks=pytest.mark.long)])
def test_recorders_that_start_at_once_get_logs_of_their_own(tmp_path: Path, rounds: int) -> None:
    for number in range(rounds):
        path = tmp_path / str(number)
        with Children() as children, Flag() as ready, Flag() as go, Flag() as tried, Flag() as until:
            racing = [
                children.run(start, path, stream, ready, go, tried, until) for stream in ("a", "b", "c", "c", "d")
            ]
            for flag, raised in ((ready, go), (tried, until)):
                for _ in racing:
                    children.until(flag)
                for _ in racing:
                    raised.raise_it()
            found = children.results(racing)
        assert found.count("") == 1, found
        archive = Archive(path)
        keys = {each for each in found if each}
        assert keys == {f"{archive.id} {log.key}" for log in archive.logs()}
        assert sorted(log.partition for log in archive.logs()) == [0, 1, 2, 3]
        for log in archive.logs():
            assert values_of(log.read(0, 1)) == [log.stream.encode()]
        assert verify(archive) == []
