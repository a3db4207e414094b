from __future__ import annotations

import struct

import pytest

from ipcbus.recovery.control_channel import FRAME_HEADER, FRAMES_MAX, MESSAGE_MAX, ControlChannel
from tests.kit.cases import each_of
from tests.kit.frame_links import MemoryLink, memory_links

URGENT, BULK = 0, 1


def channels(
    frame_max: int = 64, room: int = 1024, *, queue_max: int = 1 << 20, message_max: int = 1 << 20
) -> tuple[ControlChannel, ControlChannel]:
    one, other = memory_links(frame_max, room)
    return tuple(ControlChannel(link, queue_max=queue_max, message_max=message_max) for link in (one, other))  # type: ignore[return-value]


def receiving(message_max: int = 1 << 20) -> tuple[MemoryLink, ControlChannel]:
    """A channel and the link over which the test sends frames to it."""
    one, other = memory_links(frame_max=1 << 16, room=1 << 30)
    return one, ControlChannel(other, queue_max=100, message_max=message_max)


def frame(lane: int, first: int, remaining: int, piece: bytes = b"", reserved: int = 0) -> bytes:
    return struct.pack("<BBHI", lane, first, reserved, remaining) + piece


def exchange(sender: ControlChannel, receiver: ControlChannel) -> list[bytes]:
    """Everything that waits at the sender, as it comes."""
    found = []
    more = True
    while more:
        more = sender.flush()
        while (message := receiver.receive()) is not None:
            found.append(message)
    return found


@each_of("message", [b"", b"one", bytes(range(256)) * 40])
@each_of("bulk", [False, True])
def test_message_comes_whole(message: bytes, bulk: bool) -> None:
    one, other = channels()
    assert one.send(message, bulk=bulk)
    assert exchange(one, other) == [message]
    assert other.receive() is None
    assert (one.queued, other.malformed) == (0, 0)


def test_both_ways() -> None:
    one, other = channels()
    one.send(b"question")
    other.send(b"answer")
    assert exchange(one, other) == [b"question"]
    assert exchange(other, one) == [b"answer"]


def test_an_urgent_message_overtakes_the_rest_of_a_bulk_one() -> None:
    one, other = channels(frame_max=64, room=128)
    one.send(bytes(1000), bulk=True)
    assert one.flush()
    one.send(b"urgent")
    assert exchange(one, other) == [b"urgent", bytes(1000)]


def test_a_full_lane_refuses_and_takes_nothing() -> None:
    one, other = channels(queue_max=200)
    assert one.send(b"a" * 100, bulk=True)
    assert not one.send(b"b" * 100, bulk=True)
    assert one.queued == 100
    assert one.send(b"c")  # a lane of its own
    assert exchange(one, other) == [b"c", b"a" * 100]
    assert one.send(b"b" * 100, bulk=True)


def test_an_empty_lane_takes_one_message_of_any_length() -> None:
    one, other = channels(queue_max=1)
    assert one.send(bytes(5000))
    assert not one.send(b"")
    assert exchange(one, other) == [bytes(5000)]


def test_empty_messages_fill_a_lane_too() -> None:
    one, _ = channels(queue_max=10_000)
    sent = 0
    while one.send(b""):
        sent += 1
    assert sent < 1000


def test_too_long_a_message_names_the_limit() -> None:
    one, _ = channels(message_max=10)
    with pytest.raises(ValueError, match="11 bytes is longer than the limit of 10"):
        one.send(bytes(11))


@pytest.mark.parametrize("frame_max", [0, FRAME_HEADER])
def test_frames_have_room_for_a_piece(frame_max: int) -> None:
    with pytest.raises(ValueError, match="frames of"):
        channels(frame_max=frame_max)


def test_length_of_messages_fits_a_frame() -> None:
    with pytest.raises(ValueError, match="message_max"):
        channels(message_max=MESSAGE_MAX + 1)


def test_a_broken_link_empties_the_channel() -> None:
    link, other = memory_links(room=10)
    channel = ControlChannel(link, queue_max=1000, message_max=1000)
    assert channel.send(bytes(100), bulk=True)
    assert channel.flush()
    other.close()
    assert channel.broken == "the link is closed"
    assert not channel.flush()
    assert not channel.send(b"x")
    assert channel.receive() is None
    assert channel.queued == 0


