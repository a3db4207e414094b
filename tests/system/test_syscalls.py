"""The message path makes no system call while nobody is parked."""

from __future__ import annotations

import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.kit.counted import CHUNK, CHUNKS, MARKER
from tests.unit.sources import ROOT

if TYPE_CHECKING:
    from pathlib import Path

WANTED = 100_000 // CHUNK


def traces() -> bool:
    """Whether system calls can be traced here."""
    if shutil.which("strace") is None:
        return False
    return subprocess.run(["strace", "-o", "/dev/null", "true"], capture_output=True, check=False).returncode == 0


@pytest.mark.skipif(not traces(), reason="strace is missing or not allowed here")
@pytest.mark.parametrize(
    ("transport", "form"),
    [
        *(("lbtipc", form) for form in ("callback", "receive_many", "receive_into")),
        ("lbtsmx", "callback"),
        *(pytest.param("lbtsmx", form, marks=pytest.mark.long) for form in ("receive_many", "receive_into")),
    ],
)
def test_messages_cost_no_system_calls(domain: str, tmp_path: Path, transport: str, form: str) -> None:
    log = tmp_path / "calls"
    subprocess.run(
        ["strace", "-f", "-o", str(log), sys.executable, "-m", "tests.kit.counted", domain, f"{transport}/{form}"],
        cwd=ROOT,
        check=True,
        timeout=50,
    )
    chunks: list[list[str]] = []
    for line in log.read_text().splitlines():
        call = line.split(maxsplit=1)[1]
        if call.startswith(MARKER + "("):
            chunks.append([])
        elif chunks:
            chunks[-1].append(call)
    del chunks[CHUNKS:]  # behind the last marker the contexts close
    assert len(chunks) == CHUNKS
    # The context's timers fall into a chunk now and then, once a second; a call for messages would be in every one.
    clean = [calls for calls in chunks if not calls]
    assert len(clean) >= WANTED, [calls[:5] for calls in chunks if calls]
