"""A fork while threads send and receive over the network: the child comes out of it, and the stream goes on."""

from __future__ import annotations

import os
import signal
import threading
import time
import warnings

import pytest

from tests.kit.bus import GIVE_UP_S, LBTRU, LBTTCP, Bus, Kind

FORKS = 15


def forked() -> int:
    """Forks a child that ends at once; returns its exit code, or -SIGKILL for one that had to be killed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 and newer, of a fork beside threads
        child = os.fork()
    if child == 0:
        os._exit(0)
    deadline = time.monotonic() + GIVE_UP_S
    while True:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)
            deadline = float("inf")
        time.sleep(0.001)


@pytest.mark.parametrize("size", [1_000, 4_000_000])
@pytest.mark.parametrize("kind", [LBTTCP, LBTRU], ids=lambda kind: kind.name)
def test_a_fork_beside_a_stream_ends(domain: str, kind: Kind, size: int) -> None:
    bus = Bus(domain, kind, "embedded")
    try:
        source = bus.source("t")
        lengths: list[int] = []
        receiver = bus.context("receiving").receiver("t", on_data=lambda data: lengths.append(len(data)))
        bus.joined(source)
        stop, sent = threading.Event(), []

        def stream() -> None:
            payload = bytes(size)
            while not stop.is_set():
                source.send(payload)
                sent.append(size)

        thread = threading.Thread(target=stream)
        thread.start()
        try:
            seen = 0
            for _ in range(FORKS):
                bus.until(lambda: len(lengths) > seen, "a message")  # noqa: B023 - called before seen changes
                assert forked() == 0
                seen = len(lengths)
        finally:
            stop.set()
            thread.join()
        source.flush()
        bus.until(lambda: len(lengths) == len(sent), "the rest")
        assert lengths == sent
        assert receiver.lost == 0
    finally:
        bus.close()
