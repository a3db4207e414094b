"""What every test gets: a runtime domain of its own, and a look around when it has ended."""

from __future__ import annotations

import contextlib
import gc
import multiprocessing.resource_tracker
import os
import secrets
import string
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

SHARED_MEMORY = Path("/dev/shm")
LONG_TIMEOUT = 1800.0

# Speed is no property of a test here: machines that run several at once are slow in spurts.
settings.register_profile("ipcbus", deadline=None, print_blob=True)
settings.load_profile("ipcbus")


def pytest_configure() -> None:
    """Starts multiprocessing's resource tracker, else it looks like a leak of its first user.

    And forgets the config file of who runs the tests: they are about the defaults, in child processes too.
    """
    os.environ.pop("IPCBUS_CONFIG", None)
    multiprocessing.resource_tracker.ensure_running()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Gives the long tests the time they need, unless they say themselves how much that is."""
    for item in items:
        if item.get_closest_marker("long") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(LONG_TIMEOUT))


@pytest.fixture
def domain() -> str:
    """A bus domain that no other test uses.

    Its length and letters let it appear literally in the names of shared memory objects: `ipcbus.<domain>.`
    """
    return "t" + "".join(secrets.choice(string.ascii_lowercase + string.digits) for _ in range(7))


@pytest.fixture(autouse=True)
def leaves_nothing(domain: str) -> Iterator[None]:
    """Fails a test that leaves shared memory, child processes or file descriptors behind."""
    children_before = _children()
    files_before = _open_files()
    yield
    left = []
    if _objects_of(domain) or _open_files() - files_before:
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
    left += [f"descriptor {number} is open: {target}" for number, target in _open_files() - files_before]
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


def _open_files() -> set[tuple[int, str]]:
    """Number and target of every descriptor of this process."""
    found = set()
    for entry in os.listdir("/proc/self/fd"):
        try:
            found.add((int(entry), os.readlink(f"/proc/self/fd/{entry}")))
        except FileNotFoundError:
            continue  # the descriptor that listed the directory
    return found
