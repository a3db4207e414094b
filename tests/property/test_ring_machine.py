"""Any order of writing, reading, joining and leaving, against an oracle of plain lists."""

from __future__ import annotations

import secrets
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, precondition, rule

from ringbuf import layout, segment
from ringbuf.layout import RECORD_ALIGN, RECORD_HEADER, round_up
from tests.rings.channels import PACINGS, WINDOW, header_of, join, owned, slots_of

if TYPE_CHECKING:
    from ringbuf.channel import JoinedChannel, OwnedChannel

LONGEST = WINDOW // 2 - RECORD_HEADER
SIZES = st.integers(0, 64) | st.integers(0, LONGEST) | st.sampled_from([LONGEST, LONGEST - 1, LONGEST - 8])


def taken(size: int) -> int:
    """Bytes of the ring that a record with a body of `size` takes."""
    return round_up(RECORD_HEADER + size, RECORD_ALIGN)


@dataclass
class Record:
    """A published record and where it stands."""

    position: int
    body: bytes


@dataclass
class Reading:
    """A reader and what the oracle knows of it."""

    channel: JoinedChannel
    position: int
    shown: int
    overruns: int = 0
    count: int = 0
    evicted: bool = False


class RingMachine(RuleBasedStateMachine):
    """One writer, some readers; the subclass says how the ring is paced."""

    pacing = "receiver-paced"
    readers = Bundle[Reading]("readers")

    @initialize()
    def make(self) -> None:
        self.opened = ExitStack()
        # Not the fixture's: hypothesis runs many rings in one test.
        self.domain = "h" + secrets.token_hex(4)[:7]
        self.ring: OwnedChannel = self.opened.enter_context(owned(self.domain, **PACINGS[self.pacing]))
        self.log: list[Record] = []
        self.head = 0
        self.number = 0
        self.living: list[Reading] = []

    def teardown(self) -> None:
        for reading in getattr(self, "living", []):
            reading.channel.leave()
        if hasattr(self, "opened"):
            self.opened.close()
            assert segment.names(f"ipcbus.{self.domain}.") == []

    # ------------------------------------------------------------------ the oracle

    @property
    def source_paced(self) -> bool:
        return self.pacing == "source-paced"

    def counting(self) -> list[Reading]:
        """The readers that the writer waits for."""
        return [reading for reading in self.living if not reading.evicted]

    def next_body(self, size: int) -> bytes:
        self.number += 1
        return (self.number.to_bytes(4, "little") * (size // 4 + 1))[:size]

    def fits(self, size: int) -> bool:
        """Whether the ring has to take a record of this size."""
        least = min([reading.shown for reading in self.counting()], default=self.head)
        return self.source_paced or self.head + taken(size) + RECORD_ALIGN <= least + WINDOW

    def published(self, body: bytes) -> None:
        self.log.append(Record(self.head, body))
        self.head += taken(len(body))

    def expected(self, reading: Reading) -> Record | None:
        """What the reader has to get next; moves a lapped one to the end."""
        if reading.evicted:
            return None
        if self.source_paced and int(header_of(self.ring)["intent"]) > reading.position + WINDOW:
            reading.overruns += 1
            reading.position = self.head
        return next((record for record in self.log if record.position == reading.position), None)

    # ------------------------------------------------------------------ the rules

    @rule(size=SIZES)
    def write(self, size: int) -> None:
        body = self.next_body(size)
        done = self.ring.writer.write(body)
        assert done == self.fits(size)
        if done:
            self.published(body)

    @rule(size=SIZES, repeat=st.integers(1, 200))
    def write_many(self, size: int, repeat: int) -> None:
        for _ in range(repeat):
            self.write(size)

    @rule(size=SIZES, keep=st.booleans(), meanwhile=st.booleans())
    def claim(self, size: int, keep: bool, meanwhile: bool) -> None:
        body = self.next_body(size)
        place = self.ring.writer.claim(size)
        assert (place is not None) == self.fits(size)
        if place is None:
            return
        place[:] = body
        if meanwhile:
            for reading in self.living:
                self.read(reading, 3)
        if keep:
            self.ring.writer.commit()
            self.published(body)
        else:
            self.ring.writer.cancel()

    @precondition(lambda self: len(self.living) < 4)
    @rule(target=readers)
    def join(self) -> Reading:
        reading = Reading(join(self.domain), self.head, self.head)
        assert reading.channel.joined_at == self.head
        self.living.append(reading)
        return reading

    @rule(reading=consumes(readers))
    def leave(self, reading: Reading) -> None:
        reading.channel.leave()
        self.living.remove(reading)

    @precondition(lambda self: self.pacing == "evicting")
    @rule(reading=readers)
    def evict(self, reading: Reading) -> None:
        index = reading.channel.index
        assert self.ring.slots.evict(index, self.ring.slots.generation(index)) is not reading.evicted
        reading.evicted = True

    @rule(reading=readers, count=st.integers(1, 100))
    def read(self, reading: Reading, count: int) -> None:
        reader = reading.channel.reader
        for _ in range(count):
            wanted = self.expected(reading)
            assert reader.read() == (None if wanted is None else wanted.body)
            assert reader.overruns == reading.overruns
            if wanted is None:
                break
            reading.count += 1
            reading.position += taken(len(wanted.body))
            if reading.position - reading.shown >= WINDOW // 32:
                reading.shown = reading.position

    @rule(reading=readers)
    def show(self, reading: Reading) -> None:
        reading.channel.reader.show()
        reading.shown = reading.position
        slot = slots_of(self.ring)[reading.channel.index]
        assert (slot["msgs_rcved"], slot["overruns"]) == (reading.count, reading.overruns)

    @invariant()
    def both_agree_where_they_are(self) -> None:
        if not hasattr(self, "living"):
            return
        assert self.ring.writer.head == self.head == int(header_of(self.ring)["tail"])
        assert int(header_of(self.ring)["msgs_sent"]) == len(self.log)
        assert int(header_of(self.ring)["position_errors"]) == 0
        positions = {reading.channel.index: reading.shown for reading in self.counting()}
        assert self.ring.slots.positions() == positions
        for reading in self.living:
            assert reading.channel.reader.position == reading.position
            assert not reading.channel.reader.broken
            assert self.source_paced or reading.evicted or self.head - reading.position <= WINDOW
            state = layout.SLOT_EVICTED if reading.evicted else layout.SLOT_ACTIVE
            assert slots_of(self.ring)[reading.channel.index]["state"] == state
            assert reading.channel.reader.evicted == reading.evicted


class SourcePacedMachine(RingMachine):
    """The writer never waits."""

    pacing = "source-paced"


class EvictingMachine(RingMachine):
    """The writer waits for a reader until it evicts it."""

    pacing = "evicting"


TestReceiverPacedRing = RingMachine.TestCase
TestReceiverPacedRing.settings = settings(max_examples=60, stateful_step_count=40)
TestSourcePacedRing = SourcePacedMachine.TestCase
TestSourcePacedRing.settings = settings(max_examples=60, stateful_step_count=40)
TestEvictingRing = EvictingMachine.TestCase
TestEvictingRing.settings = settings(max_examples=60, stateful_step_count=40)
