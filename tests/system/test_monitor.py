"""`ipcbus monitor` as a process: what it writes, and what happens to its file meanwhile."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import sys
from functools import partial
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

import ipcbus
from ipcbus.stats import DomainSnapshot
from ipcbus_tools.cli import cli
from ipcbus_tools.snapshot_log import Recording
from tests.kit.waiting import until
from tests.system.test_cli_numbers import fits
from tests.system.test_cli_processes import SIGNALS, started

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from click.testing import Result

    from ipcbus import Source

QUICK = ("--interval", "0.05")


@pytest.fixture
def source(domain: str) -> Iterator[Source]:
    with ipcbus.Context(domain=domain) as context:
        yield context.source("t")


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["monitor", *QUICK, *arguments])


def test_snapshots_with_rates(domain: str, source: Source, tmp_path: Path) -> None:
    source.send(b"x", flush=True)
    path = tmp_path / "log"
    for _ in range(2):
        result = run("--log", str(path), "-n", "2", "--domain", domain, "--json")
        assert result.exit_code == 0, result.output
        assert json.loads(result.stdout)["snapshots"] == 2
    recording = Recording(path)
    found = list(recording)
    assert (len(found), recording.damaged) == (4, 0)
    for each in found:
        (session,) = each.sessions
        assert session.source == source.source
        assert session.per_second["lbm_msgs_sent"] == 0
        assert each.seconds > 0
    taken = [each.taken_ns for each in found]
    assert taken == sorted(set(taken))


def test_on_stdout(domain: str, source: Source) -> None:
    with started("monitor", "--log", "-", "-n", "3", *QUICK, "--domain", domain, "--json") as process:
        output, errors = process.communicate()
    assert (process.returncode, errors) == (0, "")
    lines = [json.loads(line) for line in output.splitlines()]
    for line in lines:
        fits("snapshot", line)
    found = [DomainSnapshot.from_dict(line) for line in lines]
    assert [each.domain for each in found] == [domain] * 3


def test_reader_of_the_output_goes_away(domain: str) -> None:
    with started("monitor", "--log", "-", *QUICK, "--domain", domain) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        process.wait()
        assert process.returncode == 141
        assert process.stderr.read() == ""
        process.stdout = None


def test_rotation_and_a_torn_line(domain: str, tmp_path: Path) -> None:
    path, moved = tmp_path / "log", tmp_path / "log.1"
    path.write_text('{"domain": "cut sho')
    with started("monitor", "--log", str(path), *QUICK, "--domain", domain) as process:
        until(lambda: _lines(path) >= 3, "two snapshots behind the torn line")
        path.rename(moved)
        until(lambda: path.exists() and _lines(path) >= 2, "two snapshots in the new file")
        process.send_signal(signal.SIGINT)
        process.communicate()
    old, new = Recording(moved), Recording(path)
    total = [each.taken_ns for each in old] + [each.taken_ns for each in new]
    assert total == sorted(set(total))
    assert (old.damaged, new.damaged) == (1, 0)


def _lines(path: Path) -> int:
    return path.read_bytes().count(b"\n")


def _holds(path: Path, lines: int) -> bool:
    return path.exists() and _lines(path) >= lines


@SIGNALS
def test_signal_ends_it(domain: str, tmp_path: Path, number: int, code: int) -> None:
    path = tmp_path / "log"
    with started("monitor", "--log", str(path), *QUICK, "--domain", domain) as process:
        until(lambda: path.exists() and _lines(path), "a snapshot")
        process.send_signal(number)
        assert process.communicate() == ("", "")
        assert process.returncode == code
    assert Recording(path).damaged == 0


def test_a_kill_costs_no_more_than_a_line(domain: str, source: Source, tmp_path: Path) -> None:
    path = tmp_path / "log"
    for number in (2, 4):
        with started("monitor", "--log", str(path), *QUICK, "--domain", domain) as process:
            until(partial(_holds, path, number), f"{number} snapshots")
            process.kill()
    recording = Recording(path)
    assert len(list(recording)) >= 4
    assert recording.damaged == 0


def test_progress_on_a_terminal(domain: str, tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "ipcbus_tools", "monitor", "--log", str(tmp_path / "log"), "-n", "2"]
    done = subprocess.run([*command, *QUICK, "--domain", domain], stderr=theirs, stdout=subprocess.PIPE, check=True)
    os.close(theirs)
    shown = b""
    while select.select([ours], [], [], 0)[0]:
        try:
            shown += os.read(ours, 4096)
        except OSError:
            break
    os.close(ours)
    assert done.stdout == b""
    assert b"\r2 snapshots, " in shown
    assert shown.endswith(b"\n")


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["--log", "/dev/full"], 1, "/dev/full cannot be written: No space left on device; make room"),
        (["--log", "/does/not/exist"], 1, "/does/not/exist cannot be opened: No such file or directory"),
        (["--log", "/"], 2, "is a directory"),
        ([], 2, "--log"),
    ],
)
def test_refusals(domain: str, arguments: list[str], code: int, text: str) -> None:
    result = run(*arguments, "-n", "1", "--domain", domain)
    assert result.exit_code == code
    assert text in result.stderr
