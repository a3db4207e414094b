"""The GMD area of a sender: the copies of its guaranteed messages, with the notes of its state machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from typing_extensions import Buffer


class SavedMessage(NamedTuple):
    """The copy of a message."""

    number: int
    """GMD number, from 1 on."""
    mode: int
    """`SOME` or `ALL`."""
    timeout_ns: int
    """After this time without the acknowledgements the message fails, in ns; 0: never."""
    send_time_ns: int
    """When the message was sent for the first time, in ns since the epoch."""
    block: bytes
    """The header block; empty without headers."""
    data: bytes
    """The value."""


class Recovered(NamedTuple):
    """The content of an area when it was opened."""

    notes: list[bytes]
    """The notes of the last checkpoint, and those after it."""
    unreleased: list[tuple[int, int]]
    """First and last number of each run of messages that are not released, in order."""
    modes: list[tuple[int, int]]
    """Number and mode of each unreleased message whose mode differs from the mode of the unreleased one before."""
    damage: list[tuple[int, int]]
    """First and last number of each run of messages whose copies are gone though no call released them, in order."""


class SenderArea(Protocol):
    """The copies of a sender's guaranteed messages until they are released.

    One thread at a time calls an area. Only `sync` may run beside the other functions, in one thread at a time.
    """

    max_size: int
    """Most bytes that unreleased messages may take; 0: no limit."""
    checkpoint: Callable[[], list[bytes]]
    """Returns the whole state of the sender's machine as notes; called when the area starts a new segment."""

    @property
    def sender(self) -> str:
        """The sender's `gmd_name`."""

    @property
    def topic(self) -> str:
        """The topic of its messages."""

    @property
    def incarnation(self) -> int:
        """A random number of 64 bits, made with the area; never 0."""

    @property
    def last_number(self) -> int:
        """The highest number that was ever given; 0 before the first one. `unsave` takes it back."""

    @property
    def size(self) -> int:
        """The bytes that the unreleased messages take, with the heads of their records."""

    @property
    def durable_number(self) -> int:
        """Messages up to this number are synced to the disk."""

    def save(self, mode: int, timeout_ns: int, send_time_ns: int, block: Buffer, data: Buffer) -> int:
        """Saves a copy of a message, and returns its number: `last_number` + 1.

        Args:
            mode: `SOME` or `ALL`.
            timeout_ns: see `SavedMessage`.
            send_time_ns: see `SavedMessage`.
            block: the header block; empty without headers.
            data: the value.

        Raises:
            GmdAreaFull: the message does not fit under `max_size`, or the disk has no room; nothing was saved.
            GmdError: the area failed or is closed; nothing was saved.
        """

    def unsave(self, number: int) -> None:
        """Takes back the message that was saved last; the next message gets its number.

        Raises:
            GmdError: `number` is not the number of the last call of this area, which was `save`.
        """

    def load(self, number: int) -> SavedMessage | None:
        """Returns the copy of a message; None if it is released or was never saved.

        Raises:
            GmdAreaDamaged: the copy contradicts its checksum.
        """

    def load_range(self, first: int, last: int, bytes_max: int) -> list[SavedMessage]:
        """Returns the unreleased messages of a range, in order.

        Args:
            first: number of the first message.
            last: number of the last message.
            bytes_max: the list ends before the message whose header block and value exceed this sum; but the first
                message is always returned.
        """

    def release(self, first: int, last: int) -> None:
        """Gives up the copies of a range of numbers; numbers without a copy are skipped.

        A crash brings back the copies of up to 64 calls after the last note: these messages are unreleased again.
        """

    def note(self, payload: bytes) -> None:
        """Appends a note of the sender's machine; a full area has room for notes, too.

        Raises:
            GmdError: the area failed or is closed.
        """

    def recovered(self) -> Recovered:
        """Returns the content of the area when it was opened; called once."""

    def sync(self) -> None:
        """Syncs what is saved, so that it survives a power loss.

        Raises:
            GmdError: the system refuses; the area failed for good, and each later `save` raises this error.
        """

    def close(self) -> None:
        """Closes the area; unreleased messages stay in its files. A second call does nothing."""
