from __future__ import annotations

import gc
import mmap
import os
import signal
import struct
import threading
from functools import partial
from typing import TYPE_CHECKING

import pytest

from ringbuf import item_layout
from ringbuf.item_layout import ITEM_CHUNK, ITEM_KEEP, ITEM_SIDE, ITEM_SIGNED, ITEM_WRITABLE
from ringbuf.item_ring import ItemRing, create_item_ring
from ringbuf.layout import CACHE_LINE
from ringbuf.ring_errors import SegmentMismatch, SegmentSpoiled
from tests.kit.cases import each_of
from tests.rings.children import Children, kill_myself

if TYPE_CHECKING:
    from collections.abc import Callable

KEY = bytes(range(32))
PLAIN = 4
SIGNED = 8 | ITEM_SIGNED
PUT_STEPS = ("begun", "half copied", "copied", "noted", "counted", "unlocked")
GET_STEPS = ("begun", "copied", "noted", "counted", "unlocked")
GIVE_UP_S = 30.0


def ring(bytes_max: int = 1 << 30, items_max: int = 0) -> ItemRing:
    return ItemRing(create_item_ring(bytes_max=bytes_max, items_max=items_max), KEY)


def memory_of(made: ItemRing) -> mmap.mmap:
    """All bytes of the ring, as another program has them that inherited the descriptor."""
    return mmap.mmap(made.fd, 0)


def data_of(made: ItemRing) -> int:
    (words,) = struct.unpack_from("<I", memory_of(made), 0)
    return item_layout.data_offset(words)


def put(made: ItemRing, text: bytes, timeout: float | None = 0, kind: int = PLAIN) -> bool:
    return made.put(kind, text, None, timeout)


def drained(made: ItemRing) -> list[bytes]:
    found = []
    while (item := made.get(0)) is not None:
        found.append(bytes(item[1]))
    return found


def dying_at(step: str) -> Callable[[str], None]:
    return lambda name: kill_myself() if name == step else None


def test_items_come_in_order_with_their_kind() -> None:
    made = ring()
    assert made.get(0) is None
    sizes = [0, 1, 8, 100, ITEM_CHUNK - 16, ITEM_CHUNK, ITEM_CHUNK + 1, 3 * ITEM_CHUNK, 5, *range(0, 2000, 77)]
    for number, size in enumerate(sizes):
        made.put(number << 2, b"%d:" % number, os.urandom(size), 0)
    assert made.qsize() == len(sizes)
    for number, size in enumerate(sizes):
        kind, text = made.get(0) or (None, b"")
        assert kind == number << 2
        assert text.startswith(b"%d:" % number)
        assert len(text) == len(b"%d:" % number) + size
    assert made.get(0) is None


def test_bytes_are_the_same_across_chunks() -> None:
    made = ring()
    texts = [os.urandom(31_001) for _ in range(40)]
    for begin in range(0, 40, 8):
        for text in texts[begin : begin + 8]:
            made.put(SIGNED if begin % 16 else PLAIN, text, None, 0)
        assert drained(made) == texts[begin : begin + 8]


def test_a_writable_item_is_a_bytearray() -> None:
    made = ring()
    made.put(PLAIN | ITEM_WRITABLE, b"ab", b"c", 0)
    assert made.get(0) == (PLAIN | ITEM_WRITABLE, bytearray(b"abc"))


