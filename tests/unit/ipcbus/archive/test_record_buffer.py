"""Messages into buffers and out again: every number is in exactly one row, in order, whatever the memory."""

from __future__ import annotations

import itertools
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipcbus.archive import archive_layout
from ipcbus.archive.record_buffer import BUFFER_BYTES_MIN, RecordBuffer
from ipcbus.archive.resume_positions import ResumePosition
from ipcbus.delivery.message_types import MessageType
from ipcbus.delivery.received_message import Origin, whole_message
from ipcbus.wire.properties import pack
from ringbuf.clock import ticks, ticks_to_epoch_ns
from tests.kit.staging import BURST, LOSS, OWN, PART, ROW, Desk


def test_rows_hold_what_the_messages_were() -> None:
    desk = Desk()
    other = Origin("u", "s")
    desk.send(7, b"seven")
    desk.send(0, b"", other)
    desk.send(9, b"in pieces", first=8)
    assert desk.hold()
    rows = desk.held[0].rows
    assert desk.held[0].messages == 3
    assert desk.held[0].bytes == len(b"sevenin pieces")
    assert rows.dtype == archive_layout.ROW
    assert rows["flags"].tolist() == [0x12] * 3
    assert rows["send_ns"].tolist() == [0] * 3
    assert rows["receive_ns"][0] > 1_700_000_000 * 10**9
    desk.write()
    assert desk.got == [(0, 0, 0, 7, 7, b"seven"), (1, 0, 0, 0, 0, b""), (0, 0, 0, 8, 9, b"in pieces")]
    assert (list(desk.stage.topics), list(desk.stage.sources)) == (["t", "u"], ["s"])


@pytest.mark.parametrize("count", [1, 2])
def test_rows_are_a_copy(count: int) -> None:
    desk = Desk()
    for number in range(count):
        desk.send(number)
    assert desk.hold()
    desk.held[0].rows["topic"] = 9
    assert desk.held[0].rows["topic"].tolist() == [0] * count


def test_events_are_rows_without_bytes() -> None:
    desk = Desk()
    desk.event(MessageType.BOS)
    desk.event(LOSS, 0, 0)
    desk.event(BURST, 1, 2000)
    desk.event(MessageType.NO_SOURCE_NOTIFICATION)
    desk.event(MessageType.EOS)
    assert [row[2:5] for row in desk.drain()] == [(20, 0, -1), (4, 0, 0), (5, 1, 2000), (1, 0, -1)]
    assert (desk.stage.losses, desk.stage.lost, desk.stage.dropped) == (2, 2001, 0)


def test_a_full_buffer_wakes_who_writes() -> None:
    desk = Desk()
    desk.send(0, bytes(PART - ROW - 1))
    assert desk.woken == 1  # for the first
    assert desk.stage.take(partly=False) is None
    desk.send(1)
    assert desk.woken == 2
    assert desk.stage.filled == PART - 1 + ROW
    full = desk.stage.take(partly=False)
    assert full is not None
    assert full.first_ns <= desk.stage.first_ns
    desk.stage.give_back(full)
    assert desk.stage.filled == ROW


def test_what_finds_no_memory_is_told_before_what_comes_later() -> None:
    desk = Desk()
    value = bytes(PART - ROW)
    for number in range(5):
        desk.send(number, value)
    assert desk.stage.dropped == 3
    assert desk.starves()
    desk.event(LOSS, 5, 5)
    desk.event(LOSS, 6, 6)
    desk.send(7, value)
    desk.hold()
    desk.write()
    desk.send(8, b"again")
    assert not desk.starves()
    assert [row[2:] for row in desk.drain()] == [
        (0, 0, 0, value),
        (0, 1, 1, value),
        (OWN, 2, 4, b""),
        (LOSS, 5, 6, b""),
        (OWN, 7, 7, b""),
        (0, 8, 8, b"again"),
    ]
    assert (desk.stage.dropped, desk.stage.lost) == (4, 2)


def test_losses_are_told_without_another_message() -> None:
    desk = Desk()
    for number in range(4):
        desk.send(number, bytes(PART - ROW))
    assert [row[2:5] for row in desk.drain()] == [(0, 0, 0), (0, 1, 1), (OWN, 2, 3)]


