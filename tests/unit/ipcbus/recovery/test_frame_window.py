"""One side of a control channel over datagrams: how it opens, what it sends again and when, and how it breaks."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipcbus.recovery.frame_window import LONG_WINDOW, WINDOW, FrameAcceptor, FrameSettings, FrameWindow
from ipcbus.reliability.rate_limiter import RateLimiter
from ipcbus.wire import udp_packets
from ipcbus.wire.udp_packets import ASKS, ENDED, Frame, FrameAck

MS, SECOND = 1_000_000, 1_000_000_000
SESSION, COOKIE = 7, 9
SETTINGS = FrameSettings()

Packet = Frame | FrameAck


def parsed(packets: list[bytes]) -> list[Packet]:
    found = [udp_packets.parse(packet) for packet in packets]
    assert all(isinstance(each, Frame | FrameAck) for each in found)
    return found  # type: ignore[return-value]


class Pair:
    """Both sides, without delay."""

    def __init__(
        self, pace: RateLimiter | None = None, *, joined: bool = True, settings: FrameSettings = SETTINGS
    ) -> None:
        self.now = 0
        self.here = FrameWindow(settings, 5, 0)
        self.acceptor = FrameAcceptor(settings, Random(1), pace)
        if joined:
            self.exchange()

    @property
    def there(self) -> FrameWindow:
        assert self.acceptor.window is not None
        return self.acceptor.window

    def up(self) -> list[Packet]:
        """What the opener sends now."""
        self.here.turn(self.now)
        return parsed(self.here.packets(SESSION, COOKIE, self.now))

    def down(self) -> list[Packet]:
        """What the acceptor sends now."""
        if self.acceptor.window is not None:
            self.there.turn(self.now)
        return parsed(self.acceptor.packets(SESSION, COOKIE, self.now))

    def exchange(self) -> None:
        for _ in range(50):
            up, down = self.up(), self.down()
            if not up and not down:
                return
            for packet in up:
                self.acceptor.receive(packet, self.now)
            for packet in down:
                self.here.receive(packet, self.now)
        raise AssertionError("they talk without end")

    def run(self, until: int) -> None:
        """Lets time pass until nothing is due before that time."""
        while True:
            self.exchange()
            due = [each.next_ns for each in (self.here, self.there) if each.next_ns is not None]
            if not due or min(due) > until:
                self.now = until
                return
            self.now = max(self.now, *[min(due)])


def taken(window: FrameWindow) -> list[bytes]:
    found = []
    while (frame := window.take()) is not None:
        found.append(frame)
    return found


def test_frames_go_both_ways_when_both_sides_know_each_other() -> None:
    pair = Pair(joined=False)
    assert not pair.here.put(b"too early")
    assert pair.acceptor.window is None
    pair.exchange()
    assert pair.here.put(b"there")
    assert pair.there.put(b"and back")
    pair.exchange()
    assert (taken(pair.there), taken(pair.here)) == ([b"there"], [b"and back"])


def test_the_opening_is_repeated_at_doubling_intervals_and_given_up() -> None:
    window = FrameWindow(SETTINGS, 5, 0)
    sent = []
    now: int | None = 0
    while now is not None:
        window.turn(now)
        for packet in parsed(window.packets(SESSION, COOKIE, now)):
            assert (packet.to, packet.sender, packet.flags) == (0, 5, ASKS)
            sent.append(now // MS)
        now = window.next_ns
    assert sent[:6] == [0, 100, 300, 700, 1500, 2500]
    assert window.broken == "the other side has not answered in time"


def test_the_acceptor_has_no_channel_before_the_opener_has_proved_that_it_gets_the_answers() -> None:
    pair = Pair(joined=False)
    (opening,) = pair.up()
    for _ in range(3):
        assert not pair.acceptor.receive(opening, 0)
    (answer,) = pair.down()
    assert pair.acceptor.window is None
    pair.here.receive(answer, 0)
    (proof,) = pair.up()
    assert pair.acceptor.receive(proof, 0)
    assert pair.there.peer_epoch == 5


def test_the_proof_is_repeated_until_the_acceptor_has_the_channel() -> None:
    pair = Pair(joined=False)
    (opening,) = pair.up()
    pair.acceptor.receive(opening, 0)
    (answer,) = pair.down()
    pair.here.receive(answer, 0)
    pair.up()  # the proof is lost
    pair.here.receive(answer, 0)  # it comes twice, which confirms nothing
    pair.up()
    assert pair.acceptor.window is None
    assert pair.here.next_ns is not None
    pair.now = pair.here.next_ns
    pair.exchange()
    assert pair.there.peer_epoch == 5
    assert pair.here.next_ns is None


def test_a_packet_of_an_earlier_channel_is_not_taken() -> None:
    pair = Pair()
    pair.here.put(b"old")
    earlier = pair.up()
    old = pair.there
    pair.here = FrameWindow(SETTINGS, 6, 0)
    pair.exchange()
    assert old.broken == "the other side has opened another channel"
    for packet in earlier:
        assert not pair.acceptor.receive(packet, 0)
    assert (taken(pair.there), taken(old)) == ([], [])
    # Neither does an opening that comes late disturb the channel that exists.
    late = udp_packets.parse(udp_packets.frame_ack(SESSION, COOKIE, 0, 5, (0, WINDOW, 0), ASKS))
    assert isinstance(late, FrameAck)
    assert not pair.acceptor.receive(late, 0)
    pair.exchange()
    pair.here.put(b"new")
    pair.exchange()
    assert taken(pair.there) == [b"new"]


def test_a_lost_frame_is_sent_again_when_three_later_ones_have_come() -> None:
    pair = Pair()
    for n in range(5):
        pair.here.put(bytes([n]))
    frames = [packet for packet in pair.up() if isinstance(packet, Frame)]
    for frame in frames[1:]:
        pair.acceptor.receive(frame, 0)
    for packet in pair.down():
        pair.here.receive(packet, 0)
    assert [packet.number for packet in pair.up() if isinstance(packet, Frame)] == [0]
    assert pair.here.counts.frames_retransmitted == 1


def test_a_frame_is_sent_again_at_the_time_out_which_follows_the_round_trip_and_doubles() -> None:
    pair = Pair()
    pair.here.put(b"0")
    (frame,) = pair.up()
    pair.now = 40 * MS
    pair.acceptor.receive(frame, pair.now)
    for packet in pair.down():
        pair.here.receive(packet, pair.now)
    pair.here.put(b"1")
    pair.up()
    begun, times = pair.now, list[int]()
    while (due := pair.here.next_ns) is not None and len(times) < 4:
        pair.now = due
        if any(isinstance(packet, Frame) for packet in pair.up()):
            times.append((due - begun) // MS)
    assert times == [120, 360, 840, 1800]  # 40 ms and four deviations of 20 ms


def test_over_a_connection_no_frame_is_sent_twice_however_late_its_acknowledgement_comes() -> None:
    pair = Pair(settings=FrameSettings(resends=False, window=LONG_WINDOW))
    while pair.here.put(b"x"):
        pass
    sent = pair.up()
    assert len(sent) == pair.here.counts.frames_sent == LONG_WINDOW
    while (due := pair.here.next_ns) is not None and due < 9 * SECOND:
        pair.now = due
        assert not [each for each in pair.up() if isinstance(each, Frame)]
    for packet in sent:
        pair.acceptor.receive(packet, pair.now)
    while pair.there.take() is not None:
        pass
    pair.exchange()
    assert (pair.here.acknowledged, pair.here.over) == (LONG_WINDOW, "")
    pair.here.put(b"y")
    pair.up()
    pair.now += 10 * SECOND
    pair.up()
    assert "has not answered in time" in pair.here.over


def test_a_frame_that_is_longer_than_the_session_has_them_is_dropped() -> None:
    pair = Pair()
    frame = udp_packets.parse(udp_packets.frame(SESSION, COOKIE, pair.there.epoch, 5, 0, b"x" * 5000))
    assert isinstance(frame, Frame)
    pair.acceptor.receive(frame, 0)
    assert (pair.there.counts.frames_dropped, pair.there.take()) == (1, None)


def test_frames_are_short_where_a_limit_paces_them() -> None:
    settings = FrameSettings(frame_bytes=udp_packets.LONG_FRAME_BYTES)
    sizes = [FrameWindow(settings, 5, 0, pace=RateLimiter(rate, 100 * MS)).frame_max for rate in (0, 1_000_000)]
    assert sizes == [udp_packets.LONG_FRAME_BYTES, udp_packets.FRAME_BYTES]


def test_a_side_that_gets_no_answer_breaks() -> None:
    pair = Pair()
    pair.here.put(b"0")
    pair.up()
    while (due := pair.here.next_ns) is not None:
        pair.now = due
        pair.up()
    assert pair.here.broken == "the other side has not answered in time"
    assert pair.now == 10 * SECOND
    assert not pair.here.put(b"1")


def test_a_frame_that_is_put_after_a_long_silence_has_its_time() -> None:
    pair = Pair()
    pair.now = 1000 * SECOND
    assert pair.here.put(b"0")
    pair.exchange()
    assert taken(pair.there) == [b"0"]
    assert pair.here.next_ns is None


def test_a_receiver_without_room_stops_the_sender_and_is_not_given_up() -> None:
    pair = Pair()
    sent = 0
    while pair.here.put(b"%d" % sent):
        sent += 1
        pair.exchange()
    assert sent == 2 * WINDOW
    pair.run(60 * SECOND)
    assert pair.here.broken == ""
    assert (pair.there.ready, pair.here.ready) == (True, False)
    assert taken(pair.there) == [b"%d" % n for n in range(WINDOW)]
    pair.run(61 * SECOND)
    assert pair.here.ready
    assert pair.here.put(b"%d" % sent)
    assert taken(pair.there) == [b"%d" % n for n in range(WINDOW, 2 * WINDOW)]


def test_frames_are_paced() -> None:
    pair = Pair(RateLimiter(80_000, 100 * MS))  # 1000 bytes each 100 ms
    for n in range(10):
        pair.there.put(bytes([n]) * 500)
    pair.exchange()
    assert len(taken(pair.here)) == 2
    pair.run(250 * MS)
    assert len(taken(pair.here)) == 4
    pair.run(SECOND)
    assert len(taken(pair.here)) == 4


@pytest.mark.parametrize("tells", [True, False])
def test_a_closed_channel_is_broken_at_the_other_side(tells: bool) -> None:
    pair = Pair()
    pair.there.close()
    assert pair.there.broken
    if not tells:
        pair.down()  # that is lost
    pair.here.put(b"0")
    pair.exchange()
    assert pair.here.broken == "the other side has no such channel any more"


def test_acknowledgements_of_what_was_never_sent_are_counted() -> None:
    pair = Pair()
    for place in ((1, WINDOW, 0), (0, WINDOW, 1)):
        packet = udp_packets.parse(udp_packets.frame_ack(SESSION, COOKIE, 5, pair.there.epoch, place))
        assert isinstance(packet, FrameAck)
        pair.here.receive(packet, 0)
    assert pair.here.counts.packets_dropped == 2
    assert pair.here.broken == ""


_EPOCHS = st.sampled_from([0, 5, 6, 77])
_U64 = st.integers(0, udp_packets.NUMBER_MAX) | st.integers(0, 2 * WINDOW)
_PACKETS = st.one_of(
    st.builds(lambda to, sender, n, f: udp_packets.frame(SESSION, COOKIE, to, sender, n, f), _EPOCHS, _EPOCHS, _U64,
              st.binary(min_size=1, max_size=4)),
    st.builds(
        lambda to, sender, n, more, bits, flags: udp_packets.frame_ack(
            SESSION, COOKIE, to, sender, (n, min(n + more, udp_packets.NUMBER_MAX), bits), flags
        ),
        _EPOCHS, _EPOCHS, _U64, _U64, st.integers(0, (1 << 64) - 1), st.sampled_from([0, ASKS, ENDED, ASKS | ENDED]),
    ),
)  # fmt: skip


@given(st.lists(st.tuples(_PACKETS, st.booleans(), st.integers(0, SECOND)), max_size=40), st.booleans())
def test_both_sides_take_anything_and_keep_their_bounds(steps: list[tuple[bytes, bool, int]], opened: bool) -> None:
    window = FrameWindow(SETTINGS, 5, 0, peer_epoch=77 if opened else 0)
    acceptor = FrameAcceptor(SETTINGS, Random(1))
    now = 0
    for packet, takes, wait in steps:
        now += wait
        found = udp_packets.parse(packet)
        assert isinstance(found, Frame | FrameAck)
        window.receive(found, now)
        acceptor.receive(found, now)
        for each in (window, acceptor.window):
            if each is None:
                continue
            each.put(b"x")
            if takes:
                each.take()
            each.turn(now)
            assert len(each._held) + len(each._ready) <= WINDOW
            assert len(each._sent) <= WINDOW
        for sent in (window.packets(SESSION, COOKIE, now), acceptor.packets(SESSION, COOKIE, now)):
            assert len(sent) <= WINDOW + 6
            parsed(sent)
        assert window.next_ns is None or window.next_ns > now
