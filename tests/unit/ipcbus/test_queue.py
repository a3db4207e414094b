"""A queue in one process, as `multiprocessing.Queue` behaves; tests/system/test_queue_processes.py has several."""

from __future__ import annotations

import copy
import gc
import itertools
import math
import mmap
import os
import pickle
import resource
import threading
from queue import Empty, Full
from typing import Any

import numpy as np
import pytest

import ipcbus
from ipcbus.queue import BYTES_MAX
from ringbuf import item_layout
from tests.kit.queue_work import put_all, taken
from tests.rings.children import Children


class Unpicklable:
    """Whose pickling fails."""

    def __reduce__(self) -> tuple[Any, ...]:
        raise AttributeError("not me")


def filled(*items: object, maxsize: int = 0) -> ipcbus.Queue[Any]:
    queue: ipcbus.Queue[Any] = ipcbus.Queue(maxsize)
    for item in items:
        queue.put(item)
    return queue


def test_all_ways_to_put_until_it_is_full() -> None:
    queue: ipcbus.Queue[int] = ipcbus.Queue(maxsize=6)
    assert (queue.empty(), queue.full()) == (True, False)
    queue.put(1)
    queue.put(2, True)
    queue.put(3, True, None)
    queue.put(4, False)
    queue.put(5, False, None)
    queue.put_nowait(6)
    assert (queue.empty(), queue.full(), queue.qsize()) == (False, True, 6)
    for arguments in ((7, False), (7, False, None), (7, True, 0.01), (7, False, 1e9), (7, True, 0), (7, True, -1)):
        with pytest.raises(Full):
            queue.put(*arguments)
    with pytest.raises(Full):
        queue.put_nowait(7)
    assert [queue.get() for _ in range(6)] == [1, 2, 3, 4, 5, 6]
    assert (queue.empty(), queue.full()) == (True, False)


def test_all_ways_to_get_until_it_is_empty() -> None:
    queue = filled(2, 3, 4, 5)
    assert (queue.get(True, None), queue.get(True), queue.get(timeout=1), queue.get_nowait()) == (2, 3, 4, 5)
    for arguments in ((False,), (False, None), (True, 0.01), (False, 1e9), (True, 0), (True, -1.0), (True, math.nan)):
        with pytest.raises(Empty):
            queue.get(*arguments)
    with pytest.raises(Empty):
        queue.get_nowait()
    with pytest.raises(TypeError):
        queue.get(True, "soon")  # type: ignore[arg-type]


def test_size() -> None:
    queue = filled(1)
    assert queue.qsize() == 1
    queue.put(5)
    assert queue.qsize() == 2
    queue.get()
    queue.get()
    assert queue.qsize() == 0
    assert "0 items" in repr(queue)


def test_what_cannot_be_pickled_is_refused_at_once_and_leaves_no_trace() -> None:
    queue: ipcbus.Queue[Any] = ipcbus.Queue(maxsize=1)
    with pytest.raises(AttributeError, match="not me"):
        queue.put(Unpicklable())
    with pytest.raises(TypeError):
        queue.put(memoryview(b"x"))
    queue.put(True)
    assert queue.qsize() == 1
    assert queue.get(timeout=30) is True
    assert queue.empty()


def test_a_closed_queue() -> None:
    queue = filled("foo")
    with pytest.raises(ValueError, match="is not closed"):
        queue.join_thread()
    queue.cancel_join_thread()
    queue.close()
    queue.close()
    queue.join_thread()
    for use in (lambda: queue.put("foo"), queue.get, lambda: queue.put_nowait(1), queue.get_nowait):
        with pytest.raises(ValueError, match="is closed") as raised:
            use()
        assert isinstance(raised.value, ipcbus.ClosedError)


def test_it_goes_to_new_processes_only() -> None:
    queue = filled()
    for use in (pickle.dumps, copy.copy):
        with pytest.raises(RuntimeError, match="through inheritance"):
            use(queue)


def test_later_changes_do_not_change_the_item() -> None:
    item = [1]
    array = np.zeros(2)
    queue = filled(item, array)
    item.append(2)
    array[0] = 1
    assert queue.get() == [1]
    got = queue.get()
    assert got.tolist() == [0, 0]
    got[0] = 5