@pytest.mark.parametrize("length", [PART - ROW + 1, BUFFER_BYTES_MIN, 5_000_000])
def test_a_message_longer_than_the_memory_is_taken_whole(length: int) -> None:
    desk = Desk()
    value = bytes(range(256)) * (length // 256) + bytes(length % 256)
    desk.send(0, b"before")
    desk.send(1, value)
    desk.send(2, b"after")
    assert [row.value for row in desk.drain()] == [b"before", value, b"after"]


def test_only_one_message_lies_beside_the_memory() -> None:
    desk = Desk()
    for number in range(3):
        desk.send(number, bytes(BUFFER_BYTES_MIN))
    assert [row[2:5] for row in desk.drain()] == [(0, 0, 0), (OWN, 1, 1), (OWN, 2, 2)]
    desk.send(3, bytes(BUFFER_BYTES_MIN))
    assert desk.drain()[-1][2:5] == (0, 3, 3)


def test_a_message_that_no_segment_holds_is_a_loss() -> None:
    desk = Desk(BUFFER_BYTES_MIN * 2, message_max=PART)
    desk.send(0, bytes(PART))
    desk.send(1, bytes(PART + 1))
    desk.send(2, b"")
    assert [row[2:5] for row in desk.drain()] == [(0, 0, 0), (OWN, 1, 1), (0, 2, 2)]
    assert (desk.stage.too_large, desk.stage.dropped) == (1, 1)


def at(following: int, until_ns: int = 0, *topic_numbers: int) -> ResumePosition:
    """Where an earlier recorder stopped."""
    return ResumePosition(following, until_ns, frozenset(topic_numbers))


@pytest.mark.parametrize("first", [MessageType.DATA, LOSS])
def test_what_was_sent_while_no_recorder_was_there_is_told(first: MessageType) -> None:
    known = {("t", "s"): at(5), ("u", "s"): at(3), ("v", "s"): at(9)}
    desk = Desk(resume_positions=known)
    desk.event(MessageType.BOS)
    if first is LOSS:
        desk.event(LOSS, 8, 8)
    else:
        desk.send(8, b"eight")
    desk.send(9)
    desk.send(3, b"", Origin("u", "s"))  # nothing is missing
    desk.send(12, b"", Origin("v", "other"))  # another session
    assert [(row.topic, row.type, row.first, row.last) for row in desk.drain()] == [
        (0, 20, 0, -1),
        (0, OWN, 5, 7),
        (0, first, 8, 8),
        (0, 0, 9, 9),
        (1, 0, 3, 3),
        (2, 0, 12, 12),
    ]
    assert (desk.stage.dropped, desk.stage.missed) == (0, 3)


@pytest.mark.parametrize(("following", "told"), [(9, [(0, OWN, 5, 8)]), (5, []), (3, [])])
def test_what_was_sent_while_no_recorder_was_there_is_told_at_the_end(
    following: int, told: list[tuple[int, int, int, int]]
) -> None:
    desk = Desk(resume_positions={("t", "s"): at(5)})
    desk.event(MessageType.BOS)
    desk.event(MessageType.EOS, following=following)
    assert [(row.topic, row.type, row.first, row.last) for row in desk.drain()] == [
        (0, 20, 0, -1),
        *told,
        (0, 1, 0, -1),
    ]
    assert desk.stage.missed == len(told) * 4


def test_where_nobody_knows_the_end_it_is_told_when_the_session_is_joined_again() -> None:
    desk = Desk(resume_positions={("t", "s"): at(5)})
    desk.event(MessageType.EOS)
    desk.send(8, b"", Origin("t", "s"))
    assert [row[2:5] for row in desk.drain()] == [(1, 0, -1), (OWN, 5, 7), (0, 8, 8)]
    assert desk.stage.missed == 3


def test_what_a_source_sends_again_and_the_log_has_is_left_out() -> None:
    desk = Desk(resume_positions={("t", "s"): at(5)})
    desk.event(MessageType.BOS)
    desk.event(LOSS, 1, 1)
    for number in (2, 3, 4, 5):
        desk.send(number)
    assert [row[2:5] for row in desk.drain()] == [(20, 0, -1), (0, 5, 5)]
    assert (desk.stage.lost, desk.stage.missed, desk.stage.dropped) == (0, 0, 0)


def test_what_is_not_kept_any_more_is_missed() -> None:
    desk = Desk(resume_positions={("t", "s"): at(5)})
    desk.event(BURST, 3, 6)
    desk.send(7)
    assert [row[2:5] for row in desk.drain()] == [(BURST, 5, 6), (0, 7, 7)]
    assert (desk.stage.lost, desk.stage.missed) == (2, 0)


def test_a_message_that_was_reported_lost_in_part_is_lost() -> None:
    desk = Desk(resume_positions={("t", "s"): at(5)})
    desk.send(6, b"in pieces", first=3)
    desk.send(7)
    assert [row[2:5] for row in desk.drain()] == [(OWN, 5, 6), (0, 7, 7)]


@pytest.mark.parametrize(("until_ns", "kept"), [(-1_000_000, [0, 1, 5]), (1_000_000, [5])])
def test_lower_numbers_that_were_sent_later_are_of_a_topic_that_began_again(until_ns: int, kept: list[int]) -> None:
    sent = ticks()
    desk = Desk(resume_positions={("t", "s"): at(5, ticks_to_epoch_ns(sent) + until_ns)})
    origin = Origin("t", "s")
    for number in (0, 1, 5):
        desk.stage.record(whole_message(origin, b"", number, number, 0, sent, None))
    assert [row.first for row in desk.drain()] == kept


def test_a_topic_that_began_again_has_a_number_of_its_own_and_is_recorded_from_its_first_message() -> None:
    desk = Desk(resume_positions={("t", "s"): at(5, 1 << 62, 7)})
    again = Origin("t", "s", 8)
    desk.event(MessageType.BOS, origin=again)
    for number in (2, 3):
        desk.send(number, b"", again)
    assert [row[2:5] for row in desk.drain()] == [(20, -9, -10), (OWN, 0, 1), (0, 2, 2), (0, 3, 3)]
    assert desk.stage.missed == 2


def test_rows_of_a_topic_before_it_began_again_are_told_from_later_ones() -> None:
    """The topic's events may come before the last messages of the one before."""
    desk = Desk()
    before, again = Origin("t", "s", 7), Origin("t", "s", 8)
    desk.event(MessageType.BOS, origin=before)
    desk.send(0, b"", before)
    desk.event(MessageType.BOS, origin=again)
    desk.send(1, b"", before)
    desk.send(5, b"", Origin("u", "s", 9))
    desk.send(2, b"", before)
    desk.send(0, b"", again)
    desk.event(MessageType.EOS, origin=before)
    desk.send(1, b"", again)
    desk.event(LOSS, 3, 3, before)
    assert [(row.topic, row.type, row.last) for row in desk.drain()] == [
        (0, 20, -9),
        (0, 0, 0),
        (0, 20, -10),
        (0, 20, -9),
        (0, 0, 1),
        (1, 0, 5),
        (0, 0, 2),
        (0, 20, -10),
        (0, 0, 0),
        (0, 1, -1),
        (0, 0, 1),
        (0, 20, -9),
        (0, LOSS, 3),
    ]


def test_a_topic_with_the_same_number_goes_on_whatever_its_times_are() -> None:
    desk = Desk(resume_positions={("t", "s"): at(5, 0, 7)})
    origin = Origin("t", "s", 7)
    for number in (3, 4, 5):
        desk.stage.record(whole_message(origin, b"", number, number, 0, ticks(), None))
    assert [row.first for row in desk.drain()] == [5]


def test_a_topic_that_began_again_and_ends_without_a_word_goes_on_when_it_is_joined_again() -> None:
    desk = Desk(resume_positions={("t", "s"): at(5, 0, 7)})
    for _ in range(2):
        desk.event(MessageType.EOS, origin=Origin("t", "s", 8))
    desk.send(2, b"", Origin("t", "s", 8))
    assert [row[2:5] for row in desk.drain()] == [(1, 0, -1), (1, 0, -1), (OWN, 0, 1), (0, 2, 2)]


def test_a_stretch_longer_than_a_row_can_say_is_cut_short() -> None:
    desk = Desk()
    desk.event(BURST, 0, 2**61)
    rows = desk.drain()
    assert [(row.last, row.last - row.first + 1) for row in rows] == [(2**61, 2**32 - 1)]
    assert desk.stage.lost == 2**61 + 1


def test_very_many_stretches_are_told_coarsely_and_none_is_forgotten() -> None:
    desk = Desk()
    number = 0
    while desk.stage.dropped == 0:
        desk.send(number, bytes(1000))
        number += 1
    first = number - 1
    for _ in range(70_000):  # each apart from the one before
        desk.event(LOSS, number, number)
        desk.send(number + 1, bytes(1000))
        number += 2
    rows = [row for row in desk.drain() if row.type]
    assert 1 << 16 <= len(rows) < (1 << 16) + 30  # some had room in the last buffer
    assert rows[0].first == first
    assert rows[-1].last == number - 1
    assert all(after.first == before.last + 1 for before, after in itertools.pairwise(rows))


def test_too_little_memory_is_refused() -> None:
    with pytest.raises(ValueError, match="131071 bytes of memory are not enough"):
        Desk(BUFFER_BYTES_MIN - 1)


def test_whoever_writes_is_given_way_once_a_buffer_when_half_the_memory_is_in_use() -> None:
    class Room(threading.Event):
        waits = 0

        def wait(self, timeout: float | None = None) -> bool:
            self.waits += 1
            return True

    desk = Desk()
    room = Room()
    desk.stage = RecordBuffer(16 * PART, int, room)
    waits = []
    for number in range(20):
        desk.send(number, bytes(PART - ROW))
        waits.append(room.waits)
    assert waits == [0] * 9 + list(range(1, 9)) + [8] * 3
    assert desk.stage.dropped == 4


# ---------------------------------------------------------------------------------------- in any order

steps = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.integers(0, 3), st.sampled_from([0, 1, 100, 30_000, PART, 200_000])),
        st.tuples(st.just("send"), st.integers(0, 3), st.integers(20_000, 60_000)),
        st.tuples(st.just("lose"), st.integers(0, 3), st.integers(1, 5)),
        st.tuples(st.just("end"), st.integers(0, 3), st.just(0)),
        st.tuples(st.sampled_from(["hold", "write", "settle"]), st.just(0), st.just(0)),
    ),
    max_size=80,
)


