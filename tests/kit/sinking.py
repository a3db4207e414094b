"""Batches of the sink, staged and published on a bus that remembers."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from ipcbus.spark.identity import POSSIBLE_DUPLICATE, Deduplicator, Identity, identity_of
from ipcbus.spark.sink.outgoing_messages import plain
from ipcbus.spark.sink.staged_rows import Staged, stage
from ipcbus.storage.files import Disk

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from ipcbus.storage.files import Files

ATTEMPT = 17


def content(values: Sequence[bytes], topic: str = "t") -> pa.RecordBatch:
    """Rows of one topic, as they are staged."""
    return plain(pa.record_batch([pa.array(values, pa.binary())], ["value"]), topic)


def staged(
    directory: Path, batch: int, partitions: Sequence[Sequence[bytes]], files: Files | None = None
) -> list[Staged]:
    """What the tasks of a batch have staged."""
    found = [
        stage(files or Disk(), directory, batch, partition, ATTEMPT, [content(values)])
        for partition, values in enumerate(partitions)
    ]
    return [each for each in found if each is not None]


@dataclass
class Sent:
    """A message on the bus that remembers."""

    topic: str
    value: bytes
    headers: tuple[tuple[str, bytes], ...]

    @property
    def identity(self) -> Identity:
        """Which row it is."""
        found = identity_of(self.headers)
        assert found is not None
        return found

    @property
    def flagged(self) -> bool:
        """Whether it may be a double."""
        return (POSSIBLE_DUPLICATE, b"1") in self.headers


class Stop(Exception):
    """Where a test wants the publishing to end."""


@dataclass
class FakeBus:
    """Remembers what is sent.

    Attributes:
        sent: everything, in its order.
        opened: how often it was asked for.
        fails_at: raises instead of sending when it holds so many messages.
        fails_after: raises when it holds so many messages, after it has sent.
    """

    sent: list[Sent] = field(default_factory=list)
    opened: int = 0
    fails_at: int = -1
    fails_after: int = -1
    _topic: str = ""

    def open(self) -> AbstractContextManager[FakeBus]:
        """Gives itself."""
        self.opened += 1
        return contextlib.nullcontext(self)

    def ready(self, topic: str) -> FakeBus:
        """Sends on this topic from now on."""
        self._topic = topic
        return self

    def send(self, data: bytes, *, headers: tuple[tuple[str, bytes], ...], flush: bool) -> None:
        """Sends a message."""
        assert flush, "what is not flushed is not published"
        if len(self.sent) == self.fails_at:
            raise Stop
        self.sent.append(Sent(self._topic, data, headers))
        if len(self.sent) == self.fails_after:
            raise Stop

    @property
    def values(self) -> list[bytes]:
        """Values of all messages."""
        return [message.value for message in self.sent]

    @property
    def flagged(self) -> list[bytes]:
        """Values of those that may be doubles."""
        return [message.value for message in self.sent if message.flagged]

    def once(self) -> Iterator[bytes]:
        """Values of what is no double."""
        fresh = Deduplicator()
        return (message.value for message in self.sent if fresh.is_new_row(message.topic, message.identity))