def test_what_was_sent_and_not_acknowledged_when_the_link_broke_may_not_have_come() -> None:
    link, _ = memory_links(frame_max=32, room=108)
    acknowledged = 0
    channel = ControlChannel(link, queue_max=1000, message_max=1000, acknowledged=lambda: acknowledged)
    assert channel.send_now(b"a")
    assert channel.send(b"bulk", bulk=True)
    assert not channel.flush()
    assert channel.send(b"b" * 30)  # two frames
    assert channel.send(b"c")
    assert not channel.flush()
    assert channel.send(b"d" * 30)  # one frame finds room
    assert channel.flush()
    acknowledged = 1
    channel.close()
    assert channel.doubtful == [(3, b"b" * 30), (4, b"c")]
    assert channel.unsent == [b"d" * 30]
    other, end = memory_links()
    channel = ControlChannel(other, queue_max=40, message_max=1000)
    channel.resume([b"b" * 30, b"c", b"d" * 30])
    assert channel.queued == 61
    assert not channel.flush()
    receiver = ControlChannel(end, queue_max=40, message_max=1000)
    assert [receiver.receive() for _ in range(4)] == [b"b" * 30, b"c", b"d" * 30, None]


def test_close_ends_both_sides() -> None:
    one, other = channels()
    one.send(b"never sent")
    one.send(b"not asked for again", bulk=True)
    one.close()
    assert one.unsent == [b"never sent"]
    assert one.broken
    assert other.broken
    assert other.receive() is None
    assert one.queued == 0


def test_a_link_that_is_still_opening_keeps_the_messages() -> None:
    one, other = channels(frame_max=64, room=1024)
    link = one._link
    put, link.put = link.put, lambda frame: False  # type: ignore[method-assign]
    one.send(b"early")
    assert one.flush()
    link.put = put  # type: ignore[method-assign]
    assert exchange(one, other) == [b"early"]


@each_of(
    "wrong",
    [
        b"\0",
        frame(2, 1, 1, b"x"),
        frame(URGENT, 2, 1, b"x"),
        frame(URGENT, 1, 1, b"x", reserved=1),
        frame(URGENT, 1, 1001, b"x"),
        frame(URGENT, 1, 1, b"longer"),
        frame(URGENT, 1, 3),
        frame(URGENT, 0, 3, b"xyz"),
        frame(URGENT, 0, 0),
    ],
)
def test_a_wrong_frame_is_counted_and_harms_no_other(wrong: bytes) -> None:
    link, channel = receiving(message_max=1000)
    link.put(frame(BULK, 1, 4, b"ab"))
    link.put(wrong)
    link.put(frame(URGENT, 1, 4, b"fine"))
    link.put(frame(BULK, 0, 2, b"cd"))
    assert [channel.receive() for _ in range(3)] == [b"fine", b"abcd", None]
    assert channel.malformed == 1


@pytest.mark.parametrize("wrong", [frame(BULK, 0, 5, b"c"), frame(BULK, 0, 3), frame(BULK, 0, 3, b"cdef")])
def test_a_message_with_a_wrong_piece_is_dropped(wrong: bytes) -> None:
    link, channel = receiving()
    link.put(frame(BULK, 1, 5, b"ab"))
    link.put(wrong)
    link.put(frame(BULK, 0, 3, b"cde"))
    assert channel.receive() is None
    assert channel.malformed == 2


def test_a_message_that_does_not_end_is_replaced_by_the_next() -> None:
    link, channel = receiving()
    link.put(frame(BULK, 1, 5, b"ab"))
    link.put(frame(BULK, 1, 3, b"new"))
    assert channel.receive() == b"new"
    assert channel.malformed == 1


def test_nobody_is_kept_busy_by_frames_without_a_message() -> None:
    link, channel = receiving()
    for _ in range(2 * FRAMES_MAX):
        link.put(b"\0")
    link.put(frame(URGENT, 1, 1, b"x"))
    assert [channel.receive(), channel.behind, channel.malformed] == [None, True, FRAMES_MAX]
    assert [channel.receive(), channel.behind] == [None, True]
    assert [channel.receive(), channel.receive(), channel.behind] == [b"x", None, False]


def test_send_now_sends_one_frame_or_takes_nothing() -> None:
    one, other = channels(frame_max=64)
    assert one.send_now(b"short")
    assert one.send_now(b"")
    assert not one.send_now(bytes(64))
    one.send(b"waits")
    assert not one.send_now(b"overtakes")
    one.flush()
    assert [other.receive() for _ in range(4)] == [b"short", b"", b"waits", None]
