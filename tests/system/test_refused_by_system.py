"""What the system refuses: descriptors, inodes, a read-only /dev/shm. Typed, with the cure, and nothing is left."""

from __future__ import annotations

import ctypes
import gc
import os
import resource
import threading
from typing import TYPE_CHECKING, Any

import pytest

import ipcbus
from ipcbus.errors import PermissionRefused, SharedMemoryFull, TransportError
from ringbuf import channel, segment
from tests.kit.bus import MODES, mode_options
from tests.kit.look import objects
from tests.rings.children import Children
from tests.rings.systems import in_small_shm

if TYPE_CHECKING:
    from collections.abc import Callable

_MS_REMOUNT_RDONLY = 0x20 | 0x1


def in_child(work: Callable[..., Any], *arguments: object) -> Any:  # noqa: ANN401 - what the work returns
    with Children() as children:
        found = children.run(work, *arguments).result()
    if found is None:
        pytest.skip("this system does not let tests have a /dev/shm of their own")
    return found


def steps(domain: str, mode: str, done: list[str]) -> None:
    """Everything that makes descriptors; notes how far it came."""
    with ipcbus.Context({"context": mode_options(mode)}, domain=domain) as context:
        done.append("context")
        receiver = context.receiver("t")
        done.append("receiver")
        for transport in ("lbtipc", "lbtsmx", "lbtru"):
            context.source("t", transport=transport)
            done.append(transport)
        context.wildcard_receiver(".*")
        done.append("wildcard")
        if mode != "embedded":
            context.fileno()
            done.append("fileno")
        receiver.close()
    done.append("closed")


def open_files() -> set[str]:
    return {name for name in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{name}")}


@pytest.mark.parametrize("mode", MODES)
def test_every_descriptor_that_is_not_there_is_told_with_the_cure(domain: str, mode: str) -> None:
    def work() -> list[str]:
        steps(domain, mode, [])  # what is imported late is
        before = open_files()
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        lowest = next(number for number in range(1000) if str(number) not in before)
        failed = []
        for limit in range(lowest, lowest + 200):
            done: list[str] = []
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
            try:
                steps(domain, mode, done)
            except TransportError as error:
                if "ulimit -n" not in str(error):
                    raise
                failed.append(done[-1] if done else "")
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            assert objects(domain) == [], (limit, done)
            assert open_files() == before, (limit, done)
            if done[-1:] == ["closed"]:
                return failed
        raise AssertionError(f"it never came through: {failed}")

    failed = in_child(work)
    assert {"", "receiver", "lbtipc"} <= set(failed)


def test_every_inode_that_is_not_there_is_told(domain: str) -> None:
    def work() -> list[str] | None:
        if not in_small_shm(64 << 20):
            return None
        failed = []
        for inodes in range(1, 30):
            libc = ctypes.CDLL(None, use_errno=True)
            # 0x20 remounts, and one of the inodes is the directory.
            if libc.mount(b"tmpfs", b"/dev/shm", b"tmpfs", 0x20, f"size=64m,nr_inodes={inodes}".encode()):
                return None
            done: list[str] = []
            try:
                steps(domain, "sequential", done)
            except SharedMemoryFull as error:
                if not ("inodes" in str(error) and "ipcbus doctor --reclaim" in str(error)):
                    raise
                failed.append(done[-1] if done else "")
            assert objects(domain) == [], (inodes, done)
            if done[-1:] == ["closed"]:
                return failed
        raise AssertionError("it never came through")

    failed = in_child(work)
    assert {"", "receiver", "lbtipc", "lbtsmx"} <= set(failed)


def test_closed_contexts_do_not_fill_dev_shm(domain: str) -> None:
    def work() -> bool | None:
        if not in_small_shm(64 << 20):
            return None
        gc.disable()  # as if the collector had other things to do
        for _ in range(30):
            steps(domain, "embedded", [])
        return True

    in_child(work)


def test_the_memory_of_closed_contexts_is_collected_before_it_is_much(
    domain: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    gc.collect()
    gc.disable()
    monkeypatch.setattr(channel, "CLOSED_BYTES_MAX", 1 << 26)
    monkeypatch.setattr(channel, "_closed", channel._ClosedChannels())
    try:
        kept = []
        for _ in range(20):
            steps(domain, "embedded", [])
            kept.append(sum(each.ring.size for each in channel._closed._all))
    finally:
        gc.enable()
    assert max(kept) <= 1 << 26
    assert len(set(kept)) > 2


def test_a_read_only_dev_shm_is_told(domain: str) -> None:
    def work() -> str | None:
        if not in_small_shm(64 << 20):
            return None
        if ctypes.CDLL(None, use_errno=True).mount(b"tmpfs", b"/dev/shm", b"tmpfs", _MS_REMOUNT_RDONLY, None):
            return None
        with pytest.raises(PermissionRefused) as raised:
            ipcbus.Context(domain=domain)
        return str(raised.value)

    said = in_child(work)
    assert f"{segment.ROOT} is mounted read-only" in said
    assert "remount,rw" in said


def test_a_thread_that_cannot_be_started_is_told_and_leaves_nothing(
    domain: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refused)
    with pytest.raises(TransportError, match="ulimit -u"):
        ipcbus.Context(domain=domain)
    assert objects(domain) == []
