"""Checks of `ipcbus doctor` that try features which ipcbus needs: of the kernel, the clock, and Java for Spark."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import select
import socket
import time
from typing import TYPE_CHECKING

from ipcbus_tools.doctor.diagnosis import FINDING, OK, UNKNOWN, Check
from ringbuf import clock, liveness, segment, wake

if TYPE_CHECKING:
    from collections.abc import Callable

_FUTEX = {"x86_64": 202, "aarch64": 98, "riscv64": 98}
_FUTEX_WAKE = 1
_NEWER = "run a kernel of Linux 4.16 or newer"
_ALLOW = "allow the system call in the seccomp profile of the container (docker run --security-opt seccomp=...), or "


def check_kernel() -> tuple[Check, ...]:
    """Runs all checks of this module except that of Java."""
    return (
        _feature("OFD locks", _ofd_locks, "ipcbus needs them to know which processes live", _NEWER),
        membarrier(),
        _feature("memfd", _memfd, "receiving over UDP needs it", _ALLOW + _NEWER),
        _feature("epoll, eventfd, timerfd, pidfd", _waiting, "contexts wait with them", _ALLOW + _NEWER),
        _feature("futex", _futex, "a source waits for room with it", _ALLOW + _NEWER),
        _feature(
            f"allocating in {segment.ROOT}",
            _fallocate,
            "memory is allocated before it is used",
            f"mount a tmpfs at {segment.ROOT}",
        ),
        _feature(
            "UDP on loopback",
            _datagrams,
            "receivers that cannot map the memory need it",
            _ALLOW + "bring up the interface lo",
        ),
        ticks(),
    )


def _feature(name: str, attempt: Callable[[], None], purpose: str, cure: str) -> Check:
    try:
        attempt()
    except (OSError, AttributeError) as error:
        return Check(name, FINDING, f"{error}; {purpose}", cure)
    return Check(name, OK, "works")


def _ofd_locks() -> None:
    fd = os.memfd_create("ipcbus doctor", os.MFD_CLOEXEC)
    with open(fd, "r+b", 0), open(f"/proc/self/fd/{fd}", "r+b", 0) as other:
        if not liveness.take(fd, 0) or not liveness.held_by_other(other.fileno(), 0):
            raise OSError("a lock that is held is not seen")


def _memfd() -> None:
    with open(os.memfd_create("ipcbus doctor", os.MFD_CLOEXEC), "r+b", 0) as file:
        os.posix_fallocate(file.fileno(), 0, 4096)


def _waiting() -> None:
    event = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
    with open(event, "r+b", 0), select.epoll() as poller:
        poller.register(event, select.EPOLLIN)
        os.eventfd_write(event, 1)
        if not poller.poll(1):
            raise OSError("epoll does not report an eventfd that is ready")
    os.close(os.pidfd_open(os.getpid()))


def _fallocate() -> None:
    with open(os.open(segment.ROOT, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600), "r+b", 0) as file:
        os.posix_fallocate(file.fileno(), 0, 4096)


def _datagrams() -> None:
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender,
    ):
        receiver.bind(("127.0.0.1", 0))
        receiver.settimeout(5)
        sender.sendto(b"ipcbus", receiver.getsockname())
        if receiver.recv(16) != b"ipcbus":
            raise OSError("loopback does not carry a datagram")


def membarrier() -> Check:
    """Checks whether a thread can order the memory accesses of all others, so that messages need no fence."""
    name = "membarrier"
    if wake.asymmetric() and wake.barrier():
        return Check(name, OK, "works, so that a message costs no fence")
    return Check(name, FINDING, "refused; each message costs a fence of about 20 ns instead", _ALLOW + _NEWER)


def _futex() -> None:
    number = _FUTEX.get(os.uname().machine)
    libc, word = ctypes.CDLL(None, use_errno=True), ctypes.c_uint32(0)
    if number is not None and libc.syscall(number, ctypes.byref(word), _FUTEX_WAKE, 1, None, None, 0) < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def ticks() -> Check:
    """Checks which clock stamps messages."""
    name = "clock of messages"
    if clock.kind() == clock.KIND_TSC:
        return Check(name, OK, "the time stamp counter of the processor")
    begin = time.perf_counter_ns()
    for _ in range(1000):
        time.monotonic_ns()
    each = (time.perf_counter_ns() - begin) / 1000
    return Check(
        name, OK, f"the monotonic clock, {each:.0f} ns a reading from Python; the time stamp counter is not stable here"
    )


def java() -> Check:
    """Checks whether Spark finds Java, if pyspark is installed."""
    name = "Java for Spark"
    if importlib.util.find_spec("pyspark") is None:
        return Check(name, OK, "pyspark is not installed, so that Java is not needed")
    from ipcbus.errors import ConfigError
    from ipcbus.spark.session import check_java

    try:
        return Check(name, OK, check_java())
    except ConfigError as error:
        found, _, cure = str(error).rpartition("; ")
        return Check(name, FINDING, found, cure)
    except OSError as error:
        return Check(name, UNKNOWN, str(error), "install Java 17")
