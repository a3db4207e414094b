from __future__ import annotations

from random import Random

from ipcbus.reliability.catch_up import HELD_MAX, REQUESTS_MAX, CatchUp
from ipcbus.reliability.loss_detector import NakSettings
from ipcbus.reliability.receive_state import ReceiveSettings, ReceiveState


def behind(sent: int) -> tuple[CatchUp, ReceiveState]:
    """A receiver that has nothing of what was sent."""
    reception = ReceiveState(ReceiveSettings(NakSettings(initial_backoff=0)), Random(1), 0, 0)
    found = CatchUp(reception)
    assert found.receive_session_message(sent, 0, 0) == []
    return found, reception


def test_it_asks_for_a_little_at_a_time_and_delivers_in_order() -> None:
    found, reception = behind(1000)
    assert reception.missing == REQUESTS_MAX
    assert found.receive_data(1, 0, b"b", 0, 0) == []
    assert found.receive_data(0, 0, b"a", 0, 0) == [(b"a", 0), (b"b", 0)]
    assert reception.missing == REQUESTS_MAX
    assert reception.lead == REQUESTS_MAX + 2


def test_one_that_never_comes_does_not_have_it_keep_more_than_it_may() -> None:
    found, reception = behind(1000)
    for number in range(1, 1000):
        found.receive_data(number, 0, b"x", 0, 0)
    assert (reception.base, reception.lead) == (0, HELD_MAX)
    assert len(found) == HELD_MAX - 1


def test_the_rest_comes_in_order_too() -> None:
    found, _ = behind(10)
    for number in (5, 3, 7):
        found.receive_data(number, 0, b"%d" % number, number, 0)
    assert found.remaining() == [(b"3", 3), (b"5", 5), (b"7", 7)]
    assert len(found) == 0
