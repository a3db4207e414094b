from __future__ import annotations

import os
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from ringbuf import layout, liveness, segment
from ringbuf.ring import RingReader
from ringbuf.ring_errors import SlotsFull
from ringbuf.shared_words import SharedWords
from ringbuf.slots import Identity, SlotTable
from tests.rings.channels import PARKED, control_name, control_of, join, joined, owned, slots_of, who
from tests.rings.children import Children, Flag

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ringbuf.channel import OwnedChannel

SLOTS = 3


@pytest.fixture
def channel(domain: str) -> Iterator[OwnedChannel]:
    """A ring with few slots."""
    with owned(domain, slots_max=SLOTS) as made:
        yield made


@pytest.fixture
def opened() -> Iterator[ExitStack]:
    """What the test opened; closed at the end."""
    with ExitStack() as stack:
        yield stack


def table(domain: str, opened: ExitStack) -> SlotTable:
    """The slots through an open file of its own, as in another process."""
    fd = segment.open_fd(control_name(domain), write=True)
    opened.callback(os.close, fd)
    return SlotTable(segment.map_fd(fd, write=True), fd)


def state(channel: OwnedChannel, index: int) -> int:
    return int(slots_of(channel)[index]["state"])


def die_joined(domain: str, joined_flag: Flag, never: Flag) -> None:
    """Runs in a child: joins and waits for its end."""
    join(domain, 99)
    joined_flag.raise_it()
    never.wait()


def leave_dead(domain: str, count: int = 1) -> None:
    """Leaves so many slots to dead readers."""
    with Children() as children, Flag() as has_joined, Flag() as never:
        readers = [children.run(die_joined, domain, has_joined, never) for _ in range(count)]
        for _ in readers:
            children.until(has_joined)
        for reader in readers:
            reader.kill()


def test_slots_are_given_one_by_one_and_each_once(channel: OwnedChannel, domain: str, opened: ExitStack) -> None:
    one = table(domain, opened)
    assert [one.claim(who(), 1) for _ in range(SLOTS)] == [0, 1, 2]
    with pytest.raises(SlotsFull):
        one.claim(who(), 1)
    with pytest.raises(SlotsFull):
        table(domain, opened).claim(who(), 1)
    assert [state(channel, index) for index in range(SLOTS)] == [layout.SLOT_JOINING] * SLOTS


def test_claimed_slot_does_not_count_before_it_has_joined(
    channel: OwnedChannel, domain: str, opened: ExitStack
) -> None:
    one = table(domain, opened)
    index = one.claim(Identity(11, 22, 33, "a name of more than thirty-one characters"), 44)
    slot = slots_of(channel)[index]
    assert (slot["pid"], slot["uid"], slot["context_id"], slot["joined_ns"]) == (11, 22, 33, 44)
    assert one.identity(index).context_name == "a name of more than thirty-one characters"[:31]
    assert channel.slots.active_mask() == 0
    assert channel.writer.write(b"unread")
    reader = RingReader(channel.ring, channel.control, index)
    assert one.join(index, reader) == channel.writer.head
    assert channel.slots.active_mask() == 1 << index
    assert channel.slots.positions() == {index: channel.writer.head}


def test_left_slot_is_free_and_unlocked(channel: OwnedChannel, domain: str, opened: ExitStack) -> None:
    one = table(domain, opened)
    index = one.claim(who(), 1)
    one.leave(index)
    assert state(channel, index) == layout.SLOT_FREE
    assert not liveness.held_by_other(channel.fd, index + 1)
    assert one.claim(who(), 2) == index


def test_lock_is_held_from_the_first_step_to_the_last(channel: OwnedChannel, domain: str, opened: ExitStack) -> None:
    """So whoever finds the lock free finds a slot that nobody works on."""
    seen: dict[str, bool] = {}

    def note(step: str) -> None:
        seen[step] = liveness.held_by_other(channel.fd, 1)

    join(domain, checkpoint=note).leave()
    leave_dead(domain)
    other = segment.open_fd(control_name(domain), write=True)
    opened.callback(os.close, other)
    SlotTable(segment.map_fd(other, write=True), other, note).reclaim()
    assert seen.pop("leave: lock released") is False
    assert all(seen.values()), seen
    assert {step.split(":")[0] for step in seen} == {"claim", "join", "leave", "reclaim", "reset"}


