"""Snapshots of sessions over UDP that are bytes in shared memory: right, damaged, of sources elsewhere."""

from __future__ import annotations

import dataclasses
import os
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ipcbus import stats
from ipcbus.resolution.local.adverts import SessionAdvert
from ipcbus.stats import udp_sessions
from ipcbus.wire import wire_layout as wire
from ringbuf import layout
from tests.unit.ipcbus.stats import made
from tests.unit.ipcbus.stats.recorded import CONTEXT_ID, TAIL, TOPICS_MAX, Recorded

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ipcbus.stats import SessionStats

SECOND = 1_000_000_000
FAR = SessionAdvert(0xFA5, 0, wire.TRANSPORT_LBTRU, 0x77, 14380, 65536, False, 8)
"""Of a context that is not here."""


@pytest.fixture
def recorded(domain: str) -> Iterator[Recorded]:
    found = Recorded(domain, udp=True)
    yield found
    found.close()


def session_of(recorded: Recorded) -> SessionStats:
    found = stats.take_snapshot(recorded.domain).session("LBT-IPC:6481f8d4:20001")
    assert found is not None
    return found


def test_a_ring_that_nobody_receives_over_udp(recorded: Recorded) -> None:
    session = session_of(recorded)
    assert session.uplink is not None
    assert (session.uplink.source, session.uplink.layer) == ("LBT-RU:127.0.0.1:14380:6481f8d4", "LBT-RU")
    assert (session.uplink.active, dict(session.uplink.counters), session.receivers) == (False, {}, ())


def test_clients_of_other_hosts(recorded: Recorded) -> None:
    recorded.uplink(num_clients=2, active=1, clients_max=9, data_rate=1000, bytes_sent=5000, msgs_sent=50, rxs_sent=3)
    recorded.client(5, (1, 2 + TOPICS_MAX), context_id=7, pid=12, behind=4, address=b"10.0.0.9:14360", since_ns=11)
    recorded.client(6, (1,), context_id=8, pid=13, context_name=b"far")
    session = session_of(recorded)
    assert session.uplink is not None
    assert (session.uplink.active, session.uplink.clients_max, session.uplink.data_rate) == (True, 9, 1000)
    assert session.uplink.counters["rxs_sent"] == 3
    assert session.counters["num_clients"] == 2
    assert [source.receivers for source in session.sources] == [2, 1]
    one, other = session.receivers
    assert (one.slot, one.context_id, one.pid, one.user, one.layer) == (64 + 5, 7, 12, "", "LBT-RU")
    assert (one.address, one.topics, one.lag, one.joined_ns) == ("10.0.0.9:14360", ("a", "b"), 400, 11)
    assert (dict(one.counters), one.reception, one.reason) == ({}, None, "")
    assert (other.context_name, other.topics, other.lag) == ("far", ("a",), 0)
    assert session.held_up_by is None
    assert session.fill is None or session.fill == 0


def test_a_client_of_this_host_tells_more(recorded: Recorded) -> None:
    recorded.uplink(num_clients=1, active=1)
    recorded.client(0, (1,), context_id=CONTEXT_ID, pid=12, address=b"127.0.0.1:14360")
    shown = {"naks_sent": 9, "unrecovered_tmo": 2, "unrecovered_txw": 1, "missing": 2}
    sizes = {"bytes_rcved": 1000, "msgs_rcved": 10, "reason": b"no permission", "address": b"127.0.0.1:14380"}
    recorded.reception(recorded.advert, **shown, **sizes)
    (slot,) = session_of(recorded).receivers
    assert (slot.slot, slot.pid, slot.context_name, slot.address) == (64, os.getpid(), "recorded", "127.0.0.1:14360")
    assert (slot.layer, slot.reason, slot.state, slot.topics) == ("LBT-RU", "no permission", "active", ("a",))
    assert slot.lag == 2 * 100
    assert slot.reception is not None
    assert (slot.reception.state, slot.reception.address) == ("joined", "127.0.0.1:14380")
    assert (slot.reception.counters["naks_sent"], slot.reception.unrecovered) == (9, 3)


