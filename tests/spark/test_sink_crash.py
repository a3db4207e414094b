"""Tasks that fail, and applications that are killed with everything: a receiver gets every row once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from ipcbus.spark.identity import identity_of
from tests.kit.sink_app import GUARANTEES
from tests.kit.sink_taker import Taker
from tests.unit.sources import ROOT

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.spark, pytest.mark.long]

FILES, ROWS = 3, 100


def run(directory: Path, domain: str, kill: str) -> int:
    """Runs the application; returns its exit status."""
    return subprocess.run(
        [sys.executable, "-m", "tests.kit.sink_app", str(directory), domain, kill],
        cwd=ROOT,
        check=False,
    ).returncode


def noted(directory: Path, topic: str, kind: str) -> set[int]:
    """Micro-batches that a checkpoint notes."""
    return {int(path.name) for path in (directory / topic / kind).glob("[0-9]*")}


@pytest.mark.timeout(900)  # three applications of Spark, one after the other
def test_killed_in_a_commit_and_behind_it(tmp_path: Path, domain: str) -> None:
    (tmp_path / "lines").mkdir()
    for number in range(FILES):
        lines = "".join(f"{number}-{row}\n" for row in range(ROWS))
        (tmp_path / "lines" / f"{number}.txt").write_text(lines)
        os.utime(tmp_path / "lines" / f"{number}.txt", (number, number))
    with Taker(domain) as taker:
        assert run(tmp_path, domain, "send 1 37") == -signal.SIGKILL
        assert noted(tmp_path, "once", "commits") == {0}
        assert run(tmp_path, domain, "committed 1") == -signal.SIGKILL
        assert noted(tmp_path, "once", "commits") == {0}
        assert noted(tmp_path, "once", "offsets") == {0, 1}
        assert run(tmp_path, domain, "never") == 0
        taker.settled(len(GUARANTEES) * FILES * ROWS)
    every_row = sorted(f"{number}-{row}".encode() for number in range(FILES) for row in range(ROWS))
    for topic in GUARANTEES:
        assert sorted(taker.of(topic)) == every_row
    came = Counter(message.data for message in taker.every if message.topic == "once")
    doubles = sum(came.values()) - len(every_row)
    flagged = [identity_of(message.headers) for message in taker.flagged]
    assert doubles <= len(flagged) == 1
    assert flagged[0] is not None
    assert flagged[0].batch == 1
    often = Counter(message.data for message in taker.every if message.topic == "often")
    assert sum(often.values()) > len(every_row), "attempts that failed had sent rows"
    assert sorted(path.name for path in (tmp_path / "staging").glob("*/*")) == ["ledger", "lock"]
