"""One writer, many readers, records of any length, in two paces.

Receiver-paced, a writer never overwrites what an active reader has not read: a full ring makes it wait. Source-paced,
it never waits: before it overwrites a byte it says so (`intent`), and a reader that copied bytes looks there before it
uses one of them, so a reader that was lapped knows it and goes on at the end, and never returns a torn record.

Receiver-paced with eviction is receiver-paced until the writer's owner evicts a reader (`slots.SlotTable.evict`), which
then does not count any more. A reader of such a ring copies too, and looks afterwards whether it was evicted.

The compiled functions of `ring.pxd` are the message path; these classes are their owners and their face to Python.
"""

from ringbuf.memory import Mapping

class RingWriter:
    """The writing end. Belongs to one thread at a time."""

    ring: Mapping
    control: Mapping
    capacity: int

    def __init__(self, ring: Mapping, control: Mapping) -> None:
        """Over the two objects of a session that this process owns, headers filled in.

        Raises:
            SegmentMismatch: not our layout.
        """

    @property
    def head(self) -> int:
        """Position after the last published record."""

    @property
    def open_bytes(self) -> int:
        """Bytes in the open record, its header included; 0 when none is open."""

    def set_time(self, ticks: int) -> None:
        """Makes time stand still here until the next call, for simulations; a tick is then a nanosecond."""

    def write(self, body: bytes, messages: int = 1) -> bool:
        """Writes and publishes one record; False when the ring is full. Wakes nobody.

        Raises:
            ValueError: the body exceeds the ring's record maximum.
        """

    def claim(self, length: int) -> memoryview | None:
        """Opens a record of `length` bytes for writing in place, or None when the ring is full."""

    def commit(self) -> int:
        """Publishes the open record; returns the mask of parked readers to wake."""

    def cancel(self) -> None:
        """Drops the open record; the place is used again."""

    def has_room(self, length: int) -> bool:
        """Returns whether `length` more bytes fit now."""

    def wait_room(self, length: int, spins: int, timeout_ns: int) -> bool:
        """Waits, without the GIL, until `length` more bytes fit; says whether they do.

        First looks `spins` times, then sleeps until a reader frees a quarter of the ring, at most `timeout_ns`.
        """

    def want_event(self, length: int) -> bool:
        """Asks the readers for an event once `length` bytes fit again; False when they fit already."""

    def position_needed(self, length: int) -> int:
        """Position that every reader must have reached before `length` more bytes fit."""

    def believed(self, slot: int, position: int, generation: int) -> int | None:
        """Returns where the writer takes a reader to be whose slot shows this position.

        Returns:
            The position; the last one that was possible where this one is not; None where there was none before.
        """

    def count_blocked(self, blocked_ns: int) -> None:
        """Counts a send that had to wait, and for how long."""

    def count_would_block(self) -> None:
        """Counts a send that was refused because the ring was full."""

    def count_wakes(self, wakes: int) -> None: ...
    def count_reclaimed(self) -> None: ...
    def count_evicted(self) -> None: ...
    def touch(self) -> None:
        """Raises the activity counter: the session message of a ring."""

    def close(self) -> None:
        """Marks the end of the session; what was published stays readable."""

class RingReader:
    """The reading end of one slot. Belongs to one thread at a time."""

    ring: Mapping
    control: Mapping
    capacity: int
    slot_index: int

    def __init__(self, ring: Mapping, control: Mapping, slot_index: int, sample_every: int = 16) -> None:
        """Over the mappings of a session in which this process holds the slot.

        Raises:
            SegmentMismatch: not our layout.
        """

    @property
    def position(self) -> int:
        """Position of the next record."""

    @property
    def tail(self) -> int:
        """Position after the last published record, as the writer says."""

    @property
    def overruns(self) -> int:
        """How often the writer lapped this reader."""

    @property
    def cut_short(self) -> bool:
        """Whether somebody cut the ring or its control block short, as `Mapping.damaged` says."""

    @property
    def broken(self) -> bool:
        """Whether the ring held what no writer of ours writes; nothing more is read from it."""

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
        """The bytes of this reader's slot (`layout.SLOT`), read-only, where they were when the reader was made."""

    def check(self) -> None:
        """Checks the headers of the ring and the control block again.

        Raises:
            SegmentMismatch: one of them was damaged after this reader was made.
        """

    def start(self, position: int) -> None:
        """Puts the reader at a record's position, as `slots.join` found it."""

    def read(self) -> bytes | None:
        """Returns the body of the next record as a copy, or None when there is none now."""

    def arm(self, mask_on: bool) -> None:
        """Sets or clears this reader's bit in the parked mask; a barrier and a last look must follow the setting."""

    def ready(self) -> bool:
        """Returns whether there is something to do; may be wrong only in saying yes."""

    def show(self) -> bool:
        """Publishes position and counters in the slot; True when the writer waits for an event, since a `read` too."""

    @property
    def out_of_step(self) -> bool:
        """Whether this reader stands where no record begins, or has stopped and may go on now; no record is in hand."""

    def mend(self) -> bool | None:
        """Has a reader that has stopped, or is out of step, go on.

        Returns:
            Whether records were skipped, those up to the tail. None when it cannot go on yet: the writer has to put its
            words right first, which it does when it publishes its next record.
        """

    def skip_to_tail(self) -> None:
        """Goes to the end without reading, as after an overrun."""

def bucket(ns: int) -> int:
    """Index of the latency bucket that holds `ns`."""

def nudge_writer(control: Mapping) -> bool:
    """Wakes a writer that sleeps until there is room, as when a reader leaves; True when it wants an event."""