def test_memory_grows_with_the_items_and_shrinks_behind_them() -> None:
    made = ring()
    text = bytes(ITEM_CHUNK // 2)
    for _ in range(8 * ITEM_KEEP):
        put(made, text)
    most = made.memory()
    assert most > 4 * ITEM_KEEP * ITEM_CHUNK
    drained(made)
    for _ in range(4 * ITEM_KEEP):
        put(made, text)
        assert made.get(0)
    assert made.memory() <= (ITEM_KEEP + 3) * ITEM_CHUNK
    blocks = os.stat(made.fd).st_blocks * 512
    assert blocks < most // 2
    for _ in range(8 * ITEM_KEEP):  # pieces that were given back are used again
        put(made, text)
    assert made.memory() == most
    assert drained(made) == [text] * 8 * ITEM_KEEP


def test_full_of_items() -> None:
    made = ring(items_max=2)
    assert [put(made, b"a") for _ in range(3)] == [True, True, False]
    assert made.get(0)
    assert [put(made, b"b", 0.001) for _ in range(2)] == [True, False]
    assert drained(made) == [b"a", b"b"]


def test_full_of_bytes_and_an_item_that_never_fits() -> None:
    made = ring(bytes_max=4 * ITEM_CHUNK)
    with pytest.raises(ValueError, match=f"{made.item_max} fit"):
        put(made, bytes(made.item_max + 1))
    for _ in range(10):
        longest = os.urandom(made.item_max)
        assert put(made, longest, kind=SIGNED)
        assert not put(made, bytes(2 * ITEM_CHUNK))
        assert drained(made) == [longest]
        put(made, b"moves the position")
        drained(made)


def test_a_sleeper_is_woken() -> None:
    made = ring(items_max=1)
    found: list[bytes] = []

    def takes() -> None:
        while (item := made.get(GIVE_UP_S)) and item[1] != b"end":
            found.append(bytes(item[1]))

    thread = threading.Thread(target=takes)
    thread.start()
    for number in range(200):
        assert put(made, b"%d" % number, GIVE_UP_S)
    assert put(made, b"end", GIVE_UP_S)
    thread.join()
    assert found == [b"%d" % number for number in range(200)]


class InterruptedHereError(Exception):
    """What the handler of a signal raises."""


@pytest.mark.parametrize("full", [False, True])
def test_a_signal_ends_a_wait(full: bool) -> None:
    made = ring(items_max=1)
    if full:
        put(made, b"full")

    begun: list[bool] = []

    def handler(*_: object) -> None:  # on a busy machine it may come before the wait, and again after it
        if begun:
            begun.clear()
            raise InterruptedHereError

    before = signal.signal(signal.SIGALRM, handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.01, 0.05)
        with pytest.raises(InterruptedHereError):
            begun.append(True)
            put(made, b"x", None) if full else made.get(None)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert drained(made) == [b"full"] * full


@pytest.mark.parametrize("step", PUT_STEPS)
def test_a_producer_killed_at_a_step_of_put(step: str) -> None:
    made = ring()
    texts = [b"before", b"x" * 100_000, b"after" * 20_000]

    def puts() -> None:
        put(made, texts[0])
        made.checkpoint = dying_at(f"put: {step}")
        made.put(SIGNED, texts[1], None, None)

    with Children() as children:
        assert children.run(puts).wait() == -signal.SIGKILL
        assert put(made, texts[2], GIVE_UP_S)
    done = step in ("counted", "unlocked")
    assert drained(made) == (texts if done else [texts[0], texts[2]])
    assert made.counts() == (2 + done, 2 + done, not done, 0, 0)


@pytest.mark.parametrize("step", GET_STEPS)
def test_a_consumer_killed_at_a_step_of_get(step: str) -> None:
    made = ring(items_max=3)
    texts = [b"a" * 10, b"b" * 100_000, b"c"]
    for text in texts:
        put(made, text, kind=SIGNED)

    def takes() -> None:
        made.checkpoint = dying_at(f"get: {step}")
        made.get(None)

    with Children() as children:
        assert children.run(takes).wait() == -signal.SIGKILL
    done = step in ("counted", "unlocked")
    assert put(made, b"d", 0) == done
    assert drained(made) == [*texts[done:], *([b"d"] if done else [])]
    assert made.counts() == (3 + done, 3 + done, 0, not done, 0)


def test_steps_are_all_named() -> None:
    made = ring()
    seen: list[str] = []
    made.checkpoint = seen.append
    put(made, b"x")
    made.get(0)
    assert seen == [f"put: {step}" for step in PUT_STEPS] + [f"get: {step}" for step in GET_STEPS]


def test_a_waiting_process_goes_on_when_the_holder_of_the_lock_is_killed() -> None:
    made = ring()

    def puts() -> None:
        made.checkpoint = lambda name: signal.pause() if name == "put: copied" else None  # type: ignore[assignment,return-value]
        put(made, b"never")

    with Children() as children:
        child = children.run(puts)
        begun = ITEM_SIDE.fields["begun"][1] + CACHE_LINE  # type: ignore[index]
        memory = memory_of(made)
        while not memory[begun]:
            os.sched_yield()
        killer = threading.Timer(0.05, child.kill)
        killer.start()
        assert put(made, b"mine", GIVE_UP_S)
        killer.join()
    assert drained(made) == [b"mine"]
    assert made.counts()[2] == 1


BUSY_WAITS = 5
"""Waits for a lock that no call with a short timeout makes: each lasts 50 ms, or as long as the call may wait."""


class Holder:
    """A thread that holds a lock of the ring until it is released."""

    def __init__(self, made: ItemRing, side: str) -> None:
        """Returns when the lock is held; the ring has an item."""
        self.held, self.released = threading.Event(), threading.Event()
        self.ring = ItemRing(os.dup(made.fd), KEY)
        self.ring.checkpoint = lambda name: self._stop() if name == f"{side}: copied" else None
        use = partial(put, self.ring, b"of the holder") if side == "put" else partial(self.ring.get, 0)
        self.thread = threading.Thread(target=use)
        self.thread.start()
        assert self.held.wait(GIVE_UP_S)

    def _stop(self) -> None:
        self.held.set()
        self.released.wait(GIVE_UP_S)

    def end(self) -> None:
        self.released.set()
        self.thread.join()


@each_of("timeout", [0, 0.01])
@each_of("side", ["put", "get"])
def test_a_call_gives_up_at_its_timeout_while_another_one_holds_the_lock(side: str, timeout: float) -> None:
    made = ring()
    put(made, b"first")
    put(made, b"second")
    holder = Holder(made, side)
    waits = 0

    def checkpoint(name: str) -> None:
        nonlocal waits
        waits += name == "lock: busy"
        if waits == BUSY_WAITS:  # whoever waits on gets the lock in the end
            holder.end()

    made.checkpoint = checkpoint
    done = put(made, b"third", timeout) if side == "put" else made.get(timeout)
    assert not done
    assert holder.thread.is_alive()
    holder.end()
    assert put(made, b"fourth") if side == "put" else made.get(0)


@pytest.mark.parametrize("side", ["put", "get"])
def test_a_call_without_a_wait_waits_for_one_that_is_done_soon(side: str) -> None:
    made = ring()
    put(made, b"first")
    put(made, b"second")
    holder = Holder(made, side)
    made.checkpoint = lambda name: holder.end() if name == "lock: busy" else None
    assert put(made, b"third") if side == "put" else made.get(0)


def test_another_key_or_another_byte_is_refused_and_counted() -> None:
    made = ring()
    other = ItemRing(os.dup(made.fd), bytes(32))
    put(other, b"of another key", kind=SIGNED)
    put(made, b"plain")
    assert made.get(0) == (PLAIN, b"plain")
    assert made.counts()[4] == 1
    put(made, b"signed" * 30, kind=SIGNED)
    memory = memory_of(made)
    at = memory.find(b"signedsigned", data_of(made))
    memory[at] ^= 1
    assert made.get(0) is None
    assert made.counts()[4] == 2


def test_swapped_items_are_refused() -> None:
    made = ring()
    for text in (b"first", b"other", b"third"):
        put(made, text, kind=SIGNED)
    memory, data = memory_of(made), data_of(made)
    size = 16 + 32 + 8
    one, two = memory[data : data + size], memory[data + size : data + 2 * size]
    memory[data : data + 2 * size] = two + one
    assert drained(made) == [b"third"]
    assert made.counts()[4] == 2


def test_an_item_whose_flag_was_taken_away_has_another_kind() -> None:
    made = ring()
    put(made, b"first", kind=SIGNED)
    memory, data = memory_of(made), data_of(made)
    memory[data + 8] = SIGNED & ~ITEM_SIGNED
    item = made.get(0)
    assert item is None or item[0] != SIGNED


@pytest.mark.parametrize("place", ["length", "map"])
def test_impossible_words_are_an_error(place: str) -> None:
    made = ring()
    put(made, b"first")
    at = data_of(made) if place == "length" else item_layout.ITEM_MAP_OFFSET
    memory_of(made)[at : at + 4] = b"\xff" * 4
    memory_of(made)[at + 4 if place == "length" else at] = 0xFF
    for _ in range(2):
        with pytest.raises(SegmentSpoiled, match="make a new queue"):
            made.get(0)


def test_another_file_is_refused() -> None:
    fd = os.memfd_create("other")
    os.ftruncate(fd, 1 << 20)
    with pytest.raises(SegmentMismatch):
        ItemRing(fd, KEY)
    os.close(fd)
    with pytest.raises(ValueError, match="give 32"):
        ItemRing(0, b"short")


def test_nobody_can_cut_it_short_and_it_ends_with_its_last_user() -> None:
    made = ring()
    with pytest.raises(PermissionError):
        os.ftruncate(made.fd, 4096)
    fd = made.fd
    del made
    gc.collect()
    with pytest.raises(OSError, match="Bad file"):
        os.fstat(fd)
