"""The links of a sending session and of a receiving context, in virtual time and without sockets."""

from __future__ import annotations

import contextlib
from random import Random
from typing import TYPE_CHECKING

from ipcbus.recovery.frame_window import LONG_WINDOW, WINDOW
from ipcbus.reliability.clients import Client, State
from ipcbus.reliability.rate_limiter import RateLimiter
from ipcbus.transport.udp.udp_link import LINKS_MAX, ReceiverEnd, SenderLinks, UdpLink, counters, frame_settings
from ipcbus.wire import udp_packets
from ipcbus.wire.transport_names import TRANSPORT_LBTRU, TRANSPORT_LBTTCP
from ipcbus.wire.udp_packets import ENDED, Frame, FrameAck

if TYPE_CHECKING:
    from ipcbus.recovery.frame_window import FrameWindow

MS = 1_000_000
SESSION = 7


def client(port: int) -> Client:
    return Client(("10.0.0.2", port), 1000 + port, State.KNOWN, 0, context_id=port)


def parsed(packet: bytes) -> Frame | FrameAck:
    found = udp_packets.parse(packet)
    assert isinstance(found, Frame | FrameAck)
    return found


class Scene:
    """A sending session, and receiving contexts by their ports."""

    def __init__(self, pace: RateLimiter | None = None) -> None:
        self.now = 0
        self.links = SenderLinks(SESSION, Random(1), pace or RateLimiter(0, 100 * MS))
        self.clients: dict[int, Client] = {}
        self.ends: dict[int, ReceiverEnd] = {}

    def join(self, port: int) -> FrameWindow:
        self.clients[port] = client(port)
        self.ends[port] = ReceiverEnd(SESSION, Random(port))
        return self.ends[port].open(self.now)

    def exchange(self) -> int:
        """Both sides exchange packets until nothing is left; returns how many the source sent."""
        sent = 0
        for _ in range(50):
            up = [
                (self.clients[port], packet)
                for port, end in self.ends.items()
                for packet in end.turn(self.clients[port].cookie, self.now)
            ]
            for sender, packet in up:
                assert parsed(packet).cookie == sender.cookie
                self.links.receive(parsed(packet), sender, self.now)
            down = self.links.turn(self.now)
            for packet, address in down:
                port = next(port for port, each in self.clients.items() if each.address == address)
                self.ends[port].receive(parsed(packet), self.now)
            sent += len(down)
            if not up and not down:
                return sent
        raise AssertionError("they talk without end")

    def opened(self) -> dict[int, FrameWindow]:
        found = {each.context_id: each.window for each in self.links.opened}
        self.links.opened.clear()
        return found


def test_frames_are_long_where_no_network_splits_them() -> None:
    for host in ("127.0.0.1", "127.8.0.1", "::1"):
        found = frame_settings(TRANSPORT_LBTRU, host)
        assert (found.frame_bytes, found.window, found.resends) == (udp_packets.LONG_FRAME_BYTES, LONG_WINDOW, True)
    for host in ("10.0.0.1", "fe80::1%eth0"):
        found = frame_settings(TRANSPORT_LBTTCP, host)
        assert (found.frame_bytes, found.window, found.resends) == (udp_packets.FRAME_BYTES, WINDOW, False)


def test_each_client_has_a_link_of_its_own() -> None:
    scene = Scene()
    here = {port: scene.join(port) for port in (1, 2)}
    scene.exchange()
    there = scene.opened()
    assert there.keys() == {1, 2}
    for port in (1, 2):
        assert there[port].put(b"to %d" % port)
        scene.links.wake(there[port])
        assert here[port].put(b"from %d" % port)
    scene.exchange()
    assert [here[port].take() for port in (1, 2)] == [b"to 1", b"to 2"]
    assert [there[port].take() for port in (1, 2)] == [b"from 1", b"from 2"]
    assert scene.links.has_news
    assert scene.links.next_ns is None


def test_frames_that_were_put_are_sent_by_one_push() -> None:
    scene = Scene()
    window = scene.join(1)
    scene.exchange()
    sent: list[int] = []
    link = UdpLink(window, lambda: sent.append(scene.exchange()), contextlib.nullcontext())
    for each in range(10):
        assert link.put(b"%d" % each)
    assert (sent, window.counts.frames_sent) == ([], 0)
    link.push()
    link.push()  # nothing new
    assert len(sent) == 1
    assert window.counts.frames_sent == 10
    (there,) = scene.opened().values()
    assert [there.take() for _ in range(10)] == [b"%d" % each for each in range(10)]


def test_a_client_that_is_gone_or_another_one_at_its_address_breaks_the_link() -> None:
    scene = Scene()
    scene.join(1)
    scene.exchange()
    (window,) = scene.opened().values()
    scene.links.keep({("10.0.0.2", 1): scene.clients[1]}.get)
    assert window.broken == ""
    scene.clients[1] = client(1)
    scene.links.keep({("10.0.0.2", 1): scene.clients[1]}.get)
    assert "left the session" in window.broken
    assert len(scene.links) == 0
    here = scene.ends[1].window
    assert here is not None
    assert here.put(b"x")
    scene.exchange()
    assert here.broken == "the other side has no such channel any more"