def test_limits() -> None:
    for arguments in ({"maxsize": 1.5}, {"maxsize": True}, {"max_bytes": 0}, {"max_bytes": BYTES_MAX + 1}):
        with pytest.raises(ipcbus.ConfigError):
            ipcbus.Queue(**arguments)
    assert not filled(maxsize=-5).full()
    filled(maxsize=2**70).put(1)
    small: ipcbus.Queue[Any] = ipcbus.Queue(max_bytes=1)
    for item in (bytes(100_000), np.zeros(100_000), [bytes(100_000)]):
        with pytest.raises(ipcbus.MessageTooLarge, match="max_bytes="):
            small.put(item)
    small.put(b"x" * 60_000)
    with pytest.raises(Full):
        while True:
            small.put_nowait(bytes(1000))


def test_an_item_of_another_key_is_dropped_and_counted() -> None:
    queue = filled([[1]], "kept", {2})
    stranger = ipcbus.Queue.__new__(ipcbus.Queue)
    stranger._attach(os.dup(queue._ring.fd), bytes(32))
    assert stranger.get(timeout=0) == "kept"
    with pytest.raises(Empty):
        stranger.get(timeout=0)
    stranger.put([[3]])
    queue.put("end")
    assert queue.get() == "end"
    assert queue.counts == ipcbus.QueueCounts(put=5, taken=5, cut_puts=0, cut_gets=0, refused=3)


def test_bytes_that_no_queue_has_put_are_dropped_and_counted() -> None:
    queue = filled(1.5, 7)
    memory = mmap.mmap(queue._ring.fd, 0)
    data = item_layout.data_offset(int.from_bytes(memory[:4], "little"))
    memory[data] = 7  # the length of the number
    memory[data + 24 + 8] = 0xFC  # the kind of the second item
    queue.put("end")
    assert queue.get() == "end"
    assert queue.counts.refused == 2


def test_another_user_gets_no_objects() -> None:
    queue = filled(b"bytes", [["object"]])
    if os.geteuid():
        pytest.skip("only root can become another user")

    def uses() -> tuple[bytes, int]:
        os.seteuid(65534)
        found = queue.get()
        for use in (lambda: queue.put([["object"]]), queue.get):
            with pytest.raises(ipcbus.PermissionRefused, match="one user"):
                use()
        queue.put("text")
        return found, queue.qsize()

    with Children() as children:
        assert children.run(uses).result() == (b"bytes", 2)
    assert (queue.get(), queue.get()) == ([["object"]], "text")


def test_threads() -> None:
    queue: ipcbus.Queue[Any] = ipcbus.Queue(maxsize=3)
    found: list[list[int]] = [[] for _ in range(3)]
    takers = [threading.Thread(target=lambda n=n: found[n].extend(taken(queue))) for n in range(3)]
    numbers = [range(n * 1000, n * 1000 + 300) for n in range(3)]
    putters = [threading.Thread(target=put_all, args=(queue, list(each))) for each in numbers]
    for thread in takers + putters:
        thread.start()
    for thread in putters:
        thread.join()
    for _ in takers:
        queue.put(None)
    for thread in takers:
        thread.join()
    assert sorted(itertools.chain(*found)) == list(itertools.chain(*numbers))
    for each in found:
        for n in range(3):
            own = [number for number in each if number // 1000 == n]
            assert own == sorted(own)


def test_nothing_is_left_of_it() -> None:
    queue = filled(bytes(1 << 20))
    fd = queue._ring.fd
    assert os.readlink(f"/proc/self/fd/{fd}") == "/memfd:ipcbus.queue (deleted)"  # no object has a name
    del queue
    gc.collect()
    with pytest.raises(OSError, match="Bad file"):
        os.fstat(fd)


def made_with_small_files() -> str:
    """Runs in a child: makes a queue where the system lets no file of this process grow beyond 10 kB."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
    with pytest.raises(ipcbus.SharedMemoryFull) as caught:
        ipcbus.Queue()
    return str(caught.value)


def test_a_limit_of_the_size_of_files_is_told_with_its_cure() -> None:
    with Children() as children:
        text = children.run(made_with_small_files).result()
    assert "cannot make a queue: this process may make files and shared memory of at most 10000 bytes each" in text
    assert "ulimit -f" in text
