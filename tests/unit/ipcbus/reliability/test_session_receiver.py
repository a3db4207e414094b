"""What receivers over UDP and over TCP share."""

from __future__ import annotations

from random import Random

import pytest

from ipcbus.reliability.receiver_settings import ReceiverSettings
from ipcbus.reliability.registration import Cause, State
from ipcbus.reliability.reliable_receiver import ReliableReceiver
from ipcbus.reliability.stream_receiver import StreamReceiver
from ipcbus.wire import udp_packets
from tests.unit.ipcbus.reliability.ends import AT, MS, NO_ROOM, SESSION, WHO

End = ReliableReceiver | StreamReceiver
SETTINGS = ReceiverSettings(connect_interval=100 * MS, acknowledgement_interval=500 * MS)
COOKIE = 77

ends = pytest.mark.parametrize("kind", [ReliableReceiver, StreamReceiver], ids=["UDP", "TCP"])


def joined(kind: type[End]) -> End:
    """A receiver that its source has registered."""
    end = kind(SESSION, AT, SETTINGS, Random(1), 0, WHO, multicast=False)
    end.state, end._cookie = State.JOINED, COOKIE
    return end


@ends
def test_topics_are_told_only_to_a_source_that_knows_the_receiver(kind: type[End]) -> None:
    end = joined(kind)
    end.state = State.CONNECTING
    end.topics([3, 4], 1)
    assert end.take() == []
    end.state = State.JOINED
    end.topics([3, 4, 5], 2)
    (found,) = [udp_packets.parse(packet) for packet in end.take()]
    assert isinstance(found, udp_packets.Ack)
    assert (found.cookie, found.topics, found.flags & udp_packets.ASKS) == (COOKIE, (3, 4, 5), udp_packets.ASKS)
    assert (end.counts.acks_sent, end.take()) == (1, [])


@ends
def test_it_says_soon_again_what_it_still_asks(kind: type[End]) -> None:
    end = joined(kind)
    end.topics([3], 0)
    assert end._ack_ns == 100 * MS
    (packet,) = udp_packets.topics(SESSION, COOKIE, 0, [(3, 0, 0)])
    end.receive(packet, AT, 1)
    assert not end.asks
    end.topics([3], 1)
    assert end._ack_ns == 1 + 500 * MS


@ends
def test_packets_of_its_control_channel_need_its_cookie(kind: type[End]) -> None:
    end = joined(kind)
    for cookie in (COOKIE, COOKIE + 1, 0):
        end.receive(udp_packets.frame(SESSION, cookie, 1, 2, 0, b"content"), AT, 1)
    (found,) = end.take_channel_packets()
    assert isinstance(found, udp_packets.Frame)
    assert found.cookie == COOKIE
    assert (end.take_channel_packets(), end.counts.dgrams_dropped_other) == ([], 2)
    end.state = State.CONNECTING
    assert end.channel_cookie == 0


@ends
def test_frames_are_taken_by_themselves_and_all_else_is_judged(kind: type[End]) -> None:
    end = joined(kind)
    frame = udp_packets.frame(SESSION, COOKIE, 1, 2, 0, b"content")
    others = [
        udp_packets.frame(SESSION, COOKIE + 1, 1, 2, 0, b"content"),
        udp_packets.frame(SESSION, 0, 1, 2, 0, b"content"),
        udp_packets.frame(SESSION + 1, COOKIE, 1, 2, 0, b"content"),
        frame[:20],
        udp_packets.topics(SESSION, COOKIE, 0, [(3, 0, 0)])[0],
    ]
    assert [end.take_frame(packet, 5) for packet in others] == [False] * 5
    assert end.heard_ns < 5
    assert end.take_channel_packets() == []
    assert end.take_frame(frame, 7)
    assert (end.heard_ns, len(end.take_channel_packets())) == (7, 1)
    end.state = State.CONNECTING
    assert not end.take_frame(frame, 9)


@ends
@pytest.mark.parametrize(
    ("cause", "for_good", "leaves"),
    [(Cause.LEAVE, True, True), (Cause.COMPLETE, True, True), (Cause.GONE, True, False), (Cause.SILENCE, False, False)],
)
def test_why_it_is_over(kind: type[End], cause: Cause, for_good: bool, leaves: bool) -> None:
    end = joined(kind)
    end._finish(cause)
    assert end.for_good is for_good
    expected = {Cause.COMPLETE: Cause.FINAL.value, Cause.SILENCE: kind.silence}
    assert end.reason == expected.get(cause, cause.value)
    assert end.take() == ([udp_packets.leave(SESSION, COOKIE)] if leaves else [])


@ends
def test_a_refusal_is_named(kind: type[End]) -> None:
    end = joined(kind)
    end._refused = True
    end._finish(Cause.ATTEMPTS)
    assert (end.reason, end.for_good) == (NO_ROOM, False)
