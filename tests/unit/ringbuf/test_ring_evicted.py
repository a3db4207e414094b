"""A reader that holds the writer up is evicted: the writer goes on, the reader notices before it uses a torn record."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ringbuf import layout, liveness
from ringbuf.ring_errors import SlotsFull
from tests.rings.channels import (
    WINDOW,
    control_of,
    header_of,
    join,
    joined,
    owned,
    read_all,
    slots_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ringbuf.channel import JoinedChannel, OwnedChannel

BODY = b"x" * 48
STEP = layout.RECORD_HEADER + len(BODY)
FIT = WINDOW // STEP - 1


@pytest.fixture
def channel(domain: str) -> Iterator[OwnedChannel]:
    """The writing side of the smallest ring that evicts, with two slots."""
    with owned(domain, evicts=True, slots_max=2) as made:
        yield made


def fill(channel: OwnedChannel) -> int:
    """Writes until the ring is full; how many records that took."""
    count = 0
    while channel.writer.write(BODY):
        count += 1
    return count


def evict(channel: OwnedChannel, reader: JoinedChannel) -> bool:
    return channel.slots.evict(reader.index, channel.slots.generation(reader.index))


def state(channel: OwnedChannel, reader: JoinedChannel) -> int:
    return int(slots_of(channel)[reader.index]["state"])


def test_nobody_is_evicted_by_a_full_ring_alone(channel: OwnedChannel, domain: str) -> None:
    with joined(domain) as reader:
        assert fill(channel) == FIT
        assert not reader.reader.evicted
        assert read_all(reader) == [BODY] * FIT


def test_evicted_reader_holds_the_writer_up_no_more_and_reads_no_more(channel: OwnedChannel, domain: str) -> None:
    with joined(domain) as reader:
        fill(channel)
        assert reader.reader.read() == BODY
        assert evict(channel, reader)
        assert channel.slots.active_mask() == 0
        assert channel.slots.positions() == {}
        assert channel.writer.has_room(len(BODY))
        # It reads nothing, not even what nobody has overwritten yet: from now on the writer may do so.
        for _ in range(2):
            assert reader.reader.read() is None
            assert reader.reader.evicted
            assert not reader.reader.broken
            assert not reader.reader.ready()
        for _ in range(10 * FIT):
            assert channel.writer.write(BODY)


@pytest.mark.parametrize("further", [0, 1, 7, 24, 4 * FIT + 3])
def test_overwritten_bytes_are_never_taken_for_a_record_or_for_damage(
    channel: OwnedChannel, domain: str, further: int
) -> None:
    """The reader may find anything where its next record was: bytes of the writer's, or no or an impossible frame."""
    with joined(domain) as reader:
        fill(channel)
        assert evict(channel, reader)
        for number in range(further):
            assert channel.writer.write(bytes([0xFF * (number & 1)]) * 40)
        assert reader.reader.ready()
        assert reader.reader.read() is None
        assert (reader.reader.evicted, reader.reader.broken) == (True, False)


def test_eviction_is_seen_without_reading(channel: OwnedChannel, domain: str) -> None:
    """As by a context whose receivers are full, or that sleeps at the end of the ring."""
    with joined(domain) as reader:
        assert not reader.reader.ready()
        assert evict(channel, reader)
        assert reader.reader.ready()
        assert reader.reader.evicted
        assert reader.reader.read() is None


def test_other_readers_keep_their_place(channel: OwnedChannel, domain: str) -> None:
    with joined(domain, 1) as slow, joined(domain, 2) as good:
        fill(channel)
        assert evict(channel, slow)
        assert not channel.writer.has_room(len(BODY))
        assert read_all(good) == [BODY] * FIT
        assert fill(channel) == FIT
        assert read_all(good) == [BODY] * FIT


def test_position_that_an_evicted_reader_shows_changes_nothing(channel: OwnedChannel, domain: str) -> None:
    with joined(domain) as reader:
        for _ in range(10):
            channel.writer.write(BODY)
        for _ in range(5):
            reader.reader.read()
        assert evict(channel, reader)
        for _ in range(3 * FIT):
            assert channel.writer.write(BODY)
            reader.reader.show()
        assert state(channel, reader) == layout.SLOT_EVICTED
        assert int(header_of(channel)["position_errors"]) == 0


