from __future__ import annotations

from random import Random

from ipcbus.reliability.catch_up import HELD_BYTES, MISSING_MAX, CatchUp
from ipcbus.reliability.loss_detector import NakSettings
from ipcbus.reliability.receive_state import ReceiveSettings, ReceiveState


def behind(sent: int) -> tuple[CatchUp, ReceiveState]:
    """A receiver that has nothing of what was sent."""
    reception = ReceiveState(ReceiveSettings(NakSettings(initial_backoff=0)), Random(1), 0, 0)
    found = CatchUp(reception)
    assert found.receive_session_message(sent, 0, 0) == []
    return found, reception


def test_it_misses_a_part_at_a_time_and_delivers_in_order() -> None:
    found, reception = behind(10_000)
    assert reception.missing == MISSING_MAX
    assert found.receive_data(1, 0, b"b", 0, 0) == []
    assert found.receive_data(0, 0, b"a", 0, 0) == [(b"a", 0), (b"b", 0)]
    assert reception.missing == MISSING_MAX
    assert reception.lead == MISSING_MAX + 2


def test_new_data_waits_and_is_not_asked_for() -> None:
    found, reception = behind(MISSING_MAX + 10)
    assert found.receive_data(MISSING_MAX + 20, 0, b"new", 1, 0) == []
    assert found.receive_data(MISSING_MAX + 20, 0, b"new", 1, 0) == []
    assert (reception.lead, reception.counts.duplicate_data, len(found)) == (MISSING_MAX, 1, 0)
    came = [each for number in range(MISSING_MAX + 20) for each in found.receive_data(number, 0, b"x", 0, 0)]
    assert len(came) == MISSING_MAX + 21
    assert came[-1] == (b"new", 1)
    assert found.over


def test_no_more_waits_than_may_and_what_was_dropped_is_asked_for() -> None:
    found, reception = behind(1)
    most = HELD_BYTES // (1 << 16)
    for number in range(1, most + 10):
        assert found.receive_data(number, 0, bytes(1 << 16), 0, 0) == []
    assert reception.missing == 1 + 9
    assert sum(len(datagram) for datagram, _ in found.receive_data(0, 0, b"x", 0, 0)) == 1 + HELD_BYTES


def test_the_rest_comes_in_order_too() -> None:
    found, reception = behind(10)
    for number in (5, 3, MISSING_MAX + 50, 7):
        found.receive_data(number, 0, b"%d" % number, number, 0)
    last = MISSING_MAX + 50
    assert found.remaining(0) == [(b"3", 3), (b"5", 5), (b"7", 7), (b"%d" % last, last)]
    assert len(found) == 0
    assert reception.counts.msgs_rcved == 4


def test_it_gives_nothing_up_because_too_much_would_be_missing() -> None:
    """The source has sent more than any loop could count through."""
    reception = ReceiveState(ReceiveSettings(NakSettings(entries_max=10)), Random(1), 0, 0)
    found = CatchUp(reception)
    found.receive_session_message(1 << 61, 0, 0)
    assert (reception.missing, reception.lead, reception.counts.unrecovered_full) == (10, 10, 0)
