from __future__ import annotations

import itertools
from typing import Any

from ipcbus.reliability.clients import Clients, ClientSettings
from ipcbus.reliability.send_state import Datagram, Refusal, SendSettings, SendState
from ipcbus.wire.udp_packets import CHARGE, NCF_IGNORED, NCF_RX_DELAY, NCF_SHED

MS = 1_000_000


def source(sent: int = 0, **terms: Any) -> SendState:  # noqa: ANN401
    found = SendState(SendSettings(**{"data_rate": 0, "retransmit_rate": 0, **terms}), 0)
    for number in range(sent):
        found.send(bytes([number]) * 100, 0)
    return found


def test_numbers_and_trail() -> None:
    found = source(window_size=250)
    assert [(found.send(b"x" * 100, 0), found.window.trail) for _ in range(4)] == [(0, 0), (1, 0), (2, 1), (3, 2)]


def test_sent_again_at_once() -> None:
    found = source(5)
    again, refused = found.nak([3, 1, 3], 0)
    assert again == [Datagram(1, 0, b"\1" * 100, retransmitted=True), Datagram(3, 0, b"\3" * 100, retransmitted=True)]
    assert refused == []
    assert (found.counts.naks_rcved, found.counts.nak_pckts_rcved, found.counts.rxs_sent) == (2, 1, 2)


def test_asked_again_too_soon_is_refused_once() -> None:
    found = source(5, ignore_interval=100 * MS)
    found.nak([3], 0)
    assert found.nak([3], 50 * MS) == ([], [Refusal(NCF_IGNORED, [3])])
    assert found.nak([3], 60 * MS) == ([], [])
    assert (found.counts.naks_ignored, found.counts.ncfs_sent) == (2, 1)
    again, _ = found.nak([3], 100 * MS)
    assert [each.number for each in again] == [3]


def test_what_was_asked_for_before_the_answer_could_come_is_refused() -> None:
    found = source(5)
    found.nak([3], 0, None, 20 * MS)
    assert found.nak([3], 19 * MS, None, 20 * MS) == ([], [Refusal(NCF_IGNORED, [3])])
    # Another member of the group is nearer, and so has missed the answer.
    assert [each.number for each in found.nak([3], 19 * MS, None, 10 * MS)[0]] == [3]
    assert [each.number for each in found.nak([3], 39 * MS, None, 20 * MS)[0]] == [3]


def test_what_is_not_held_is_passed_over() -> None:
    found = source(5, window_size=200)
    assert found.nak([0, 99], 0) == ([], [])
    assert found.counts.naks_too_old == 2


def test_the_retransmission_rate_puts_off_and_sheds() -> None:
    # 200 bytes each 10 ms, and two that wait.
    found = source(6, retransmit_rate=160_000, rate_interval=10 * MS, queue_max=4)
    again, refused = found.nak(range(6), 0)
    assert [each.number for each in again] == [0, 1]
    assert refused == [Refusal(NCF_RX_DELAY, [2, 3]), Refusal(NCF_SHED, [4, 5])]
    assert found.next_ns(0) == 10 * MS
    later, due = found.turn(10 * MS)
    assert ([each.number for each in later], due) == ([2, 3], False)
    assert (found.counts.naks_rx_delay_ignored, found.counts.naks_shed) == (2, 2)


def test_the_data_rate_blocks() -> None:
    found = source(data_rate=80_000, rate_interval=10 * MS)  # 100 bytes each 10 ms
    assert found.send(b"x" * 100, 0) == 0
    assert found.send(b"y" * 100, 0) == -1
    assert found.blocked
    assert found.next_ns(0) == 10 * MS
    (sent,), _ = found.turn(10 * MS)
    assert (sent.number, sent.data, found.blocked) == (1, b"y" * 100, False)