def test_a_receiver_that_opens_again_replaces_its_link() -> None:
    scene = Scene()
    first = scene.join(1)
    scene.exchange()
    (window,) = scene.opened().values()
    again = scene.ends[1].open(0)
    scene.exchange()
    assert first.broken
    assert window.broken == "the other side has opened another channel"
    (window,) = scene.opened().values()
    assert again.put(b"x")
    scene.exchange()
    assert window.take() == b"x"


def test_a_link_that_is_ended_says_how_many_frames_have_come() -> None:
    scene = Scene()
    first = scene.join(1)
    scene.exchange()
    (window,) = scene.opened().values()
    for _ in range(3):
        assert first.put(b"x")
    scene.exchange()
    assert first.acknowledged == 3
    assert first.put(b"late")
    late = scene.ends[1].turn(scene.clients[1].cookie, scene.now)
    assert scene.links.end(first.epoch) == 3
    for packet in late:
        scene.links.receive(parsed(packet), scene.clients[1], scene.now)
    assert scene.links.end(first.epoch) == 3
    assert [window.take() for _ in range(4)] == [b"x", b"x", b"x", None]
    assert first.acknowledged == 3
    assert scene.links.end(first.epoch + 1) == 0


def test_a_link_that_is_ended_before_its_first_frame_comes_takes_none() -> None:
    """What the receiving context sends over its next link may be read before it."""
    scene = Scene()
    first = scene.join(1)
    opening = scene.ends[1].turn(scene.clients[1].cookie, scene.now)
    scene.links.receive(parsed(opening[0]), scene.clients[1], scene.now)
    for packet, _ in scene.links.turn(scene.now):
        scene.ends[1].receive(parsed(packet), scene.now)
    assert first.put(b"x")
    assert scene.links.end(first.epoch) == 0
    scene.exchange()
    assert not scene.links.opened
    assert scene.links.end(first.epoch) == 0
    again = scene.ends[1].open(scene.now)
    assert again.put(b"y") is False
    scene.exchange()
    assert scene.opened().keys() == {1}


def test_links_above_the_largest_number_are_refused() -> None:
    scene = Scene()
    for port in range(LINKS_MAX):
        scene.join(port)
    scene.exchange()
    assert len(scene.opened()) == LINKS_MAX
    refused = scene.join(LINKS_MAX)
    scene.exchange()
    assert refused.broken == "the other side has no room"
    assert (len(scene.links), scene.links.refused) == (LINKS_MAX, 1)


def test_all_links_of_a_session_share_one_limit() -> None:
    scene = Scene(RateLimiter(80_000, 100 * MS))  # 1000 bytes each 100 ms
    for port in (1, 2):
        scene.join(port)
    scene.exchange()
    for window in scene.opened().values():
        for _ in range(10):
            assert window.put(bytes(500))
        scene.links.wake(window)
    scene.exchange()
    came = [scene.ends[port].window for port in (1, 2)]
    assert sum(each.counts.frames_rcved for each in came if each is not None) == 2
    assert scene.links.next_ns is not None
    assert 0 < scene.links.next_ns <= 100 * MS


def test_a_closed_session_tells_its_receivers() -> None:
    scene = Scene()
    here = scene.join(1)
    scene.exchange()
    scene.links.close()
    scene.exchange()
    assert here.broken == "the other side has no such channel any more"


def test_a_receiver_that_is_not_registered_sends_nothing_and_answers_later() -> None:
    scene = Scene()
    window = scene.join(1)
    end = scene.ends[1]
    assert end.turn(0, 0) == []
    end.receive(parsed(udp_packets.frame(SESSION, 5, 99, 98, 0, b"of an earlier link")), 0)
    (answer, opening) = [parsed(packet) for packet in end.turn(1001, 0)]
    assert (answer.to, answer.sender, answer.flags) == (98, 99, ENDED)
    assert opening.sender == window.epoch
    end.end("the session has ended")
    assert window.broken == "the session has ended"


def test_counts() -> None:
    """Those of all links of a session, which refuses others at its end."""
    scene = Scene()
    windows = [scene.join(port) for port in (1, 2)]
    scene.exchange()
    for window in windows:
        assert window.put(b"frame")
    scene.ends[1].turn(scene.clients[1].cookie, scene.now)  # lost on the way
    scene.exchange()
    scene.now += 1000 * MS
    scene.exchange()
    for opened in scene.links.opened:
        assert opened.window.take() == b"frame"
        assert opened.window.put(b"answer")
        scene.links.wake(opened.window)
    scene.links.turn(scene.now)  # both lost on the way
    scene.now += 1000 * MS
    scene.exchange()
    found = {"frames_sent": 2, "frames_retransmitted": 2, "frames_rcved": 2}
    assert scene.links.counters() == found | {"links_refused": 0}
    assert counters(scene.ends[1].counts) == {"frames_sent": 1, "frames_retransmitted": 1, "frames_rcved": 1}
    scene.links.close()
    scene.exchange()
    assert [window.over for window in windows] == ["the other side has no such channel any more"] * 2
    assert [(window.broken, window.take(), bool(window.broken)) for window in windows] == [("", b"answer", True)] * 2
    again = scene.ends[1].open(scene.now)
    scene.exchange()
    assert (again.broken, scene.links.counters()["links_refused"]) == ("the other side has no room", 1)
