"""What a test leaves behind: shared memory, child processes, descriptors."""

from __future__ import annotations

import contextlib
import gc
import os
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

SHARED_MEMORY = Path("/dev/shm")
_CLOSES_S = 5.0
"""How long a thread of a library, such as a reader of Arrow, may take to close a file whose last user has gone."""


def looking_around(domain: str, *, sockets: bool = True) -> Iterator[None]:
    """Body of a fixture that fails a test which leaves something behind; without `sockets`, but for sockets."""
    children_before = _children()
    files_before = _open_files(sockets)
    yield
    left = []
    if _objects_of(domain) or _open_files(sockets) - files_before:
        gc.collect()  # what only a reference cycle holds is no leak
    children = list(_processes(_children() - children_before))
    # Waiting ends with the child: one that was told to go may still be on its way out.
    _, alive = psutil.wait_procs(children, timeout=5)
    for child in alive:
        left.append(f"child process runs: {child}")
        child.kill()
    psutil.wait_procs(alive)
    for name in _objects_of(domain):
        left.append(f"{SHARED_MEMORY / name} exists")
        (SHARED_MEMORY / name).unlink()
    pause, until = threading.Event(), time.monotonic() + _CLOSES_S
    while (files := _open_files(sockets) - files_before) and time.monotonic() < until:
        pause.wait(0.01)
    left += [f"descriptor {number} is open: {target}" for number, target in files]
    if left:
        pytest.fail("the test left behind:\n  " + "\n  ".join(sorted(left)), pytrace=False)


def _children() -> set[int]:
    """Pids of this process's children, those of all its threads."""
    found: set[int] = set()
    for thread in os.listdir("/proc/self/task"):
        # A thread may end meanwhile.
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            found.update(map(int, Path(f"/proc/self/task/{thread}/children").read_text().split()))
    return found


def _processes(pids: Iterable[int]) -> Iterator[psutil.Process]:
    """Those that are still there."""
    for pid in pids:
        with contextlib.suppress(psutil.NoSuchProcess):
            yield psutil.Process(pid)


def _objects_of(domain: str) -> list[str]:
    """Names in /dev/shm that belong to a domain."""
    return [name for name in os.listdir(SHARED_MEMORY) if name.startswith(f"ipcbus.{domain}.")]


def _open_files(sockets: bool) -> set[tuple[int, str]]:
    """Number and target of every descriptor of this process."""
    found = set()
    for entry in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{entry}")
        except FileNotFoundError:
            continue  # the descriptor that listed the directory
        if sockets or not target.startswith("socket:"):
            found.add((int(entry), target))
    return found