def test_evicted_slot_stays_its_readers_until_it_leaves(channel: OwnedChannel, domain: str) -> None:
    with joined(domain, 1) as keeper:
        reader = join(domain, 2)
        reader.reader.arm(True)
        assert evict(channel, reader)
        assert channel.slots.reclaim() == []
        assert keeper.slots.reclaim() == []
        assert liveness.held_by_other(channel.fd, reader.index + 1)
        with pytest.raises(SlotsFull):
            join(domain, 3)
        reader.leave()
        assert state(channel, reader) == layout.SLOT_FREE
        assert int(control_of(channel)["parked"]) == 0
        with joined(domain, 2) as again:
            assert again.index == reader.index
            channel.writer.write(b"after")
            assert read_all(again) == [b"after"]


def test_who_was_evicted_left_or_has_not_joined_is_not_evicted_again(channel: OwnedChannel, domain: str) -> None:
    seen: list[bool] = []

    def try_to_evict(step: str) -> None:
        if step in ("claim: introduced", "join: position shown"):
            seen.append(channel.slots.evict(0, channel.slots.generation(0)))

    reader = join(domain, checkpoint=try_to_evict)
    assert seen == [False, False]
    assert evict(channel, reader)
    assert not evict(channel, reader)
    reader.leave()
    assert not evict(channel, reader)
    assert state(channel, reader) == layout.SLOT_FREE


def test_newcomer_in_the_slot_is_not_evicted_for_who_had_it_before(channel: OwnedChannel, domain: str) -> None:
    reader = join(domain, 1)
    generation = channel.slots.generation(reader.index)
    reader.leave()
    with joined(domain, 2) as newcomer:
        assert newcomer.index == reader.index
        assert not channel.slots.evict(newcomer.index, generation)
        assert state(channel, newcomer) == layout.SLOT_ACTIVE


def test_reader_that_is_evicted_in_the_middle_of_joining_finds_out_with_its_first_record(
    channel: OwnedChannel, domain: str
) -> None:
    """Stopped there, it holds the writer up like any other."""

    def overtake(step: str) -> None:
        if step == "join: active":
            fill(channel)
            assert channel.slots.evict(0, channel.slots.generation(0))
            for _ in range(3 * FIT):
                assert channel.writer.write(BODY)

    reader = join(domain, checkpoint=overtake)
    assert reader.reader.read() is None
    assert reader.reader.evicted
    for _ in range(3 * FIT):
        assert channel.writer.write(BODY)
    reader.leave()


def test_eviction_wakes_a_writer_that_waits(channel: OwnedChannel, domain: str) -> None:
    with joined(domain) as reader:
        fill(channel)
        assert channel.writer.want_event(len(BODY))
        assert evict(channel, reader)
        assert int(control_of(channel)["writer_waits"]) == layout.WRITER_RUNS


def test_parked_bit_of_an_evicted_reader_is_left_for_the_writer_to_wake_it(channel: OwnedChannel, domain: str) -> None:
    with joined(domain) as reader:
        reader.reader.arm(True)
        assert evict(channel, reader)
        assert int(control_of(channel)["parked"]) == 1 << reader.index
        reader.reader.arm(False)
        assert int(control_of(channel)["parked"]) == 0


def test_position_needed_is_where_every_reader_has_to_be(channel: OwnedChannel, domain: str) -> None:
    assert channel.writer.position_needed(len(BODY)) == 0
    with joined(domain) as reader:
        fill(channel)
        needed = channel.writer.position_needed(len(BODY))
        assert needed > 0
        while reader.reader.position < needed:
            assert not channel.writer.has_room(len(BODY))
            assert reader.reader.read() == BODY
            reader.reader.show()
        assert channel.writer.has_room(len(BODY))


def test_rings_that_do_not_evict_do_not_look(domain: str) -> None:
    """Their readers read in place, so nobody may evict them; what stands in the slot does not matter to them."""
    with owned(domain) as plain, joined(domain) as reader:
        plain.writer.write(BODY)
        slots_of(plain)["state"][0] = layout.SLOT_EVICTED
        assert not reader.reader.evicted
        assert reader.reader.read() == BODY
        slots_of(plain)["state"][0] = layout.SLOT_ACTIVE
