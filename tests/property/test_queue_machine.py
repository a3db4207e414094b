"""Any order of calls from two handles of one queue, against `queue.Queue`."""

from __future__ import annotations

import os
import queue
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

import ipcbus
from ringbuf.item_layout import ITEM_CHUNK

ITEMS = (
    st.integers()
    | st.text(max_size=20)
    | st.integers(0, 3 * ITEM_CHUNK).map(bytes)
    | st.tuples(st.integers(), st.binary(max_size=100))
    | st.lists(st.none(), max_size=3)
)
HANDLES = st.integers(0, 1)


class QueueMachine(RuleBasedStateMachine):
    """The second handle is what another process has: it maps the memory at another address."""

    @initialize(maxsize=st.integers(0, 6))
    def make(self, maxsize: int) -> None:
        first: ipcbus.Queue[Any] = ipcbus.Queue(maxsize, max_bytes=64 * ITEM_CHUNK)
        second: ipcbus.Queue[Any] = ipcbus.Queue.__new__(ipcbus.Queue)
        second._attach(os.dup(first._ring.fd), first._key)
        self.handles = first, second
        self.model: queue.Queue[Any] = queue.Queue(maxsize)
        self.put_so_far = 0

    @rule(handle=HANDLES, item=ITEMS)
    def put(self, handle: int, item: object) -> None:
        try:
            self.model.put_nowait(item)
            full = False
        except queue.Full:
            full = True
        try:
            self.handles[handle].put_nowait(item)
        except queue.Full:
            assert full
        else:
            assert not full
            self.put_so_far += 1

    @rule(handle=HANDLES)
    def get(self, handle: int) -> None:
        try:
            expected = self.model.get_nowait()
        except queue.Empty:
            expected = queue.Empty
        try:
            found = self.handles[handle].get_nowait()
        except queue.Empty:
            found = queue.Empty
        assert found == expected

    @invariant()
    def both_say_the_same(self) -> None:
        for each in self.handles:
            assert (each.qsize(), each.empty(), each.full()) == (
                self.model.qsize(),
                self.model.empty(),
                self.model.full(),
            )
            counts = each.counts
            assert counts.put == self.put_so_far
            assert counts.taken == counts.put - self.model.qsize()
            assert counts.cut_puts == counts.cut_gets == counts.refused == 0


TestQueueMachine = QueueMachine.TestCase
TestQueueMachine.settings = settings(max_examples=30, stateful_step_count=40)
