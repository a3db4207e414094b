"""Logs of snapshots: written whole, mended, rotated, read past what is damaged."""

from __future__ import annotations

import errno
import json
import os
from typing import TYPE_CHECKING

import pytest

import ipcbus
from ipcbus import stats
from ipcbus_tools import snapshot_log
from ipcbus_tools.common import Failure
from ipcbus_tools.snapshot_log import Recording, SnapshotLog

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "bus.jsonl"


def test_what_is_written_is_read(path: Path, domain: str) -> None:
    with ipcbus.Context(domain=domain) as context, SnapshotLog(str(path)) as log:
        source = context.source("t")
        taken: list[stats.DomainSnapshot] = []
        for _ in range(3):
            source.send(b"x", flush=True)
            taken.append(stats.rates(taken[-1] if taken else None, stats.take_snapshot(domain)))
            log.append(taken[-1].to_dict())
        assert (log.records, log.written) == (3, path.stat().st_size)
    found = Recording(path)
    assert list(found) == taken
    assert taken[2].seconds > 0
    assert found.damaged == 0


def test_damaged_lines_are_passed_over_and_counted(path: Path, domain: str) -> None:
    good = json.dumps(stats.take_snapshot(domain).to_dict()).encode()
    bad = [good[: len(good) // 2], b"[]", b"null", b'{"domain": 1}', b"\xff\xfe", b"[" * 100_000, b"7"]
    path.write_bytes(b"\n".join([good, *bad, b"", good, good[:-3]]))
    found = Recording(path)
    assert [each.domain for each in found] == [domain, domain]
    assert found.damaged == len(bad) + 1
    assert found.reason.startswith(f"snapshot 2 of {path}: ")
    assert (len(list(found)), found.damaged) == (2, len(bad) + 1)


def test_a_line_without_end_does_not_fill_memory(path: Path, monkeypatch: pytest.MonkeyPatch, domain: str) -> None:
    monkeypatch.setattr(snapshot_log, "LINE_MAX", 4096)
    good = json.dumps(stats.take_snapshot(domain).to_dict()).encode()
    path.write_bytes(b"x" * 10_000 + b"\n" + good + b"\n")
    found = Recording(path)
    assert len(list(found)) == 1
    assert found.damaged == 1


def test_a_torn_line_is_ended_before_the_next(path: Path) -> None:
    path.write_bytes(b'{"n": 1}\n{"n": ')
    for number in (2, 3):
        with SnapshotLog(str(path)) as log:
            log.append({"n": number})
    assert path.read_bytes() == b'{"n": 1}\n{"n": \n{"n": 2}\n{"n": 3}\n'


@pytest.mark.parametrize("recreated", [False, True])
def test_a_file_that_was_moved_is_made_anew(path: Path, recreated: bool) -> None:
    moved = path.with_suffix(".1")
    with SnapshotLog(str(path)) as log:
        log.append({"n": 1})
        path.rename(moved)
        if recreated:
            path.touch()
        log.append({"n": 2})
    assert [json.loads(each.read_text())["n"] for each in (moved, path)] == [1, 2]


def test_a_file_that_was_truncated_goes_on_at_its_begin(path: Path) -> None:
    with SnapshotLog(str(path)) as log:
        log.append({"n": 1})
        os.truncate(path, 0)
        log.append({"n": 2})
    assert path.read_text() == '{"n": 2}\n'


def test_a_record_is_one_write(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[bytes] = []

    def write(fd: int, data: memoryview) -> int:
        del fd
        written.append(bytes(data))
        return len(data)

    with SnapshotLog(str(path)) as log:
        monkeypatch.setattr(os, "write", write)
        log.append({"text": "x" * 100_000})
    assert [json.loads(each) for each in written] == [{"text": "x" * 100_000}]


def test_a_full_disk_is_named(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (
        SnapshotLog("/dev/full") as log,
        pytest.raises(Failure, match=r"/dev/full cannot be written: No space.*make room"),
    ):
        log.append({"n": 1})

    def short(fd: int, data: memoryview, write: object = os.write) -> int:
        if len(data) < 4:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(fd, data[:6])  # type: ignore[operator, no-any-return]

    with SnapshotLog(str(path)) as log:
        log.append({"n": 0})
        with monkeypatch.context() as patch:
            patch.setattr(os, "write", short)
            with pytest.raises(Failure):
                log.append({"n": 1})
        assert log.records == 1
    assert path.read_bytes() == b'{"n": 0}\n'


@pytest.mark.parametrize("kind", ["pipe", "shared"])
def test_what_a_failed_write_took_is_not_cut_off(kind: str, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From a pipe it cannot be taken back, and what others wrote behind it is theirs."""

    def short(fd: int, data: memoryview, write: object = os.write) -> int:
        if len(data) < 4:
            if kind == "shared":
                with path.open("ab") as file:
                    file.write(b"theirs\n")
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return write(fd, data[:6])  # type: ignore[operator, no-any-return]

    if kind == "pipe":
        os.mkfifo(path)
    reading = os.open(path, os.O_RDWR | os.O_CREAT)
    try:
        with SnapshotLog(str(path)) as log, monkeypatch.context() as patch:
            patch.setattr(os, "write", short)
            with pytest.raises(Failure):
                log.append({"n": 1})
        assert os.read(reading, 100) == (b'{"n": theirs\n' if kind == "shared" else b'{"n": ')
    finally:
        os.close(reading)


@pytest.mark.parametrize("name", ["missing/file", "."])
def test_what_cannot_be_opened_is_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(Failure, match="cannot be opened"), SnapshotLog(str(tmp_path / name)):
        pass
