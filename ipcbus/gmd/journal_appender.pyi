"""The appending path of a journal: one write to its file a message."""

from typing_extensions import Buffer

from ipcbus.gmd.copy_area import CopyArea
from ipcbus.gmd.copy_index import CopyIndex
from ipcbus.storage.files import File

class JournalAppender(CopyArea):
    """The part of a `SenderArea` in files that runs for each message; see there.

    A subclass makes room: it starts segments and allocates room on the disk.
    """

    def __init__(
        self, sender: str, topic: str, incarnation: int, max_size: int, index: CopyIndex, last: int, *, each: bool
    ) -> None:
        """Goes on with what is known of an area.

        Args:
            sender: see `SenderArea`.
            topic: see `SenderArea`.
            incarnation: see `SenderArea`.
            max_size: see `SenderArea`.
            index: the places of the unreleased messages.
            last: the highest number that was given.
            each: whether each message is synced before `save` returns.
        """

    def begin_segment(self, file: File, serial: int, end: int) -> None:
        """Appends to this segment from now on."""

    def set_room(self, room: int, note_room: int) -> None:
        """Sets up to which offsets of the segment messages, and other records, need no preparation."""

    def set_garbage(self, older_bytes: int, most: int) -> None:
        """Sets the bytes of the older segments, and how much garbage all segments may have before `drop_garbage`."""

    @property
    def current(self) -> File | None:
        """The segment that is written; None before the first one."""

    @property
    def serial(self) -> int:
        """The serial of that segment."""

    @property
    def end(self) -> int:
        """Where its records end."""

    @property
    def appended(self) -> int:
        """The bytes of messages that were saved in it, and not taken back."""

    @property
    def durable_number(self) -> int:
        """See `SenderArea`."""

    def save(self, mode: int, place: int, send_time_ns: int, block: Buffer, data: Buffer) -> int:
        """See `SenderArea`."""

    def unsave(self, number: int) -> None:
        """See `SenderArea`."""

    def release(self, first: int, last: int) -> None:
        """See `SenderArea`."""

    def note(self, payload: bytes) -> None:
        """See `SenderArea`."""

    @property
    def has_unwritten_releases(self) -> bool:
        """See `SenderArea`."""

    def write_releases(self) -> None:
        """See `SenderArea`."""

    def note_closed(self) -> None:
        """Appends a record which says that none follows it."""

    def begin_sync(self) -> File | None:
        """Remembers what a sync that begins now will cover; returns the segment to sync."""

    def end_sync(self, worked: bool) -> None:
        """The sync has ended."""

    @property
    def syncing(self) -> File | None:
        """The segment that another thread syncs at the moment."""

    @property
    def syncing_end(self) -> int:
        """Up to which offset of that segment."""

    def all_durable(self) -> None:
        """Everything that was saved is synced."""

    # What a subclass does.

    def make_room(self, need: int) -> None:
        """Prepares the segment, or a new one, for messages of this many bytes.

        Raises:
            GmdAreaFull: the disk has no room.
        """

    def make_note_room(self, need: int) -> None:
        """Prepares the segment, or a new one, for other records, if that is possible."""

    def drop_garbage(self) -> None:
        """Removes segments without unreleased messages, if that is possible."""

    def write_slowly(self, data: bytes) -> None:
        """Writes at the end of the segment, after compiled code could not; a failure leaves nothing there."""

    def cut_back(self) -> None:
        """Cuts the segment at `end`."""

    def cut_quietly(self) -> None:
        """Cuts the segment at `end`, if that is possible; the area has failed."""

    def sync_save(self) -> None:
        """Syncs the message that was just written."""

    def read_block(self, serial: int, offset: int, length: int) -> bytes:
        """Returns bytes of a segment; fewer where it ends."""
