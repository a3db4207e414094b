from __future__ import annotations

import ctypes
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from ringbuf import wake
from tests.rings.channels import owned

SYS_MEMBARRIER = {"x86_64": 324, "aarch64": 283}
GET_REGISTRATIONS = 512
GLOBAL_EXPEDITED = 4


def registrations() -> int:
    """What the calling process is registered for; negative where the system does not tell."""
    number = SYS_MEMBARRIER.get(platform.machine())
    return -1 if number is None else int(ctypes.CDLL(None).syscall(number, GET_REGISTRATIONS, 0, 0))


def show_after_joining(domain: str) -> None:
    """What a fresh process runs: only reads, and prints its registrations."""
    from tests.rings.channels import joined

    before = registrations()
    with joined(domain):
        print(before, registrations())


def test_barrier_works_wherever_the_process_could_register() -> None:
    assert wake.asymmetric() == wake.barrier()


def test_a_process_that_only_reads_takes_part_in_the_barrier(domain: str) -> None:
    """Else a writer that falls asleep would not make its readers see that."""
    if not wake.asymmetric() or registrations() < 0:
        pytest.skip("this system has no such barrier, or does not tell who is registered")
    with owned(domain):
        # A fork's child would have inherited the registration of this process.
        code = f"from {__name__} import show_after_joining; show_after_joining({domain!r})"
        root = Path(__file__).parents[3]
        done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    before, after = map(int, done.stdout.split())
    assert not before & GLOBAL_EXPEDITED
    assert after & GLOBAL_EXPEDITED
