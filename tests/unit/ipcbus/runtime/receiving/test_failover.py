"""Sessions that move from their ring to UDP and back, in virtual time: when they move, and when they must not."""

from __future__ import annotations

import dataclasses
import time
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import pytest

from ipcbus import TransportError
from ipcbus.config import ReceiverOptions
from ipcbus.resolution.local.adverts import Endpoint, SessionAdvert
from ipcbus.runtime.receiving.failover import Failover
from ipcbus.transport.udp.udp_receiver import UdpReceiver
from ipcbus.wire.wire_layout import TRANSPORT_LBTIPC
from ringbuf.ring_errors import SegmentRefused

SECOND_NS = 1_000_000_000
ADVERT = SessionAdvert(1, 0, TRANSPORT_LBTIPC, 0xABC, 20001, 65536, False, 8, Endpoint("127.0.0.1", 14380))
OPTIONS = ReceiverOptions()


class Udp(UdpReceiver):
    """The end of a session over UDP; what was sent before is through when the test says so."""

    def __init__(self) -> None:
        self._receiver = cast("Any", SimpleNamespace(missing=False, catches_up=False))
        self.through = False
        self.layer = "LBT-RU"

    def mark(self) -> Any:  # noqa: ANN401
        return lambda: self.through


class Session:
    """A session that notes where it goes."""

    source_string = "source"

    def __init__(self, advert: SessionAdvert = ADVERT) -> None:
        self.advert, self.reason = advert, ""
        self.datagram_source: Any = Mock(lines="lines")
        self.demux = SimpleNamespace(blocked=False, holds_datagram=False)
        self.has_everything, self.evictions = True, 0

    def switch(self, datagram_source: Any, reason: str) -> None:  # noqa: ANN401
        self.datagram_source, self.reason = datagram_source, reason

    def topics(self) -> list[Any]:
        return [SimpleNamespace(topic_number=4)]

    def has_all(self, published: dict[int, int]) -> bool:
        assert published == {4: 11}
        return self.has_everything


class Moves:
    """A failover with its joiner, and one session."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_ns = 100 * SECOND_NS
        monkeypatch.setattr(time, "monotonic_ns", lambda: self.now_ns)
        self.udp = Udp()
        self.ring = Mock(evicts=False)
        self.ring.reader.evicted = False
        self.ring.published.return_value = 11
        self.joiner = Mock()
        self.joiner.over_udp.return_value = self.udp
        self.joiner.over_ring.return_value = self.ring
        self.failover = Failover(self.joiner)
        self.session: Any = Session()

    def lose_ring(self) -> bool:
        return self.failover.to_udp(self.session, OPTIONS, "evicted")

    def begin(self) -> bool:
        return self.failover.begin_returns([self.session], lambda _: None)

    def arrive(self) -> list[Any]:
        return list(self.failover.finish_returns([self.session]))


@pytest.fixture
def moves(monkeypatch: pytest.MonkeyPatch) -> Moves:
    return Moves(monkeypatch)


def test_a_session_goes_to_udp_and_comes_back_when_it_has_all_that_was_sent_before(moves: Moves) -> None:
    assert moves.lose_ring()
    moves.joiner.over_udp.assert_called_once_with(ADVERT, OPTIONS, resume_at=0)
    assert (moves.session.datagram_source, moves.session.reason) == (moves.udp, "evicted")
    assert cast("Any", moves.udp.lines) == "lines"
    moves.now_ns += SECOND_NS - 1
    assert not moves.begin()  # it rests
    assert moves.failover.next_ns(moves.now_ns) is None
    moves.now_ns += 1
    assert moves.begin()
    moves.ring.join_topic.assert_called_once_with(4)
    assert moves.failover.next_ns(moves.now_ns) > moves.now_ns  # type: ignore[operator]
    assert moves.arrive() == []
    moves.udp.through, moves.session.has_everything = True, False
    assert moves.arrive() == []
    moves.session.has_everything, moves.session.demux.holds_datagram = True, True
    assert moves.arrive() == []
    moves.session.demux.holds_datagram = False
    assert moves.arrive() == [moves.session]
    assert (moves.session.datagram_source, moves.session.reason) == (moves.ring, "")
    assert moves.failover.next_ns(moves.now_ns) is None


def test_without_a_way_over_udp_a_session_stays_where_it_is(moves: Moves) -> None:
    before = moves.session.datagram_source
    moves.joiner.over_udp.side_effect = TransportError("no socket")
    assert not moves.lose_ring()
    moves.session.advert = dataclasses.replace(ADVERT, endpoint=None)
    moves.joiner.over_udp.side_effect = None
    assert not moves.lose_ring()
    assert moves.session.datagram_source is before


@pytest.mark.parametrize(
    ("behind", "blocked", "paced", "evicts", "goes"),
    [
        (False, True, False, False, False),
        (True, False, True, False, False),
        (True, False, False, True, False),
        (True, False, False, False, True),
        (False, False, True, True, True),
    ],
)
def test_a_session_that_would_lose_messages_or_be_evicted_again_stays_on_udp(
    moves: Moves, behind: bool, blocked: bool, paced: bool, evicts: bool, goes: bool
) -> None:
    moves.session.advert = dataclasses.replace(ADVERT, source_paced=paced)
    moves.lose_ring()
    moves.now_ns += SECOND_NS
    moves.session.demux.blocked, moves.ring.evicts = blocked, evicts
    cast("Any", moves.udp.reliable_receiver).missing = behind
    assert moves.begin() == goes
    assert moves.ring.leave.called == evicts & behind


def test_a_ring_that_cannot_be_joined_yet_gives_the_new_reason(moves: Moves) -> None:
    moves.lose_ring()
    moves.now_ns += SECOND_NS
    moves.joiner.over_ring.side_effect = SegmentRefused("no permission")
    assert not moves.begin()
    assert moves.session.reason == "no permission"


def test_an_eviction_on_the_way_back_leaves_the_ring_and_has_the_session_rest_again(moves: Moves) -> None:
    moves.lose_ring()
    moves.now_ns += SECOND_NS
    moves.begin()
    moves.ring.reader.evicted = moves.udp.through = True
    assert moves.arrive() == []
    moves.ring.leave.assert_called_once_with()
    assert moves.session.evictions == 1
    assert moves.session.datagram_source is moves.udp
    assert not moves.begin()
    moves.now_ns += SECOND_NS
    moves.ring.reader.evicted = False
    assert moves.begin()


def test_a_session_that_is_left_on_its_way_back_leaves_its_ring_too(moves: Moves) -> None:
    moves.lose_ring()
    moves.now_ns += SECOND_NS
    moves.begin()
    moves.failover.keep([moves.session])
    moves.ring.leave.assert_not_called()
    moves.failover.keep([])
    moves.ring.leave.assert_called_once_with()
    assert moves.failover.next_ns(moves.now_ns) is None
