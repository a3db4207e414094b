"""What a receiver is told of the sessions that carry its topic: those that are joined, left, or refused."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

from ipcbus.config import ReceiverOptions
from ipcbus.delivery.sink import Sink
from ipcbus.resolution.local.adverts import SourceAdvert
from ipcbus.runtime.receiving.session_info import SessionInfo, sessions_of, sources_of
from ipcbus.runtime.receiving.subscriptions import Subscription
from ipcbus.wire.wire_layout import TRANSPORT_LBTSMX
from tests.kit.resolving import source

if TYPE_CHECKING:
    from ipcbus.transport.receiving_session import ReceivingSession

ADVERT = source(2, "a").session
MINE = Subscription("a", Sink(None, 1), ReceiverOptions())


def session(
    *,
    evicted: bool = False,
    over: bool = False,
    damage: str = "",
    sink: Sink = MINE.sink,
    receives: bool = True,
    refusal: str = "",
) -> ReceivingSession:
    """A session that gives its messages to a sink."""
    reader = SimpleNamespace(evicted=evicted)
    return cast(
        "ReceivingSession",
        SimpleNamespace(
            advert=ADVERT,
            owner_pid=5,
            over=over,
            evictions=3,
            reason="moved",
            activity_timeout=SimpleNamespace(timeout_ns=2_500_000_000),
            datagram_source=SimpleNamespace(
                reader=reader, layer="LBT-RU", receives=lambda number: receives, refusal=refusal
            ),
            counters=lambda: {"lost": 7},
            damage=lambda: damage,
            topics=lambda: [SimpleNamespace(topic_number=1, origin=SimpleNamespace(topic="a"))],
            delivery=SimpleNamespace(sinks=lambda number: [sink]),
        ),
    )


def joined(*sessions: ReceivingSession) -> list[SessionInfo]:
    return sessions_of(MINE, sessions, (), {}, (), {})


def test_a_joined_session_shows_its_counters_and_damage_comes_before_another_reason() -> None:
    (found,) = joined(session(), session(sink=Sink(None, 1)))  # the other one is another receiver's
    assert found == SessionInfo(ADVERT.source_string, "LBT-RU", 5, "joined", {"lost": 7}, "moved", "LBT-RU")
    assert joined(session(damage="damaged"))[0].reason == "damaged"


def test_a_source_counts_and_its_session_is_joined_when_what_it_sends_comes() -> None:
    waits, refused, hears = session(receives=False), session(receives=False, refusal="full"), session(refusal="full")
    assert [sources_of(MINE, [each]) for each in (waits, refused, hears)] == [0, 0, 1]
    found = joined(waits, refused, hears)
    assert [(each.state, each.reason) for each in found] == [
        ("joining", "moved"),
        ("joining", "full"),
        ("joined", "full"),
    ]


def test_a_session_that_was_evicted_says_so_joined_or_left() -> None:
    (still,) = joined(session(evicted=True))
    assert (still.state, still.counters) == ("evicted", {"lost": 7})
    assert "has evicted this context" in still.reason
    evicted, ended = sessions_of(MINE, (), (session(), session(over=True)), {}, (), {})
    assert (evicted.state, evicted.counters, evicted.layer) == ("evicted", {"evictions": 3}, "")
    assert (ended.state, ended.counters) == ("ended", {"evictions": 3})
    assert "no sign of life for 2.5 s" in ended.reason


def test_a_refused_session_is_shown_once_to_the_receivers_of_its_topics() -> None:
    other = dataclasses.replace(ADVERT, context_id=3)
    offered = [SourceAdvert(ADVERT, "a", 1), SourceAdvert(ADVERT, "a", 2), SourceAdvert(other, "b", 1)]
    refused = {ADVERT: (5, "no memory"), other: (6, "no permission")}
    (found,) = sessions_of(MINE, (), (), refused, offered, {2: 5})
    assert (found.state, found.owner_pid, found.reason) == ("refused", 5, "no memory")
    assert sessions_of(MINE, (), (), {}, offered, {2: 5}) == []  # offered, and about to be joined


def test_what_the_options_of_a_receiver_do_not_allow_is_refused_to_it_alone() -> None:
    smx = dataclasses.replace(ADVERT, transport=TRANSPORT_LBTSMX, endpoint=None)
    unordered = Subscription("a", Sink(None, 1), ReceiverOptions({"ordered_delivery": 0}))
    offered = [SourceAdvert(smx, "a", 1)]
    (found,) = sessions_of(unordered, (), (), {}, offered, {2: 5})
    assert (found.state, found.owner_pid) == ("refused", 5)
    assert "ordered_delivery = 0" in found.reason
    assert sessions_of(MINE, (), (), {}, offered, {2: 5}) == []