@pytest.mark.parametrize(("waits", "lag"), [(True, 700), (False, 0)])
def test_what_a_client_of_this_host_that_the_source_waits_for_has_not_got(
    recorded: Recorded, waits: bool, lag: int
) -> None:
    slowest = CONTEXT_ID if waits else 0
    recorded.uplink(num_clients=1, active=1, slowest=slowest, bytes_sent=5000, msgs_sent=50)
    recorded.client(0, (1,), context_id=CONTEXT_ID, pid=12, behind=7)
    recorded.reception(recorded.advert)
    (slot,) = session_of(recorded).receivers
    assert slot.lag == lag


def test_a_reception_of_which_the_source_tells_nothing(recorded: Recorded) -> None:
    recorded.reception(recorded.advert, state=b"connecting")
    (slot,) = session_of(recorded).receivers
    assert (slot.slot, slot.state, slot.topics, slot.address) == (128, "joining", (), "")


def test_a_source_on_another_host(recorded: Recorded) -> None:
    recorded.reception(FAR, reason=b"its source is on another host")
    found = stats.take_snapshot(recorded.domain)
    assert [context.context_id for context in found.contexts] == [CONTEXT_ID, 0xFA5]
    elsewhere = found.contexts[1]
    assert (elsewhere.pid, elsewhere.alive) == (0, True)
    assert "another host" in elsewhere.reason
    (session,) = elsewhere.sessions
    assert (session.source, session.transport, dict(session.counters)) == (FAR.source_string, "LBT-RU", {})
    (slot,) = session.receivers
    assert (slot.pid, slot.reason) == (os.getpid(), "its source is on another host")
    again = stats.take_snapshot(recorded.domain)
    (after,) = stats.rates(found, dataclasses.replace(again, read_ns=found.read_ns + SECOND)).contexts[1].sessions
    assert after.receivers[0].per_second["lbm_msgs_rcved"] == 0
    assert after.receivers[0].recent is not None
    assert stats.DomainSnapshot.from_dict(found.to_dict()) == found


def test_a_reception_that_cannot_be_read_is_listed(recorded: Recorded) -> None:
    fd = recorded.reception(recorded.advert)
    os.ftruncate(fd, 100)
    (slot,) = session_of(recorded).receivers
    assert (slot.pid, slot.reception, dict(slot.counters)) == (os.getpid(), None, {})


def test_a_reception_whose_ring_has_no_room_for_it(recorded: Recorded) -> None:
    fd = recorded.reception(recorded.advert)
    offset = layout.RING_HEADER.fields["user_bytes"][1]  # type: ignore[index]
    os.pwrite(fd, bytes(4), offset)
    (slot,) = session_of(recorded).receivers
    assert (slot.reception, dict(slot.counters)) == (None, {})


def test_an_uplink_that_is_always_being_written_is_shown_as_it_is(recorded: Recorded) -> None:
    recorded.uplink(version=3, msgs_sent=5)
    uplink = session_of(recorded).uplink
    assert uplink is not None
    assert uplink.counters["msgs_sent"] == 5


@settings(max_examples=60, deadline=None)
@given(board=st.binary(min_size=64, max_size=4096), at=st.integers(0, 3000), own=st.binary(min_size=64, max_size=1024))
def test_damage_is_no_error(board: bytes, at: int, own: bytes) -> None:
    recorded = Recorded(f"t{os.getpid() % 10**6}", udp=True)
    try:
        recorded.uplink(num_clients=1, active=1)
        recorded.client(0, (1,), context_id=CONTEXT_ID)
        fd = recorded.reception(recorded.advert)
        os.pwrite(recorded.ring_fd, board, layout.RING_HEADER.itemsize + TOPICS_MAX * wire.TOPIC_LINE.itemsize + at)
        os.pwrite(fd, own, layout.RING_HEADER.itemsize)
        found = stats.take_snapshot(recorded.domain)
        again = dataclasses.replace(stats.take_snapshot(recorded.domain), read_ns=found.read_ns + SECOND)
        for session in stats.rates(found, again).sessions:
            assert len(session.receivers) <= wire.CLIENTS_SHOWN + 1
            session.to_dict()
    finally:
        recorded.close()


