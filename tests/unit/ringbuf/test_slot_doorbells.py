"""Ringing the doorbells of sleeping readers in one compiled call."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

import pytest

from ringbuf.slot_doorbells import SlotDoorbells
from tests.rings.channels import control_of, header_of, join, owned, slots_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ringbuf.channel import JoinedChannel, OwnedChannel


class Stand:
    """Two readers, the end of a pipe for each, and the slots whose doorbells were looked for elsewhere."""

    def __init__(self, channel: OwnedChannel, readers: list[JoinedChannel]) -> None:
        self.channel, self.readers = channel, readers
        self.slow: list[int] = []
        self.doorbells = SlotDoorbells(channel.writer, self.ring_slowly)
        self.pipes = [os.pipe2(os.O_NONBLOCK) for _ in readers]
        for reader, (_, end) in zip(readers, self.pipes, strict=True):
            self.doorbells.put(reader.index, self.context_of(reader), end)

    def ring_slowly(self, slot: int) -> bool:
        self.slow.append(slot)
        return False

    def context_of(self, reader: JoinedChannel) -> int:
        return int(slots_of(self.channel)[reader.index]["context_id"])

    def heard(self) -> list[bytes]:
        found = []
        for out, _ in self.pipes:
            try:
                found.append(os.read(out, 9))
            except BlockingIOError:
                found.append(b"")
        return found


@pytest.fixture
def stand(domain: str) -> Iterator[Stand]:
    with owned(domain) as channel:
        readers = [join(domain), join(domain)]
        made = Stand(channel, readers)
        yield made
        for ends in made.pipes:
            for end in ends:
                os.close(end)
        for reader in readers:
            reader.leave()


def test_only_readers_that_sleep_are_rung_and_each_once(stand: Stand) -> None:
    stand.readers[1].reader.arm(True)
    assert stand.doorbells.ring(~0 & 0xFFFFFFFFFFFFFFFF) == 1
    assert stand.heard() == [b"", b"d"]
    assert stand.doorbells(0b11) == 0
    assert (stand.heard(), stand.slow) == ([b"", b""], [])
    assert header_of(stand.channel)["wakes_sent"] == 1


def test_readers_outside_of_the_mask_sleep_on(stand: Stand) -> None:
    for reader in stand.readers:
        reader.reader.arm(True)
    assert stand.doorbells.ring(1 << stand.readers[0].index) == 1
    assert stand.heard() == [b"d", b""]
    assert stand.doorbells.ring(0b11) == 1
    assert stand.heard() == [b"", b"d"]


def test_a_doorbell_of_another_context_is_not_rung_but_looked_for(stand: Stand) -> None:
    first = stand.readers[0]
    stand.doorbells.put(first.index, stand.context_of(first) + 1, stand.pipes[0][1])
    first.reader.arm(True)
    assert stand.doorbells.ring(0b11) == 0
    assert (stand.heard(), stand.slow) == ([b"", b""], [first.index])


def test_what_is_forgotten_is_not_rung_but_looked_for(stand: Stand) -> None:
    stand.doorbells.forget()
    for reader in stand.readers:
        reader.reader.arm(True)
    assert stand.doorbells.ring(0b11) == 0
    assert (stand.heard(), stand.slow) == ([b"", b""], [reader.index for reader in stand.readers])


def test_a_full_doorbell_counts_as_rung(stand: Stand) -> None:
    with pytest.raises(BlockingIOError):
        while True:
            os.write(stand.pipes[0][1], bytes(4096))
    stand.readers[0].reader.arm(True)
    assert stand.doorbells.ring(0b11) == 1


def test_a_slot_that_does_not_exist_is_refused(stand: Stand) -> None:
    with pytest.raises(ValueError, match="slot 64 does not exist"):
        stand.doorbells.put(64, 1, 0)


def test_forget_waits_for_threads_that_ring(stand: Stand) -> None:
    """Nothing is written to a descriptor after `forget`, by no thread: a full pipe holds the thread that rings."""
    reader, (out, end) = stand.readers[0], stand.pipes[0]
    with pytest.raises(BlockingIOError):
        while True:
            os.write(end, bytes(4096))
    os.set_blocking(end, True)
    reader.reader.arm(True)
    threads = [threading.Thread(target=stand.doorbells.ring, args=(0b11,))]
    threads[0].start()
    while control_of(stand.channel)["parked"]:
        pass  # it takes note of that just before it rings
    threads.append(threading.Thread(target=stand.doorbells.forget))
    threads[1].start()
    threads[1].join(0.1)
    try:
        assert threads[1].is_alive()
    finally:
        os.read(out, 1 << 20)
        for thread in threads:
            thread.join()


def test_a_child_process_does_not_wait_for_threads_of_its_parent(stand: Stand) -> None:
    stand.doorbells.abandon()
    for reader in stand.readers:
        reader.reader.arm(True)
    assert stand.doorbells.ring(0b11) == 0
