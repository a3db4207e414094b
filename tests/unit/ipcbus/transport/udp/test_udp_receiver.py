"""Tests for ipcbus.transport.udp.udp_receiver."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from ipcbus.reliability.registration import State
from ipcbus.reliability.topic_subscriptions import TopicSubscriptions
from ipcbus.transport.udp.udp_receiver import UdpReceiver
from ipcbus.wire.udp_packets import TOPICS, Topics

if TYPE_CHECKING:
    import pytest


class Udp(UdpReceiver):
    """A receiver that has got all datagrams, of which some wait for room in the ring."""

    def __init__(self, waiting: list[tuple[bytes, int]]) -> None:
        self._receiver = cast("Any", SimpleNamespace(catches_up=False))
        self._backlog = waiting


def test_datagrams_that_wait_for_room_in_the_ring_are_not_missing() -> None:
    assert Udp([(b"datagram", 0)]).catches_up
    assert not Udp([]).catches_up


class Fetching(UdpReceiver):
    """A receiver whose datagrams are fetched without the protocol; `settled` says whether the protocol took note."""

    def __init__(self, *, behind: bool) -> None:
        subscriptions = TopicSubscriptions(0)
        subscriptions.subscribe([1], 0)
        subscriptions.answered(Topics(TOPICS, 0, 1, 0, 0, ((1, 5, 9),)))
        self._receiver = cast(
            "Any",
            SimpleNamespace(
                catches_up=behind,
                subscriptions=subscriptions,
                receives=bool,
                refusal="",
                state=State.CONNECTING,
                lead=3,
            ),
        )
        self._fetches, self._backlog, self.settled, self.lines = True, [], False, None

    def _settle(self) -> None:
        self.settled = True
        self._receiver.catches_up = False  # type: ignore[misc]


def test_what_timers_ask_does_not_end_the_fetching() -> None:
    receiver = Fetching(behind=False)
    assert (receiver.floor(1), receiver.published(1), receiver.receives(1), receiver.refusal) == (5, 9, True, "")
    assert receiver.request_infos((), 0) is None
    assert not receiver.catches_up
    assert not receiver.settled


def test_a_number_that_waits_for_datagrams_asks_for_what_was_fetched() -> None:
    receiver = Fetching(behind=False)
    found = []
    for lead in (4, 5):
        receiver._receiver.subscriptions.answered(Topics(TOPICS, 0, 1, 0, lead, ((1, 5, 6 + lead),)))
        found.append((receiver.published(1), receiver.at_end(1), receiver.settled))
    assert found == [(9, 10, True), (9, 11, True)]
    receiver._receiver.lead = 4  # type: ignore[misc]
    assert receiver.published(1) == 10


def test_a_receiver_that_was_behind_looks_whether_it_still_is() -> None:
    receiver = Fetching(behind=True)
    assert not receiver.catches_up
    assert receiver.settled


class Asking(UdpReceiver):
    """One whose source does not answer."""

    def __init__(self) -> None:
        self.questions = 0

    @property
    def reliable_receiver(self) -> Any:  # type: ignore[override]  # noqa: ANN401
        return SimpleNamespace(ask=self.ask, answers=0, over=False, asks=True)

    def ask(self, now_ns: int, *, anew: bool = False) -> int:
        del now_ns, anew
        self.questions += 1
        return self.questions

    def _send_packets(self) -> None: ...


def test_all_marks_that_are_not_answered_ask_again_together(monkeypatch: pytest.MonkeyPatch) -> None:
    now_ns = [1_000_000_000]
    monkeypatch.setattr(time, "monotonic_ns", lambda: now_ns[0])
    asking = Asking()
    marks = [asking.mark() for _ in range(200)]
    assert asking.questions == 200
    for _ in range(10):
        now_ns[0] += 100_000_000
        assert not any(is_through() for is_through in marks)
    assert asking.questions == 210