def test_session_messages_when_idle() -> None:
    found = source(1)
    assert found.next_ns(0) == 200 * MS
    assert found.turn(199 * MS) == ([], False)
    assert found.turn(200 * MS) == ([], True)
    assert found.next_ns(200 * MS) == 600 * MS
    found.send(b"x", 300 * MS)
    assert found.next_ns(300 * MS) == 500 * MS
    assert found.counts.sms_sent == 1


def test_a_forged_request_makes_it_send_no_more_than_its_limits() -> None:
    found = source(100, retransmit_rate=8_000, rate_interval=100 * MS)  # 100 bytes each 100 ms
    sent = sum(len(found.nak(range(100), now * MS)[0]) for now in range(1000))
    assert sent <= 11


def test_a_refusal_is_said_again_after_the_ignore_interval() -> None:
    found = source(5, ignore_interval=100 * MS)
    for begin in (0, 100 * MS, 200 * MS):
        assert [each.number for each in found.nak([3], begin)[0]] == [3]
        assert found.nak([3], begin + 10 * MS) == ([], [Refusal(NCF_IGNORED, [3])])
        assert found.nak([3], begin + 20 * MS) == ([], [])


def test_what_waits_already_is_put_off_and_not_shed() -> None:
    # The rate allows one of these an interval, and one may wait.
    found = source(5, retransmit_rate=8000, rate_interval=100 * MS, queue_max=1, ignore_interval=50 * MS)
    again, refused = found.nak([0, 1], 0)
    assert ([each.number for each in again], refused) == ([0], [Refusal(NCF_SHED, [1])])
    assert found.nak([1], 60 * MS) == ([], [Refusal(NCF_RX_DELAY, [1])])
    before = found.counts.naks_rx_delay_ignored, found.counts.naks_shed
    assert found.nak([1], 70 * MS) == ([], [])
    assert (found.counts.naks_rx_delay_ignored, found.counts.naks_shed) == (before[0] + 1, before[1])


def test_nothing_overtakes_what_waits_for_the_data_rate() -> None:
    found = source(data_rate=8000, rate_interval=100 * MS)  # 100 bytes each 100 ms
    assert found.send(b"a" * 60, 0) == 0
    assert found.send(b"b" * 60, 0) == -1
    assert found.send(b"c" * 10, 0) == -1
    sent, _ = found.turn(100 * MS)
    assert [(each.number, each.data[:1]) for each in sent] == [(1, b"b"), (2, b"c")]


def test_each_client_is_answered_by_itself() -> None:
    terms = {"retransmit_rate": 8000, "rate_interval": 100 * MS}  # 100 bytes each 100 ms
    found = source(5, ignore_interval=100 * MS, **terms)
    (first,), refused = found.nak([3], 0, "a")
    assert (first.number, first.to, refused) == (3, "a", [])
    assert found.nak([3], 10 * MS, "b") == ([], [Refusal(NCF_RX_DELAY, [3])])
    assert found.nak([3], 20 * MS, "a") == ([], [Refusal(NCF_IGNORED, [3])])
    (second,), _ = found.turn(100 * MS)
    assert (second.number, second.to) == (3, "b")


def test_new_datagrams_to_a_group_wait_for_repairs_for_20_ms_at_most() -> None:
    settings = SendSettings(data_rate=0, retransmit_rate=0, congestion_control=True)
    found = SendState(settings, 0, clients=Clients(7, ClientSettings(), b"key"), multicast=True)
    assert found.paths is not None
    for number in range(10):
        found.send(bytes([number]) * 1000, 0)
    found.paths.pacer.rate = (1000 + CHARGE) * 200  # one in 5 ms
    found.nak(range(10), 0)
    assert found.queued >= 8
    found.send(b"new" * 300, 0)
    now_ns, sent = 0, []
    while found.queued:
        now_ns += MS
        for _ in [each for each in found.turn(now_ns)[0] if not each.retransmitted]:
            sent.append(now_ns // MS)
            found.send(b"new" * 300, now_ns)
    assert len(sent) >= 2
    assert all(later - earlier <= 25 for earlier, later in itertools.pairwise([0, *sent, now_ns // MS]))
