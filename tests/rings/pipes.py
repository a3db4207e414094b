"""Pipes for tests, named after the test's domain."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from ringbuf import layout, segment
from ringbuf.pipe import Pipe, create_pipe, join_pipe

if TYPE_CHECKING:
    from collections.abc import Iterator

SESSION, SLOT, GENERATION = 0x51E55104, 3, 7
QUEUE = layout.PAGE
"""The smallest queue: it wraps and fills soonest."""


def pipe_name(domain: str) -> str:
    """Name of the test's pipe."""
    return f"ipcbus.{domain}.p"


def create(domain: str, queue_bytes: int = QUEUE, group: str = "") -> Pipe:
    """The source's end; the test removes the name, or `pipe_pair` does."""
    return create_pipe(
        pipe_name(domain), queue_bytes=queue_bytes, session_id=SESSION, slot=SLOT, generation=GENERATION, group=group
    )


def join_it(domain: str, **other: int) -> Pipe:
    """The receiver's end of the pipe of this session, slot and generation, unless others are named."""
    expected = {"session_id": SESSION, "slot": SLOT, "generation": GENERATION, "owner_uid": os.geteuid()} | other
    return join_pipe(pipe_name(domain), **expected)


@contextmanager
def pipe_pair(domain: str, queue_bytes: int = QUEUE) -> Iterator[tuple[Pipe, Pipe]]:
    """Both ends; without a name, as both have mapped it."""
    source = create(domain, queue_bytes)
    try:
        receiver = join_it(domain)
    finally:
        segment.remove(pipe_name(domain))
    yield source, receiver
    source.close()
    receiver.close()


@contextmanager
def mapped(domain: str, queue_bytes: int = QUEUE) -> Iterator[tuple[Pipe, Pipe, np.ndarray[Any, Any]]]:
    """Both ends, and all bytes of the object as a hostile program has them."""
    source = create(domain, queue_bytes)
    try:
        receiver = join_it(domain)
        fd = segment.open_fd(pipe_name(domain), write=True)
    finally:
        segment.remove(pipe_name(domain))
    try:
        memory = segment.map_fd(fd, write=True)
    finally:
        os.close(fd)
    yield source, receiver, np.frombuffer(memory.view(), np.uint8)


def queues(memory: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The positions of both queues: that from the source, and that to it."""
    found: np.ndarray[Any, Any] = np.frombuffer(memory, layout.PIPE_QUEUE, 2, layout.PIPE_HEADER.itemsize)
    return found


def data_at(queue: int, queue_bytes: int = QUEUE) -> int:
    """The offset of a queue's data."""
    return layout.PIPE_HEADER.itemsize + 2 * layout.PIPE_QUEUE.itemsize + queue * queue_bytes