@given(steps)
def test_every_number_is_in_one_row(steps: list[tuple[str, int, int]]) -> None:
    """Whoever is dropped, lost or kept: the rows of each topic of a session follow one another without a gap."""
    desk = Desk()
    origins = [Origin(f"t{each % 2}", f"s{each // 2}") for each in range(4)]
    next_numbers = [0] * 4
    sent: dict[tuple[int, int], bytes] = {}
    for what, which, size in steps:
        origin, number = origins[which], next_numbers[which]
        if what == "send":
            sent[which, number] = bytes([number & 0xFF]) * size
            desk.send(number, sent[which, number], origin)
            next_numbers[which] += 1
        elif what == "lose":
            desk.event(LOSS if size == 1 else BURST, number, number + size - 1, origin)
            next_numbers[which] += size
        elif what == "end":
            desk.event(MessageType.EOS, origin=origin)
        elif what == "hold":
            desk.hold()
        elif what == "write" and desk.held:
            desk.write()
        else:
            desk.stage.flush_notes()
    rows = desk.drain()
    topics, sources = list(desk.stage.topics), list(desk.stage.sources)
    lost = dropped = 0
    for which, origin in enumerate(origins):
        number = 0
        for row in rows:
            if (topics[row.topic], sources[row.session]) != (origin.topic, origin.source) or row.last < 0:
                continue
            assert row.first == number
            number = row.last + 1
            if row.type == 0:
                assert row.value == sent[which, row.first]
            dropped += row.last - row.first + 1 if row.type == OWN else 0
            lost += row.last - row.first + 1 if row.type in (LOSS, BURST) else 0
        assert number == next_numbers[which]
    assert (lost, dropped, 0) == (desk.stage.lost, desk.stage.dropped, desk.stage.missed)


def test_a_request_is_recorded_as_a_message_that_is_marked() -> None:
    desk = Desk()
    desk.stage.record(whole_message(desk.origin, b"ask", 4, 4, 0x2, 0, None, pack({"k": b"v"}), 0, 9))
    desk.send(5, b"plain")
    buffer = desk.stage.take()
    assert buffer is not None
    found = [(int(row["type"]), int(row["flags"]), int(row["length"]), int(row["sequence"])) for row in buffer.rows]
    assert found == [(MessageType.DATA, 0x42, 3, 4), (MessageType.DATA, 0x12, 5, 5)]
    assert bytes(buffer.data).endswith(b"askplain")
