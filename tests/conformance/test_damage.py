"""Single bits of a ring that flip: what they hit is lost with its number, and everything else arrives."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from ipcbus import MessageType
from ringbuf import layout, segment
from ringbuf.ring_errors import SegmentMismatch
from ringbuf.shared_words import SharedWords
from tests.kit.bus import LBTIPC, LBTIPC_SOURCE_PACED, on_rings
from tests.kit.damage import FRAME, LENGTH, SEQUENCE, TOPIC, Memory
from tests.kit.payload import body

if TYPE_CHECKING:
    from collections.abc import Callable

    from ipcbus import Message, Receiver, Source
    from tests.kit.bus import Bus

# The ring is not read before it is damaged.
pytestmark = pytest.mark.parametrize("mode", ["sequential"])

SENT = 40
PARKED = int(layout.CONTROL_HEADER.fields["parked"][1])  # type: ignore[index]


class Case:
    """A source that has sent some messages which its receiver has not read."""

    def __init__(self, bus: Bus, **options: object) -> None:
        self.bus = bus
        self.got: list[tuple[int, bytes]] = []
        self.lost: list[int] = []
        self.others: list[MessageType] = []
        self.source: Source = bus.source(**options)
        self.receiver: Receiver = bus.receiver("t", self.note)
        bus.joined(self.source)

    def note(self, message: Message) -> None:
        """A callback."""
        if message.type is MessageType.DATA:
            self.got.append((message.sequence_number, message.data))
        elif message.type in (MessageType.UNRECOVERABLE_LOSS, MessageType.UNRECOVERABLE_LOSS_BURST):
            self.lost += range(message.first_sequence_number, message.sequence_number + 1)
        else:
            self.others.append(message.type)

    def send(self, count: int, *, flush: bool = True) -> None:
        """Sends some more; without `flush` in one datagram."""
        for number in range(self.source.sequence_number + 1, self.source.sequence_number + 1 + count):
            self.source.send(body(number), flush=flush)
        self.source.flush()

    def damage(self, change: Callable[[Memory], None]) -> None:
        """Changes the ring, and has everything read; twice as much follows it."""
        change(Memory(self.source))
        self.account(SENT)
        self.send(SENT)
        self.account(2 * SENT)

    def account(self, sent: int) -> None:
        """Reads until so many messages came or were reported lost."""
        self.bus.until(lambda: len(self.got) + len(self.lost) >= sent, f"{sent} messages or their losses")

    def check(self, lost: list[int]) -> None:
        """Exactly these were lost, and reported once; all others came, unchanged."""
        assert self.lost == lost
        assert self.got == [(number, body(number)) for number in range(2 * SENT) if number not in lost]
        assert self.others == [MessageType.BOS]


@on_rings
@pytest.mark.parametrize("bit", [0, 4, 13, 38, 61, 62, 63])
@pytest.mark.parametrize("first", [0, 7], ids=["alone", "after others"])
def test_a_flipped_bit_in_a_number_costs_that_message(bus: Bus, bit: int, first: int) -> None:
    case = Case(bus)
    case.send(first)
    case.account(first)
    case.send(SENT - first)
    case.damage(lambda memory: memory.flip(9, SEQUENCE, bit))
    case.check([9])
    (session,) = case.receiver.sessions
    assert session.counters["malformed"] + session.counters["duplicates"] == 1


@on_rings
@pytest.mark.parametrize("bit", [0, 6, 23, 27])
def test_a_flipped_bit_in_the_topic_or_the_flag_of_an_info_costs_that_message(bus: Bus, bit: int) -> None:
    case = Case(bus)
    case.send(SENT)
    case.damage(lambda memory: memory.flip(9, TOPIC, bit))
    case.check([9])


@pytest.mark.parametrize("kind", [LBTIPC, LBTIPC_SOURCE_PACED], ids=lambda kind: str(kind.name))
@pytest.mark.parametrize("bit", range(3, 32, 4))
def test_a_flipped_bit_in_a_length_delivers_nothing_of_its_datagram(bus: Bus, bit: int) -> None:
    case = Case(bus)
    case.send(5)
    case.send(10, flush=False)
    case.send(SENT - 15)
    case.damage(lambda memory: memory.flip(8, LENGTH, bit))
    case.check(list(range(5, 15)))


@on_rings
@pytest.mark.parametrize("bit", [0, 3, 5, 7, 9, 20, 31])
def test_a_flipped_bit_in_the_length_of_a_record_loses_what_is_behind_it_with_numbers(bus: Bus, bit: int) -> None:
    case = Case(bus)
    case.send(SENT)
    case.damage(lambda memory: memory.flip(9, FRAME, bit))
    lost = case.lost
    assert lost == list(range(9, 9 + len(lost)))
    assert lost[-1] < SENT
    case.check(lost)


@on_rings
@pytest.mark.parametrize("field", ["magic", "slots_max", "slots_offset", "user_offset", "user_bytes"])
def test_a_damaged_header_of_the_control_block_is_shown_and_costs_nothing(bus: Bus, field: str) -> None:
    case = Case(bus)
    case.send(SENT)
    control = case.source._session.channel.control
    header = layout.control_view(control.view())[0]
    good = int(header[field])
    header[field] ^= 1 << 31
    case.damage(lambda memory: None)
    case.check([])
    (session,) = case.receiver.sessions
    assert session.state == "joined"
    assert "header of its shared memory is damaged" in session.reason
    assert session.counters["lbm_msgs_rcved"] == 2 * SENT
    with pytest.raises(SegmentMismatch, match="sizes do not fit"):
        header["slots_offset"] = 1 << 31
        layout.control_view(control.view())
    header[field], header["slots_offset"] = good, layout.slots_offset(int(header["user_bytes"]))


@on_rings
@pytest.mark.parametrize("bit", [21, 40, 63])
def test_a_sleeping_receiver_in_a_slot_that_does_not_exist_costs_nothing(bus: Bus, bit: int) -> None:
    case = Case(bus, transport_lbtipc_maximum_receivers_per_transport=20)
    case.send(SENT)
    SharedWords(case.source._session.channel.control).or64(PARKED, 1 << bit)
    case.damage(lambda memory: None)
    case.check([])


@on_rings
def test_a_record_that_is_not_there_yet_is_waited_for(bus: Bus) -> None:
    """A flipped bit at the very end of the ring: the next record is written over it."""
    case = Case(bus)
    case.send(SENT)
    case.damage(lambda memory: memory.flip_at(memory.data + memory.tail, 6))
    case.check([])


@on_rings
@pytest.mark.parametrize("word", ["published", "sequence_next"])
@pytest.mark.parametrize("bit", [2, 40])
def test_a_flipped_bit_in_what_the_source_says_of_a_topic_loses_nothing(bus: Bus, word: str, bit: int) -> None:
    case = Case(bus)
    case.send(SENT)
    case.damage(lambda memory: memory.flip_at(memory.line(word), bit))
    case.check([])


@on_rings
@pytest.mark.parametrize("bit", [4, 38])
def test_a_flipped_bit_in_sequence_number_info_loses_nothing(bus: Bus, bit: int) -> None:
    case = Case(bus, transport_topic_sequence_number_info_interval=10)
    case.send(SENT)
    case.account(SENT)
    ahead = Memory(case.source).tail
    bus.until(lambda: Memory(case.source).tail > ahead, "sequence number info")
    case.send(1)
    case.account(SENT + 1)
    assert case.lost == []
    case.source.close()


@on_rings
@pytest.mark.parametrize("left", [0, layout.PAGE], ids=["nothing is left", "a page of records is left"])
def test_what_a_truncated_ring_lacks_is_lost_with_its_numbers_and_never_delivered_as_zeros(bus: Bus, left: int) -> None:
    case = Case(bus)
    for number in range(SENT):
        case.source.send(body(number, 500), flush=True)
    data = Memory(case.source).data
    os.truncate(segment.ROOT / case.source._session.channel.ring_name, data + left if left else 0)
    case.account(SENT)
    bus.until(lambda: MessageType.EOS in case.others, "the end")
    whole = left // 512  # one more begins in what is left
    assert [number for number, _ in case.got] == list(range(len(case.got)))
    assert len(case.got) <= whole
    assert all(data == body(number, 500) for number, data in case.got)
    assert case.lost == list(range(len(case.got), SENT))


@on_rings
@pytest.mark.parametrize("at", [0, 3, 5, 16, 40, 79, 80, 84], ids=lambda at: f"byte {at}")
def test_with_checksums_a_flipped_bit_anywhere_costs_its_datagram(bus: Bus, at: int) -> None:
    case = Case(bus, **{f"transport_{bus.kind.transport}_record_checksum": True})
    case.send(SENT)
    case.damage(lambda memory: memory.flip_at(memory.message(9) + at // 4 * 4, at % 4 * 8 + 1))
    case.check([9])
    (session,) = case.receiver.sessions
    assert session.counters["malformed"] == 1


@on_rings
def test_with_checksums_all_arrives_also_when_the_ring_wraps(bus: Bus) -> None:
    options = bus.kind.small() | {f"transport_{bus.kind.transport}_record_checksum": True}
    case = Case(bus, **options)
    some = SENT // 2  # the smallest ring holds so many
    for turn in range(3 * bus.kind.window // (some * 64)):
        case.send(some, flush=bool(turn % 2))
        case.account(some * (turn + 1))
    assert case.lost == []
    assert [number for number, _ in case.got] == list(range(len(case.got)))
