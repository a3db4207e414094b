"""The GMD area of a sender: the copies of its guaranteed messages, with the notes of its state machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

    from typing_extensions import Buffer

    PlaceRun: TypeAlias = Callable[[int], tuple[int, int | None, int]]
    """Returns the opening of the area that sent a message; its place, or None if it is the one of the record; and the
    last of the messages with this opening, and with this answer to the question for the place."""


class SavedMessage(NamedTuple):
    """The copy of a message."""

    number: int
    """GMD number, from 1 on."""
    mode: int
    """`SOME` or `ALL`."""
    place: int
    """The place in its topic that its source expected (`wire.topic_places`)."""
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

    def save(self, mode: int, place: int, send_time_ns: int, block: Buffer, data: Buffer) -> int:
        """Saves a copy of a message, and returns its number: `last_number` + 1.

        Args:
            mode: `SOME` or `ALL`.
            place: see `SavedMessage`.
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

    def entries(self, first: int, last: int, bytes_max: int, place_run: PlaceRun) -> tuple[list[bytes], int, int, int]:
        """Returns the unreleased messages of a range as entries of a GMD_RESENT, in order.

        Args:
            first: number of the first message.
            last: number of the last message.
            bytes_max: they end before the entry which exceeds this sum; but there is always a first one.
            place_run: returns where a message stood in its topic.

        Returns:
            The bytes of the entries in parts, the number of entries, their bytes, and the number behind the range that
            they answer for. It ends before a damaged copy.

        Raises:
            GmdAreaDamaged: the first copy contradicts its checksum.
        """

    def release(self, first: int, last: int) -> None:
        """Gives up the copies of a range of numbers; numbers without a copy are skipped.

        A crash brings back the copies of up to 64 calls after the last note: these messages are unreleased again.
        """

    @property
    def has_unwritten_releases(self) -> bool:
        """Whether releases wait to be written as one record with later ones."""

    def write_releases(self) -> None:
        """Writes these releases now, so that a crash does not bring the copies back, and readers of the files see it.

        `unsave` cannot take back a message that was saved before.

        Raises:
            GmdError: the system refuses.
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

    def check(self) -> None:
        """Looks whether the files of the area are still there; called from time to time.

        Raises:
            GmdError: they were removed; the area failed for good, and each later `save` raises this error.
        """

    def close(self) -> None:
        """Closes the area; unreleased messages stay in its files. A second call does nothing."""
