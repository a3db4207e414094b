from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import pytest

from ipcbus.reliability.loss_detector import NakSettings
from ipcbus.reliability.receive_state import ReceiveSettings, ReceiveState
from ipcbus.wire import udp_packets

if TYPE_CHECKING:
    from collections.abc import Callable

MS = 1_000_000


def reception(first: int | None = 0, **terms: object) -> ReceiveState:
    return ReceiveState(ReceiveSettings(NakSettings(initial_backoff=0), **terms), Random(1), 0, first)


def test_in_order() -> None:
    found = reception()
    assert all(found.receive_data(number, 0, 10, number) for number in range(5))
    assert (found.counts.msgs_rcved, found.counts.bytes_rcved, found.counts.lost, found.missing) == (5, 50, 0, 0)


def test_begins_where_it_hears_of_the_session() -> None:
    found = reception(None)
    assert found.receive_data(100, 0, 1, 0)
    assert not found.receive_data(99, 0, 1, 0)
    assert found.counts.lost == 0
    other = reception(None)
    other.receive_session_message(100, 0, 0)
    assert other.missing == 0
    other.receive_session_message(102, 0, 0)
    assert other.missing == 2


def test_a_gap_is_asked_for_and_filled() -> None:
    found = reception()
    found.receive_data(3, 0, 1, 0)
    assert found.turn(0) == [0, 1, 2]
    assert (found.counts.lost, found.counts.naks_sent, found.missing) == (3, 3, 3)
    assert found.receive_data(1, 0, 1, 7)
    assert not found.receive_data(1, 0, 1, 8)
    assert (found.counts.duplicate_data, found.counts.nak_stm_min, found.counts.nak_stm_max) == (1, 7, 7)


def test_how_often_it_asked_is_counted() -> None:
    found = reception()
    found.receive_data(2, 0, 1, 0)
    found.turn(0)
    found.receive_data(0, 0, 1, 1)
    counts = found.counts
    assert (counts.nak_tx_min, counts.nak_tx_mean, counts.nak_tx_max) == (1, 1, 1)
    for when in range(300, 4000, 300):
        found.turn(when * MS)
    found.receive_data(1, 0, 1, 4000 * MS)
    assert counts.nak_tx_min == 1 < counts.nak_tx_mean < counts.nak_tx_max


def test_the_mean_time_of_a_recovery_begins_with_the_first_one() -> None:
    found = reception()
    found.receive_data(2, 0, 1, 0)
    assert found.turn(0) == [0, 1]
    assert found.receive_data(0, 0, 1, 80)
    assert found.counts.nak_stm_mean == 80
    assert found.receive_data(1, 0, 1, 160)
    assert found.counts.nak_stm_mean == 90  # an eighth of the difference


def test_overtaken_is_not_recovered() -> None:
    found = reception()
    found.receive_data(1, 0, 1, 0)
    found.receive_data(0, 0, 1, 0)
    assert (found.counts.out_of_order, found.counts.nak_stm_max) == (1, 0)


def test_the_tail_is_found_missing_by_a_session_message() -> None:
    found = reception()
    found.receive_data(0, 0, 1, 0)
    found.receive_session_message(3, 0, 0)
    assert found.turn(0) == [1, 2]


def test_what_left_the_window_is_not_asked_for() -> None:
    found = reception()
    found.receive_data(0, 0, 1, 0)
    found.receive_data(9, 5, 1, 0)
    assert found.counts.unrecovered_txw == 4
    assert found.turn(0) == [5, 6, 7, 8]
    found.receive_session_message(10, 8, 0)
    assert (found.counts.unrecovered_txw, found.missing) == (7, 1)


def test_given_up_and_then_there_after_all() -> None:
    found = reception()
    found.receive_data(1, 0, 1, 0)
    assert found.turn(0) == [0]
    found.turn(10_000 * MS)
    assert (found.counts.unrecovered_tmo, found.missing) == (1, 0)
    assert found.receive_data(0, 0, 1, 10_001 * MS)
    assert not found.receive_data(0, 0, 1, 10_002 * MS)
    assert (found.counts.late, found.counts.duplicate_data) == (1, 1)


def test_numbers_that_are_too_many_to_ask_for_are_late_when_they_come() -> None:
    found = ReceiveState(ReceiveSettings(NakSettings(entries_max=2), late_max=3), Random(1), 0, 0)
    found.receive_data(2, 0, 1, 0)  # 0 and 1 are missing
    found.receive_data(6, 0, 1, 0)  # 3, 4 and 5 too: only 4 and 5 are remembered as missing
    assert (found.counts.unrecovered_full, found.missing) == (3, 2)
    assert [found.receive_data(number, 0, 1, 1) for number in (0, 1, 3, 3)] == [True, True, True, False]
    assert (found.counts.late, found.counts.duplicate_data) == (3, 1)


def test_a_number_from_nowhere_costs_no_memory() -> None:
    found = reception()
    found.receive_data(udp_packets.NUMBER_MAX, 0, 1, 0)
    assert found.missing <= 1 << 16
    found.receive_data(udp_packets.NUMBER_MAX, udp_packets.NUMBER_MAX, 1, 0)
    assert found.missing == 0
    counts = found.counts
    assert counts.unrecovered_full + counts.unrecovered_txw == udp_packets.NUMBER_MAX


def test_ncfs_by_reason() -> None:
    found = reception()
    found.receive_data(9, 0, 1, 0)
    for reason, number in ((1, 0), (2, 1), (3, 2), (0, 3), (77, 4)):
        found.receive_ncf([number, 1000], reason, 0)
    counts = found.counts
    assert (counts.ncfs_ignored, counts.ncfs_rx_delay, counts.ncfs_shed, counts.ncfs_unknown) == (1, 1, 1, 2)


def test_may_be_told_not_to_ask() -> None:
    found = reception(send_naks=False)
    found.receive_data(3, 0, 1, 0)
    assert found.turn(0) == []
    assert found.counts.naks_sent == 0


def test_silence_ends_it() -> None:
    found = reception(activity_timeout=60_000 * MS)
    found.receive_data(0, 0, 1, 5 * MS)
    assert found.next_ns == 60_005 * MS
    assert not found.timed_out(60_004 * MS)
    assert found.timed_out(60_005 * MS)
    found.receive_session_message(1, 0, 60_004 * MS)
    assert not found.timed_out(60_005 * MS)


@pytest.mark.parametrize(
    "sign",
    [
        lambda found, now: found.receive_data(1, 0, 10, now),
        lambda found, now: found.receive_data(0, 0, 10, now),
        lambda found, now: found.receive_session_message(3, 0, now),
        lambda found, now: found.receive_ncf([0], 1, now),
        lambda found, now: found.receive_ncf([], 1, now),
        lambda found, now: found.note_life(now),
    ],
    ids=["data", "a duplicate", "a session message", "an NCF", "an NCF of nothing that is missing", "what was shed"],
)
def test_whatever_the_source_sends_is_a_sign_of_life(sign: Callable[[ReceiveState, int], object]) -> None:
    found = reception(activity_timeout=10)
    found.receive_data(0, 0, 10, 0)
    assert (found.timed_out(9), found.timed_out(10)) == (False, True)
    sign(found, 9)
    assert (found.timed_out(18), found.timed_out(19)) == (False, True)
