"""What sources over UDP and over TCP share."""

from __future__ import annotations

import pytest

from ipcbus.reliability.clients import State
from ipcbus.reliability.reliable_sender import ReliableSender
from ipcbus.reliability.session_sender import SenderSettings
from ipcbus.reliability.stream_sender import StreamSender, StreamSettings
from ipcbus.wire import udp_packets
from tests.unit.ipcbus.reliability.ends import HERE, SECRET, SESSION, WHO

End = ReliableSender | StreamSender


def made(kind: type[End]) -> End:
    """A source that has topic 3, with message 5 next and all below 4 published."""
    places = {3: (5, 4)}.get
    if kind is StreamSender:
        return StreamSender(SESSION, StreamSettings(), SECRET, 0, lambda address: 0, places)
    return ReliableSender(SESSION, SenderSettings(), SECRET, 0, False, places)


def registered(end: End) -> int:
    """Registers a client; returns its cookie."""
    cookie = end._clients.cookie(HERE, 0)
    end.receive(udp_packets.connect(SESSION, cookie, 1), HERE, 0)
    client = end.client_at(HERE)
    assert client is not None
    end.take()
    return client.cookie


ends = pytest.mark.parametrize("kind", [ReliableSender, StreamSender], ids=["UDP", "TCP"])


@ends
def test_an_ack_makes_a_client_known_and_is_answered(kind: type[End]) -> None:
    end = made(kind)
    cookie = registered(end)
    assert (end.addresses, end.clients) == ((HERE,), ())
    before = end.changes
    for packet in udp_packets.acks(SESSION, cookie, 0, WHO, 1, [3, 9], udp_packets.ASKS):
        end.receive(packet, HERE, 1)
    (client,) = end.clients
    assert (client.address, client.state) == (HERE, State.KNOWN)
    assert end.changes > before
    (found,) = [found for packet, _ in end.take() if isinstance(found := udp_packets.parse(packet), udp_packets.Topics)]
    assert found.topics == ((3, 5, 4), (9, udp_packets.NO_TOPIC, udp_packets.NO_TOPIC))


@ends
def test_frames_of_a_client_are_kept_once_its_context_is_known(kind: type[End]) -> None:
    end = made(kind)
    cookie = registered(end)
    frame = udp_packets.frame(SESSION, cookie, 1, 2, 0, b"content")
    end.receive(frame, HERE, 1)
    assert end.take_channel_packets() == []
    for packet in udp_packets.acks(SESSION, cookie, 0, WHO, 1, []):
        end.receive(packet, HERE, 1)
    end.receive(frame, HERE, 1)
    ((found, client),) = end.take_channel_packets()
    assert (found.cookie, client.address) == (cookie, HERE)
    assert end.take_channel_packets() == []