def test_the_locks_of_a_table_are_those_of_other_readers(channel: OwnedChannel, domain: str, opened: ExitStack) -> None:
    assert channel.slots.locks() == []
    here, there = table(domain, opened), table(domain, opened)
    here.claim(who(1), 0)
    there.claim(who(2), 0)
    assert channel.slots.locks() == [(channel.fd, 1), (channel.fd, 2)]
    assert [byte for _, byte in here.locks()] == [2]


def test_live_slots_are_never_reclaimed(channel: OwnedChannel, domain: str, opened: ExitStack) -> None:
    own, other = table(domain, opened), table(domain, opened)
    joining = own.claim(who(), 1)
    with joined(domain) as reader:
        for each in (own, other, channel.slots):
            assert each.reclaim() == []
        assert state(channel, joining) == layout.SLOT_JOINING
        assert state(channel, reader.index) == layout.SLOT_ACTIVE


def test_slots_of_dead_readers_are_reclaimed_once(channel: OwnedChannel, domain: str) -> None:
    with joined(domain) as reader:
        leave_dead(domain)
        assert state(channel, 1) == layout.SLOT_ACTIVE
        assert channel.slots.reclaim() == [1]
        assert channel.slots.reclaim() == []
        assert state(channel, 1) == layout.SLOT_FREE
        assert not liveness.held_by_other(channel.fd, 2)
        assert state(channel, reader.index) == layout.SLOT_ACTIVE


def test_claim_takes_what_a_dead_reader_left(channel: OwnedChannel, domain: str) -> None:
    with joined(domain, 1), joined(domain, 2):
        leave_dead(domain)
        with joined(domain, 3) as reader:
            assert reader.index == 2
            assert slots_of(channel)[2]["context_id"] == 3


@pytest.mark.parametrize("take_back", ["reclaim", "claim", "leave"])
def test_bits_of_a_slot_go_with_it_and_others_stay(channel: OwnedChannel, domain: str, take_back: str) -> None:
    words = SharedWords(channel.control)
    joined_words = [layout.CONTROL_HEADER.itemsize + 8 * word for word in range(8)]
    with joined(domain) as keeper:
        assert keeper.index == 0
        if take_back == "leave":
            leaver = join(domain)
        else:
            leave_dead(domain)
        for offset in [PARKED, *joined_words]:
            words.or64(offset, 0b111)
        if take_back == "reclaim":
            assert channel.slots.reclaim() == [1]
        elif take_back == "claim":
            join(domain).leave()
        else:
            leaver.leave()
        assert [words.load64(offset) for offset in [PARKED, *joined_words]] == [0b101] * 9


def test_dead_reader_holds_the_writer_up_only_until_it_is_reclaimed(channel: OwnedChannel, domain: str) -> None:
    leave_dead(domain, 2)
    while channel.writer.write(b"x" * 100):
        pass
    assert channel.writer.want_event(100)
    assert channel.slots.reclaim() == [0, 1]
    assert int(control_of(channel)["writer_waits"]) == layout.WRITER_RUNS
    for _ in range(1000):
        assert channel.writer.write(b"x" * 100)


def test_full_slots_of_dead_readers_are_no_obstacle(channel: OwnedChannel, domain: str) -> None:
    leave_dead(domain, SLOTS)
    with joined(domain, 1), joined(domain, 2), joined(domain, 3):
        assert [int(slot["context_id"]) for slot in slots_of(channel)] == [1, 2, 3]


def test_unknown_state_without_a_living_holder_is_reclaimed(channel: OwnedChannel) -> None:
    slots_of(channel)["state"][1] = 0xDEAD
    assert channel.slots.reclaim() == [1]
    assert state(channel, 1) == layout.SLOT_FREE
