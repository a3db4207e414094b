"""The memory in which messages wait for the disk: a compiled callback writes them where the disk reads them from."""

from collections.abc import Callable, Mapping
from threading import Event

from ipcbus.archive.resume_positions import ResumePosition
from ipcbus.archive.row_block import RowBlock
from ipcbus.message import Message

class RecordBuffer:
    """Records the messages of a context, and gives them to one writer thread in blocks.

    A message that finds no memory either waits, which stops the context and so the bus, or is dropped. Dropped messages
    are noted in rows of type TYPE_LOSS_RECORDER, one for each range of numbers of a topic of a session; the rows are
    appended as soon as there is memory, before any later message. When more than half of the memory is in use, the
    context pauses once for each block, for PAUSE_S at most, so that the writer thread gets the interpreter.
    """

    topics: dict[str, int]
    """Topic -> number; a new topic gets the next number, from 0 on."""
    sources: dict[str, int]
    """Source string -> number, in the same way."""
    losses: int
    """Losses that the bus reported."""
    lost: int
    """Sequence numbers that these losses span."""
    dropped: int
    """Sequence numbers of messages that arrived and were not recorded."""
    too_large: int
    """Those of `dropped` whose messages are longer than `message_max`."""
    missed: int
    """Sequence numbers that were sent while no recorder ran."""
    out_of_memory: bool
    """Whether the last message found no memory."""
    waits: bool
    """Whether messages wait for memory; setting it to False ends a wait."""

    def __init__(
        self,
        buffer_bytes: int,
        wake: Callable[[], object],
        freed: Event,
        *,
        waits: bool = False,
        resume_positions: Mapping[tuple[str, str], ResumePosition] = {},
        message_max: int = ...,
        parts: int = 16,
    ) -> None:
        """Makes an empty buffer.

        Args:
            buffer_bytes: how much memory to use, BUFFER_BYTES_MIN at least. A longer message takes the memory that it
                needs in addition, one at a time.
            wake: called by the thread that drives the context when there is a new block: the one before is full, or the
                first message arrived in an empty buffer.
            freed: set when a block was given back.
            waits: whether a message that finds no memory waits for it; else it is dropped.
            resume_positions: for a topic and source string that an earlier recorder saw, up to where it recorded. A
                source that keeps messages may send lower numbers again; they are left out. Numbers that are missing
                between the position and the first message, or the end, are noted as lost. A topic that began again in
                its session goes on at 0.
            message_max: a longer message, with its headers, is dropped.
            parts: into how many blocks the memory is divided.

        Raises:
            ValueError: `buffer_bytes` is too small.
        """

    def record(self, message: Message) -> None:
        """Records a message or event: the callback of receivers. Raises only what a signal handler raises."""

    def take(self, partly: bool = True) -> RowBlock | None:
        """Returns the oldest full block, or else, with `partly`, the open one; the caller gives it back."""

    def give_back(self, buffer: RowBlock) -> None:
        """Makes the memory of a block available again."""

    def flush_notes(self) -> bool:
        """Appends rows that were noted, if there is memory; returns whether all are appended."""

    @property
    def filled(self) -> int:
        """Bytes in blocks that were not given back."""

    @property
    def first_ns(self) -> int:
        """Receive time of the oldest row that waits to be taken; 0 when none waits."""

PAUSE_S: float
"""Longest pause of a context for the writer thread, in s."""

BUFFER_BYTES_MIN: int
"""The least memory that a record buffer works with, in bytes."""
