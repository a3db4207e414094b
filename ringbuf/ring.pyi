"""A ring: one writer, many readers, records of any length.

The writer of a receiver-paced ring never overwrites a record that an active reader has not read: it waits while the
ring is full. The writer of a source-paced ring never waits. Before it overwrites a byte, it announces that (`intent`).
A reader copies a record and then checks `intent`. So a lapped reader continues at the end and never returns a torn
record.

A receiver-paced ring with eviction is receiver-paced until the writer's owner evicts a reader
(`slots.SlotTable.evict`), which then does not count any more. A reader of such a ring copies too, and then checks
whether it was evicted.

The compiled functions of `ring.pxd` are the message path; these classes own their structs and are the Python interface.
"""

from ringbuf.memory import Mapping

class RingWriter:
    """The writing end. Belongs to one thread at a time."""

    ring: Mapping
    control: Mapping
    capacity: int

    def __init__(self, ring: Mapping, control: Mapping) -> None:
        """Makes the writer of a session that this process owns; the headers must be complete.

        Raises:
            SegmentMismatch: a header does not have this layout.
        """

    @property
    def head(self) -> int:
        """The position after the last published record."""

    @property
    def open_bytes(self) -> int:
        """The bytes in the open record, its header included; 0 without an open record."""

    def go_back(self, message_max: int, messages: int, long_from: int = 262_144) -> None:
        """Lets the writer use memory again as soon as it is read, so that it is still in the processor's caches.

        It has an effect on receiver-paced rings without eviction and without checksums, for long records, if the ring
        has room for one of them beside those that it promises.

        Args:
            message_max: bytes of the longest record's body; the longest one of several calls counts.
            messages: how many of them must fit at each moment, beside what all readers have read. Where that is more
                than before, they fit once the readers have read what was published before this call.
            long_from: bytes from which a record is long.
        """

    def set_time(self, ticks: int) -> None:
        """Sets the time of this writer until the next call, for simulations; a tick is then a nanosecond."""

    def write(self, body: bytes, messages: int = 1) -> bool:
        """Writes and publishes one record without waking readers; returns False when the ring is full.

        Raises:
            ValueError: the body exceeds the ring's record maximum.
        """

    def claim(self, length: int) -> memoryview | None:
        """Opens a record of `length` bytes for writing in place; returns None when the ring is full."""

    def commit(self) -> int:
        """Publishes the open record; returns the mask of parked readers to wake."""

    def cancel(self) -> None:
        """Drops the open record."""

    def has_room(self, length: int) -> bool:
        """Returns whether `length` more bytes fit now."""

    def wait_room(self, length: int, spins: int, timeout_ns: int) -> bool:
        """Waits, without the GIL, until `length` more bytes fit; returns whether they do.

        It first checks `spins` times, then sleeps until a reader frees a quarter of the ring, for `timeout_ns` at most.
        """

    def want_event(self, length: int) -> bool:
        """Asks the readers for an event once `length` bytes fit again; returns False when they fit now."""

    def position_needed(self, length: int) -> int:
        """Returns the position that all readers must reach before `length` more bytes fit."""

    def accepted_position(self, slot: int, position: int, generation: int) -> int | None:
        """Checks the position that a slot shows.

        Returns:
            The position if it is possible, otherwise the last accepted position of this reader; None without one.
        """

    def count_blocked(self, blocked_ns: int) -> None:
        """Counts a send that waited, and its time."""

    def count_would_block(self) -> None:
        """Counts a send that was refused because the ring was full."""

    def count_wakes(self, wakes: int) -> None: ...
    def count_reclaimed(self) -> None: ...
    def count_evicted(self) -> None: ...
    def touch(self) -> None:
        """Increments the activity counter: the session message of a ring."""

    def close(self) -> None:
        """Marks the end of the session; published records stay readable."""

class RingReader:
    """The reading end of one slot. Belongs to one thread at a time."""

    ring: Mapping
    control: Mapping
    capacity: int
    slot_index: int

    def __init__(self, ring: Mapping, control: Mapping, slot_index: int, sample_every: int = 16) -> None:
        """Makes the reader of a slot that this process holds.

        Raises:
            SegmentMismatch: a header does not have this layout, or the owner uses another clock.
        """

    @property
    def position(self) -> int:
        """The position of the next record."""

    @property
    def tail(self) -> int:
        """The position after the last published record, as the ring header has it."""

    @property
    def overruns(self) -> int:
        """The number of times that the writer lapped this reader."""

    @property
    def cut_short(self) -> bool:
        """Whether another program cut the ring or its control block short (`Mapping.damaged`)."""

    @property
    def broken(self) -> bool:
        """Whether the ring is damaged, so that nothing more is read from it."""

    @property
    def evicted(self) -> bool:
        """Whether the source has evicted this reader; nothing more is read from it."""

    @property
    def ended(self) -> bool:
        """Whether the writer closed the session and every record was read."""

    @property
    def activity(self) -> int:
        """The writer's activity counter."""

    @property
    def slot(self) -> memoryview:
        """The bytes of this reader's slot (`layout.SLOT`), read-only, at the place that it had at the start."""

    def check(self) -> None:
        """Checks the headers of the ring and the control block again.

        Raises:
            SegmentMismatch: one of them was damaged after this reader was made.
        """

    def start(self, position: int) -> None:
        """Sets the position of the next record, which `slots.join` found."""

    def read(self) -> bytes | None:
        """Returns a copy of the body of the next record, or None when there is no record now."""

    def arm(self, mask_on: bool) -> None:
        """Sets or clears this reader's bit in the parked mask; after setting it, call `barrier` and check the ring."""

    def ready(self) -> bool:
        """Returns whether there may be a record, an overrun, or an end; False is certain."""

    def show(self) -> bool:
        """Publishes position and counters in the slot; returns True when the writer waits for an event."""

    @property
    def out_of_sync(self) -> bool:
        """Whether no record begins at the position, or the reader stopped and may continue; not within a record."""

    def resync(self) -> bool | None:
        """Lets a reader continue that has stopped or is out of sync.

        Returns:
            Whether it skipped the records up to the tail. None when it cannot continue yet: the words of the writer are
            damaged too, and the writer corrects them with its next record.
        """

def bucket(ns: int) -> int:
    """Returns the index of the latency bucket of `ns`."""

def nudge_writer(control: Mapping) -> bool:
    """Wakes a writer that sleeps until there is room; returns True when it waits for an event."""
