"""The records of a journal: writing, checking and finding them; `journal_layout` describes their bytes."""

from typing_extensions import Buffer

from ipcbus.gmd.copy_index import CopyIndex

class Record:
    """A record that agrees with its checksums."""

    kind: int
    mode: int
    number: int
    first: int
    second: int
    block: bytes
    """The header block of a message."""
    body: bytes
    """The body, of a message without its header block."""
    offset: int
    """Where the record begins in its segment."""
    size: int
    """The bytes of the record, with its head and its padding."""

def checksum(data: Buffer) -> int:
    """Returns the CRC-32C of some bytes."""

def segment_stamp(incarnation: int, serial: int) -> int:
    """Returns what the records of a segment are marked with."""

def pack(
    kind: int,
    stamp: int,
    offset: int,
    number: int,
    *,
    first: int = 0,
    second: int = 0,
    mode: int = 0,
    block: Buffer = b"",
    body: Buffer = b"",
) -> bytes:
    """Returns the bytes of a record.

    Args:
        kind: KIND_MESSAGE and so on.
        stamp: of the segment.
        offset: where the record will begin in the segment; a multiple of 8.
        number: see `journal_layout`, as for the rest.
        first: see there.
        second: see there.
        mode: see there.
        block: the header block of a message.
        body: the body, of a message without its header block.
    """

def end_mark(stamp: int, offset: int) -> bytes:
    """Returns the bytes that stand at this offset when the records of the segment end there."""

def read(data: Buffer, at: int, stamp: int) -> Record | None:
    """Returns the record that begins at an offset of a segment; None where the bytes there are not a good record.

    Args:
        data: the bytes of the segment.
        at: the offset.
        stamp: of the segment.
    """

def claim(data: Buffer, at: int, stamp: int) -> tuple[int, int] | None:
    """Returns kind and size of a record by its head alone; None where the head is damaged or not there."""

def find(data: Buffer, at: int, stamp: int) -> int:
    """Returns the offset of the first good record from an offset on; -1 without a good record."""

def replay(data: Buffer, at: int, stop: int, stamp: int, serial: int, index: CopyIndex, last: int) -> tuple[int, int]:
    """Reads the messages of a segment in one go, up to a record that the caller must look at.

    Args:
        data: the bytes of the segment.
        at: the offset to begin at.
        stop: the offset to end at.
        stamp: of the segment.
        serial: of the segment.
        index: gets the places of messages that it expects.
        last: the highest number that was given before; MESSAGE records continue the index from there on, and RELEASE
            records remove messages. With -1, no message is new, and all other records are skipped.

    Returns:
        The offset of the first record that is damaged, begins at `stop` or later, or, unless `last` is -1, is a NOTE,
        a SYNCED, a CHECKPOINT, or does not continue
        the numbers; and `last` after the messages that were read.
    """
