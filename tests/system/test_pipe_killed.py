"""`kill -9` of one side of a pipe between any two steps, and a side that writes random bytes over all of it."""

from __future__ import annotations

import itertools
import random
from typing import TYPE_CHECKING

import numpy as np

from ipcbus.recovery.control_channel import ControlChannel
from ringbuf import layout
from tests.rings.children import Children, kill_myself
from tests.rings.pipes import QUEUE, data_at, mapped, pipe_pair

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from ringbuf.pipe import Pipe

FRAMES = 3
LENGTH = 700
"""A few such frames fill a queue, and some of them wrap."""


def frame(number: int) -> bytes:
    return bytes([number % 251]) * LENGTH


def dying_at(step: int) -> Callable[[str], None]:
    """A checkpoint that ends the process at the step of this number."""
    left = itertools.count(step, -1)
    return lambda name: kill_myself() if next(left) == 0 else None


def test_the_other_side_gets_a_prefix_of_what_a_killed_one_put(domain: str) -> None:
    def puts(pipe: Pipe, step: int) -> None:
        pipe.checkpoint = dying_at(step)
        for n in range(FRAMES):
            pipe.put(frame(n))

    for step in range(2 * FRAMES):
        with pipe_pair(domain) as (source, receiver), Children() as children:
            child = children.run(puts, source, step)
            assert child.wait() < 0
            found = []
            while (each := receiver.take()) is not None:
                found.append(each)
            # "put: copied" comes before a frame can be seen, "put: published" after it.
            assert found == [frame(n) for n in range((step + 1) // 2)]
            assert receiver.broken == ""


def test_the_other_side_waits_for_nobody_when_the_taker_is_killed(domain: str) -> None:
    def takes(pipe: Pipe, step: int) -> None:
        pipe.checkpoint = dying_at(step)
        while True:
            pipe.take()

    for step in range(2 * FRAMES):
        with pipe_pair(domain) as (source, receiver), Children() as children:
            put = 0
            while source.put(frame(put)):
                put += 1
            assert put >= FRAMES
            assert children.run(takes, receiver, step).wait() < 0
            room = 0
            while source.put(frame(put + room)):
                room += 1
            assert room == (step + 1) // 2
            assert source.broken == ""


def test_random_bytes_over_the_whole_object_do_no_harm(domain: str) -> None:
    rounds, steps = 60, 1500

    def attack(memory: np.ndarray[Any, Any], seed: int) -> None:
        draw = random.Random(seed)
        words = np.frombuffer(memory, "<u8", memory.size // 8)
        heads = layout.PIPE_HEADER.itemsize // 8, data_at(0) // 8
        for _ in range(3000):
            # Positions and lengths more often than the bytes of frames, and plausible values more often than others.
            at = draw.choice([draw.randrange(*heads), draw.randrange(words.size), data_at(draw.randrange(2)) // 8])
            words[at] = draw.choice([draw.getrandbits(64), draw.randrange(QUEUE), int(words[at]) + 8 & (1 << 64) - 1])

    seed = random.randrange(1 << 32)
    print("seed", seed)
    for number in range(rounds):
        with mapped(f"{domain[:-2]}{number:02}") as (source, receiver, memory), Children() as children:
            child = children.run(attack, memory, seed + number)
            ends = [ControlChannel(end, queue_max=5000, message_max=3000) for end in (source, receiver)]
            done = 0
            while done < steps or not child.ended():
                done += 1
                for end in ends:
                    end.send(bytes(2000), bulk=done % 2 == 0)
                    end.flush()
                    message = end.receive()
                    assert message is None or len(message) <= 3000
                    assert end.queued <= 10_000
                if all(end.broken for end in ends) and done > steps:
                    break
            child.kill()
