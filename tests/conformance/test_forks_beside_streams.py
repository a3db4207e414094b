"""A fork while threads send and receive over the network: the child comes out of it, and the stream goes on."""

from __future__ import annotations

import os
import select
import signal
import threading
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
    end = os.pidfd_open(child)
    try:
        if not select.select([end], [], [], GIVE_UP_S)[0]:
            os.kill(child, signal.SIGKILL)
    finally:
        os.close(end)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.parametrize(
    ("kind", "size"),
    [
        (LBTTCP, 4_000_000),
        (LBTRU, 1_000),
        pytest.param(LBTTCP, 1_000, marks=pytest.mark.long),
        pytest.param(LBTRU, 4_000_000, marks=pytest.mark.long),
    ],
    ids=lambda value: getattr(value, "name", value),
)
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
