from __future__ import annotations

import ctypes
import platform
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from ringbuf import wake
from tests.rings.channels import joined, owned
from tests.rings.children import Children

SYS_MEMBARRIER = {"x86_64": 324, "aarch64": 283}
GET_REGISTRATIONS = 512
GLOBAL_EXPEDITED = 4


def registrations() -> int:
    """What the calling process is registered for; negative where the system does not tell."""
    number = SYS_MEMBARRIER.get(platform.machine())
    return -1 if number is None else int(ctypes.CDLL(None).syscall(number, GET_REGISTRATIONS, 0, 0))


def show_after_joining(domain: str) -> None:
    """What a fresh process runs: only reads, and prints its registrations."""
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


NO_NEW_PRIVILEGES, SECCOMP, FILTER = 38, 22, 2
ENOSYS = 38


def refuse_the_call() -> None:
    """From now on the calling process runs on a system without membarrier, as in some containers.

    Raises:
        OSError: the system does not let a process refuse a call to itself.
    """
    # Load the number of the call; if it is this one, return the error; else allow it.
    program = struct.pack(
        "HBBI" * 4,
        *(0x20, 0, 0, 0),
        *(0x15, 0, 1, SYS_MEMBARRIER[platform.machine()]),
        *(0x06, 0, 0, 0x0005_0000 | ENOSYS),
        *(0x06, 0, 0, 0x7FFF_0000),
    )
    filters = ctypes.create_string_buffer(program)
    described = ctypes.create_string_buffer(struct.pack("H6xP", 4, ctypes.addressof(filters)))
    library = ctypes.CDLL(None, use_errno=True)
    if library.prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0) or library.prctl(SECCOMP, FILTER, described):
        raise OSError(ctypes.get_errno(), "no seccomp filter")


def wait_without_end(domain: str) -> tuple[bool, bool, bool]:
    """Waits for room without a limit of time, where nothing promises that a reader sees that the writer sleeps."""
    refuse_the_call()
    with owned(domain) as channel, joined(domain):
        while channel.writer.write(b"x"):
            pass
        return wake.asymmetric(), wake.barrier(), channel.writer.wait_room(1, 0, -1)


@pytest.mark.skipif(platform.machine() not in SYS_MEMBARRIER, reason="the number of the call is not known")
def test_without_the_barrier_a_writer_sleeps_for_a_moment_and_looks_again(domain: str) -> None:
    with Children() as children:
        assert children.run(wait_without_end, domain).result() == (False, False, False)
