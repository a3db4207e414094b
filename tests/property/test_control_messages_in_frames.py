"""A control channel: any messages over any bounded link come whole and in order, and any frames do no harm."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ipcbus.recovery.control_channel import FRAME_HEADER, ControlChannel
from tests.kit.frame_links import memory_links

MESSAGE_MAX = 400

messages = st.tuples(st.booleans(), st.binary(max_size=MESSAGE_MAX))
FLUSH, RECEIVE = "flush", "receive"
steps = st.lists(st.one_of(messages, st.sampled_from([FLUSH, RECEIVE])), max_size=60)


@given(st.integers(FRAME_HEADER + 1, 100), st.integers(1, 1000), st.integers(0, 2000), steps)
def test_each_lane_is_in_order(frame_max: int, room: int, queue_max: int, does: list[tuple[bool, bytes] | str]) -> None:
    one, other = memory_links(frame_max, room)
    sender = ControlChannel(one, queue_max=queue_max, message_max=MESSAGE_MAX)
    receiver = ControlChannel(other, queue_max=0, message_max=MESSAGE_MAX)
    sent: dict[bool, list[bytes]] = {False: [], True: []}
    found: list[bytes] = []

    def receive() -> None:
        while (message := receiver.receive()) is not None:
            found.append(message)

    for index, step in enumerate(does):
        if isinstance(step, tuple):
            bulk, value = step
            # The lane and a number show where a message belongs.
            message = bytes([bulk, index]) + value[: MESSAGE_MAX - 2]
            if sender.send(message, bulk=bulk):
                sent[bulk].append(message)
        elif step == FLUSH:
            sender.flush()
        else:
            receive()
    while sender.flush():
        receive()
    receive()
    assert sender.queued == 0
    assert receiver.malformed == 0
    for bulk, of_lane in sent.items():
        assert [message for message in found if message[0] == bulk] == of_lane
    assert len(found) == sum(map(len, sent.values()))


frames = st.binary(min_size=1, max_size=40) | st.builds(
    lambda lane, first, remaining, piece: bytes([lane, first, 0, 0]) + remaining.to_bytes(4, "little") + piece,
    st.integers(0, 2),
    st.integers(0, 1),
    st.integers(0, 12),
    st.binary(max_size=8),
)


@given(st.lists(frames, max_size=80), st.integers(0, 10))
def test_any_frames_are_messages_or_counted(hostile: list[bytes], message_max: int) -> None:
    one, other = memory_links(frame_max=100, room=1 << 20)
    channel = ControlChannel(other, queue_max=0, message_max=message_max)
    found = 0
    for frame in hostile:
        one.put(frame)
        while (message := channel.receive()) is not None:
            assert len(message) <= message_max
            found += 1
        assert sum(len(lane.open or b"") for lane in channel._receiving) <= 2 * message_max
    assert found + channel.malformed <= 2 * len(hostile)
    # What comes after them is received, whatever they were.
    one.put(bytes([0, 1, 0, 0, 0, 0, 0, 0]))
    assert channel.receive() == b""