def uplinked(at: int, limited_ns: int, *, since: int = 0, lag: int = 500, blocked_ns: int = 0) -> SessionStats:
    uplink = stats.UplinkStats(
        *("LBT-RU:a:1:1", "LBT-RU", True, 9, 1000, 0, since, lag),
        counters=made.counters("uplink", rate_limited_ns=limited_ns, naks_rcved=at // SECOND * 7),
    )
    return made.session(at=at, slots=(made.slot(lag=100),), counts={"blocked_ns": blocked_ns}, uplink=uplink)


def test_the_data_rate_is_what_holds_a_session_up() -> None:
    before = made.snapshot(made.context(uplinked(0, 0)), at=0)
    after = made.snapshot(
        made.context(uplinked(SECOND, SECOND // 2, since=SECOND // 4, blocked_ns=SECOND * 3 // 4)), at=SECOND
    )
    (session,) = stats.rates(before, after).sessions
    assert session.uplink is not None
    assert session.uplink.limited == pytest.approx(0.75)
    assert session.uplink.per_second["naks_rcved"] == 7
    assert session.held_up_by_rate
    assert session.held_up_by is None
    assert session.held_up_for_ns == SECOND * 3 // 4
    assert session.fill == 0.5
    assert session.derived()["held_up_by_rate"] is True


def test_a_reader_further_behind_than_the_uplink_holds_it_up() -> None:
    session = dataclasses.replace(uplinked(0, 0, since=5, lag=50), wait="blocked")
    assert not session.held_up_by_rate
    assert session.held_up_by == session.receivers[0]


def test_the_slowest_client_holds_a_session_over_udp_up() -> None:
    uplink = stats.UplinkStats(
        *("LBT-RU:a:1:1", "LBT-RU", True, 9, 1000, 0, 0, 500), counters=made.counters("uplink", rate_limited_ns=0)
    )
    slots = (made.slot(lag=100), made.slot(64, lag=5, layer="LBT-RU"), made.slot(65, lag=9, layer="LBT-RU"))
    session = dataclasses.replace(made.session(slots=slots, uplink=uplink), wait="blocked")
    assert session.held_up_by == session.receivers[2]
    assert dataclasses.replace(session, pacing="source_paced").held_up_by is None
    session = dataclasses.replace(session, receivers=tuple(dataclasses.replace(slot, lag=0) for slot in slots))
    assert session.held_up_by in session.receivers
    stopped = dataclasses.replace(slots[2], lag=0, stopped=True)
    session = dataclasses.replace(session, receivers=(slots[0], dataclasses.replace(slots[1], lag=0), stopped))
    assert session.held_up_by == stopped  # what it has not read lies in its socket
    named = dataclasses.replace(slots[1], context_id=77, lag=0)
    session = dataclasses.replace(
        session, receivers=(slots[0], named, slots[2]), uplink=dataclasses.replace(uplink, slowest=77)
    )
    assert session.held_up_by == named  # the source knows it


@pytest.mark.parametrize("overtakes", [False, True])
def test_the_stats_block_says_who_paces_a_session_over_udp(overtakes: bool) -> None:
    ring, own = (
        SimpleNamespace(transport=transport, over_network=wire.TRANSPORT_LBTRU, source_paced=False)
        for transport in (wire.TRANSPORT_LBTIPC, wire.TRANSPORT_LBTRU)
    )
    copy = SimpleNamespace(board={"source_paced": int(overtakes)})
    assert udp_sessions.is_source_paced(cast("Any", own), cast("Any", copy)) == overtakes
    assert not udp_sessions.is_source_paced(cast("Any", ring), cast("Any", copy))  # a twin has the ring's pacing
    assert not udp_sessions.is_source_paced(cast("Any", own), None)


def test_receivers_over_udp_hold_nobody_up() -> None:
    slot = made.slot(64, lag=TAIL, layer="LBT-RU")
    session = made.session(slots=(slot,), wait="blocked")
    assert session.held_up_by is None
    assert session.fill is None


def test_what_waited_for_the_data_rate_before_counts_once() -> None:
    """It had waited for half a second already, and waits for another quarter."""
    before = made.snapshot(made.context(uplinked(0, 0, since=SECOND // 2)), at=0)
    after = made.snapshot(made.context(uplinked(SECOND, SECOND * 3 // 4)), at=SECOND)
    (session,) = stats.rates(before, after).sessions
    assert session.uplink is not None
    assert session.uplink.limited == pytest.approx(0.25)
