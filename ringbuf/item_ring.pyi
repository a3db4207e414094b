"""A queue of items with many producers and many consumers, in memory that child processes inherit.

Items are bytes of any length, each with a kind. `put` returns when the item is in the shared memory, where it outlives
its producer; the memory lives until the last process that has it ends, and has no name that could be left behind. It
grows and shrinks by chunks (`item_layout`), up to a limit.

Each side has one lock, which outlives its holder too: the kernel hands it on when the holder is killed, at any step.
What a killed producer had not finished never was an item. What a killed consumer had not taken off is the next one's.

Any thread of any process may use a ring. A wait does not hold the interpreter's lock, and signals interrupt it. A call
waits for its turn beyond its timeout: up to 20 ms beside a call that does not go on, and up to 200 ms in all while
other calls get their turns. So a process that is stopped in the middle of a call holds no other up for longer.
"""

from collections.abc import Callable
from typing import Any

Buffer = Any

class ItemRing:
    """A ring of items, mapped into this process."""

    fd: int
    """The descriptor of the memory; the ring closes it at its end."""

    item_max: int
    """Most bytes of an item."""

    items_max: int
    """Most items; 0 for no limit."""

    checkpoint: Callable[[str], object] | None
    """For tests: called with the name of each step of `put` and `get` after the step, and before a wait for a lock."""

    def __init__(self, fd: int, secret: bytes) -> None:
        """Maps a ring.

        Args:
            fd: a descriptor from `create_item_ring`, which belongs to the ring from then on.
            secret: 32 bytes; the key of signed items.

        Raises:
            ringbuf.ring_errors.SegmentMismatch: the descriptor leads to something else.
        """

    def put(self, kind: int, front: bytes, body: Buffer, timeout: float | None) -> bool:
        """Appends an item, which consists of two parts.

        Args:
            kind: for the layer above, but for the bits `ITEM_SIGNED` and `ITEM_WRITABLE`.
            front: the first part; the whole item if it is signed.
            body: the second part: bytes-like, contiguous.
            timeout: seconds that the call waits for room; None for ever, 0 not at all.

        Returns:
            False when the time is over, without room or because another producer was putting all the time: the item is
            not in the ring.

        Raises:
            ValueError: the item is longer than `item_max`.
            ringbuf.ring_errors.SegmentFull: the system has no memory.
            ringbuf.ring_errors.SegmentRefused: a signed item, and this process runs as another user.
            ringbuf.ring_errors.SegmentSpoiled: another process damaged the memory.
        """

    def get(self, timeout: float | None) -> tuple[int, bytes | bytearray] | None:
        """Takes the next item off; skips and counts signed items of which the tag is wrong.

        Returns:
            Kind and bytes of the item, as a bytearray for `ITEM_WRITABLE`; None when the time is over, without an item
            or because another consumer was getting one all the time.

        Raises:
            ringbuf.ring_errors.SegmentRefused: the next item is signed, and this process runs as another user.
            ringbuf.ring_errors.SegmentSpoiled: another process damaged the memory.
        """

    def refuse(self) -> None:
        """Counts an item that the layer above cannot use."""

    def check_user(self) -> None:
        """Refuses signed items in a process of another user.

        Raises:
            ringbuf.ring_errors.SegmentRefused: this process runs as another user than the one that made the ring.
        """

    def qsize(self) -> int:
        """Returns the number of items in the ring."""

    def counts(self) -> tuple[int, int, int, int, int]:
        """Returns the items put and taken, the puts and gets that a death cut short, and the items refused."""

    def memory(self) -> int:
        """Returns the bytes of memory that the ring keeps for items."""

def create_item_ring(*, bytes_max: int, items_max: int = 0) -> int:
    """Makes the memory of a ring.

    Args:
        bytes_max: most bytes of items, rounded up to chunks; memory is used for the items that wait only.
        items_max: most items; 0 for no limit.

    Returns:
        A descriptor for `ItemRing`, closed on exec.
    """
