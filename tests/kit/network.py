"""Networks that a test makes for itself, with no way out: namespaces, in which also multicast may be sent."""

from __future__ import annotations

import contextlib
import ctypes
import os
import subprocess
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

_NEWNET = 0x40000000
_OWN = "/proc/thread-self/ns/net"
_LOOPBACK = "ip link set lo up multicast on && ip route add 224.0.0.0/4 dev lo"


class NoNetwork(Exception):
    """This process may not make a namespace, or the system has no `ip`."""


def enter(namespace: int) -> None:
    """The calling thread, and threads and processes that it starts from now on, use a namespace.

    Args:
        namespace: a descriptor of it.
    """
    if ctypes.CDLL(None, use_errno=True).setns(namespace, _NEWNET):
        raise NoNetwork(os.strerror(ctypes.get_errno()))


@contextlib.contextmanager
def isolated() -> Iterator[None]:
    """What the calling thread makes inside is in a new network that has loopback alone, with multicast.

    Raises:
        NoNetwork: it cannot be made.
    """
    home = os.open(_OWN, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if ctypes.CDLL(None, use_errno=True).unshare(_NEWNET):
            raise NoNetwork(f"no network namespace: {os.strerror(ctypes.get_errno())}")
        try:
            made = subprocess.run(["sh", "-c", _LOOPBACK], check=False, capture_output=True, text=True)
            if made.returncode:
                raise NoNetwork(f"the loopback of a new network namespace: {made.stderr.strip()}")
            yield
        finally:
            enter(home)
    finally:
        os.close(home)


@contextlib.contextmanager
def isolated_or_skip() -> Iterator[None]:
    """As `isolated`; skips the test where that is not allowed."""
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(isolated())
        except NoNetwork as error:
            pytest.skip(str(error))
        yield
