"""Where messages wait for the disk: a compiled callback puts them straight into the memory that is written from."""

from collections.abc import Callable, Mapping
from threading import Event

from ipcbus.archive.row_block import RowBlock
from ipcbus.message import Message

class RecordBuffer:
    """Takes the messages of a context and hands out buffers of them; for one context and one thread that writes.

    What finds no memory is either waited for, which holds up the context and so the bus, or dropped. What is dropped
    is noted in rows of type TYPE_LOSS_RECORDER, one for each stretch of numbers of a topic of a session; they are put
    as soon as there is memory, before anything that comes later. When more than half of the memory is in use, the
    context pauses once a buffer for GIVE_WAY_S at most, so that the thread that writes gets at the interpreter.
    """

    topics: dict[str, int]
    """Numbers of topics; a new one gets the next number, from 0 on."""
    sources: dict[str, int]
    """Numbers of source strings, likewise."""
    losses: int
    """Losses that the bus reported."""
    lost: int
    """Sequence numbers that they span."""
    dropped: int
    """Sequence numbers of messages that came and are not recorded."""
    too_large: int
    """Those among them of messages that are longer than `message_max`."""
    missed: int
    """Sequence numbers that were sent while no recorder was there."""
    starving: bool
    """Whether the last message found no memory."""
    waits: bool
    """Whether a message waits for memory; may be set to False to let go one that does."""

    def __init__(
        self,
        buffer_bytes: int,
        wake: Callable[[], object],
        room: Event,
        *,
        waits: bool = False,
        known: Mapping[tuple[str, str], int] = {},
        message_max: int = ...,
        parts: int = 16,
    ) -> None:
        """An empty stage.

        Args:
            buffer_bytes: how much memory to use, BUFFER_BYTES_MIN at least. A message that is longer takes as much as
                it needs beside it, one at a time.
            wake: called when there is a new buffer: the one before is full, or something has come after nothing was
                there. By whoever drives the context.
            room: set when a buffer was given back.
            waits: whether a message that finds no memory waits for it; else it is dropped.
            known: for topics and source strings that an earlier recorder has met, the number after the last that it
                recorded or reported. What the first message, or the end, shows to be missing in between is noted as
                lost too.
            message_max: a longer message, with its headers, is dropped.
            parts: into how many buffers the memory is divided.

        Raises:
            ValueError: `buffer_bytes` is too small.
        """

    def stage(self, message: Message) -> None:
        """Takes a message or event: the callback of receivers. Raises nothing but what a signal handler raises."""

    def take(self, partly: bool = True) -> RowBlock | None:
        """Returns the oldest buffer that is full, or else, with `partly`, what there is; the caller gives it back."""

    def give_back(self, buffer: RowBlock) -> None:
        """Lets the memory of a buffer be used again."""

    def settle(self) -> bool:
        """Puts rows that were noted, if there is memory; returns whether all are."""

    @property
    def filled(self) -> int:
        """Bytes in buffers that are not given back."""

    @property
    def first_ns(self) -> int:
        """When the oldest row came that waits to be taken; 0 when none does."""

GIVE_WAY_S: float

BUFFER_BYTES_MIN: int
"""The least memory that a stage works with."""
