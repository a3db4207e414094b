"""Snapshots of live sessions over UDP: both ends agree with each other and with what was sent."""

from __future__ import annotations

import re
import threading
from typing import TYPE_CHECKING

import pytest

import ipcbus
from ipcbus import stats
from tests.kit.bus import GIVE_UP_S, LBTIPC, LBTRU, Bus

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ipcbus.stats import SessionStats

COUNT = 400


@pytest.fixture
def bus(domain: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bus]:
    monkeypatch.setenv("LBTRU_LOSS_RATE", "10")
    found = Bus(domain, LBTRU, "sequential")
    yield found
    found.close()


def session_of(bus: Bus, source: ipcbus.Source) -> SessionStats:
    found = stats.take_snapshot(bus.domain).session(source.source)
    assert found is not None
    return found


def test_both_ends_agree_with_the_ledger(bus: Bus) -> None:
    seen: list[bytes] = []

    def take(message: ipcbus.Message) -> None:
        if message.type is ipcbus.MessageType.DATA:
            seen.append(bytes(message.data))

    receiver = bus.receiver("t", take, bus.context("reader", latency_sampling_interval=1))
    source = bus.source("t", bus.context("writer"))
    bus.joined(source)
    sent = [b"%06d" % number for number in range(COUNT)]
    for each in sent:
        source.send(each, flush=True)
        bus.turn()
    bus.until(lambda: len(seen) == COUNT, "all messages")
    assert seen == sent

    def settled() -> bool:
        session = session_of(bus, source)
        uplink, reception = session.uplink, session.receivers[0].reception
        if not uplink or not reception or reception.counters["msgs_rcved"] < COUNT:
            return False
        # What they show may be a little old.
        known = uplink.counters["naks_rcved"] == reception.counters["naks_sent"]
        return known and uplink.counters["lead"] == reception.counters["lead"] == COUNT

    bus.until(settled, "what the two ends show of the end")
    session = session_of(bus, source)
    (slot,) = session.receivers
    uplink, reception = session.uplink, slot.reception
    assert uplink is not None
    assert reception is not None
    assert (uplink.source, uplink.layer, uplink.active) == (session.source, "LBT-RU", True)
    assert uplink.counters["msgs_sent"] == session.counters["msgs_sent"] == uplink.counters["lead"] == COUNT
    assert (uplink.counters["num_clients"], session.counters["num_clients"]) == (1, 1)
    assert session.pacing == "receiver_paced"
    assert session.sources[0].receivers == 1
    assert (slot.layer, slot.reason, slot.topics, slot.context_name) == ("LBT-RU", "", ("t",), "reader")
    assert slot.counters["lbm_msgs_rcved"] == receiver.delivered == COUNT
    assert (slot.counters["lost"], reception.unrecovered, reception.counters["missing"]) == (0, 0, 0)
    # A tenth of what was sent was thrown away: each of them was asked for, and sent again at least once.
    assert reception.state == "joined"
    assert reception.counters["socket_dgrams_lost"] > 0
    assert uplink.counters["naks_rcved"] == reception.counters["naks_sent"] > 0
    assert uplink.counters["nak_pckts_rcved"] == reception.counters["nak_pckts_sent"] > 0
    counted = reception.counters
    assert counted["nak_tx_max"] >= counted["nak_tx_mean"] >= counted["nak_tx_min"] >= 1
    assert reception.counters["nak_stm_max"] >= reception.counters["nak_stm_mean"] >= 0
    repaired = reception.counters["lost"] - reception.counters["out_of_order"]
    assert uplink.counters["rxs_sent"] >= repaired > 0
    assert uplink.counters["rxs_sent"] <= uplink.counters["naks_rcved"]
    assert slot.latency.count == COUNT
    assert slot.address.startswith("127.0.0.1:")
    assert f"LBT-RU:{reception.address}:" in session.source


def test_a_fallback_says_why(domain: str) -> None:
    bus = Bus(domain, LBTIPC, "sequential")
    try:
        source = bus.source("t", transport_lbtipc_maximum_receivers_per_transport=1)
        first = bus.receiver("t", lambda message: None, bus.context("first"))
        bus.joined(source)
        second = bus.receiver("t", lambda message: None, bus.context("second"))
        bus.joined(source, 2)
        for _ in range(10):
            source.send(b"x", flush=True)
        bus.until(lambda: first.delivered == second.delivered == 10, "ten messages each")
        (info,) = second.sessions
        assert (info.state, info.layer) == ("joined", "LBT-RU")
        assert "slots of the session are taken" in info.reason
        assert [(each.layer, each.reason) for each in first.sessions] == [("ring", "")]
        bus.until(lambda: len(session_of(bus, source).receivers) == 2, "both receivers")

        def shown() -> bool:
            found = session_of(bus, source).receivers[1]
            return bool(found.reason and found.address)

        bus.until(shown, "what both ends show of it")
        session = session_of(bus, source)
        ring, fallback = session.receivers
        assert (ring.slot, ring.layer, ring.reason, ring.reception) == (0, "ring", "", None)
        assert (fallback.slot, fallback.layer, fallback.context_name) == (64, "LBT-RU", "second")
        assert fallback.reason == info.reason
        assert (session.slots_max, session.counters["num_clients"]) == (1, 2)
        assert session.sources[0].receivers == 2
        assert session.uplink is not None
        assert session.uplink.active
        second.close()
        bus.until(lambda: len(session_of(bus, source).receivers) == 1, "its end")
        assert not any(context.sessions for context in stats.take_snapshot(domain).contexts if not context.pid)
    finally:
        bus.close()


def test_the_data_rate_is_said_to_hold_a_session_up(domain: str) -> None:
    bus = Bus(domain, LBTRU, "sequential")
    try:
        writer = bus.context("writer", transport_lbtru_data_rate_limit=1_000_000)
        bus.receiver("t", lambda message: None)
        source = bus.source("t", writer)
        bus.joined(source)
        seen: list[SessionStats] = []

        def refused() -> bool:
            with pytest.raises(ipcbus.WouldBlock):
                while True:
                    source.send(b"x" * 1000, block=False)
            seen.append(session_of(bus, source))
            return seen[-1].held_up_by_rate

        bus.until(refused, "a send that the data rate refuses")
        session = seen[-1]
        assert session.uplink is not None
        assert (session.wait, session.held_up_by) == ("refused", None)
        assert session.uplink.data_rate == 1_000_000
        assert session.uplink.counters["rctlr_data_msgs"] >= 1
        assert session.uplink.lag > 0
    finally:
        bus.close()


@pytest.mark.parametrize("transport", ["lbtru", "lbttcp"])
def test_the_receiver_that_does_not_receive_is_said_to_hold_a_session_up(domain: str, transport: str) -> None:
    bus = Bus(domain, LBTRU, "sequential")
    try:
        source = bus.source("t", bus.context("writer"), transport=transport)
        readers = [bus.context(name, mode="embedded") for name in ("fast", "slow")]
        held = threading.Event()
        bus.receiver("t", lambda message: None, readers[0])
        bus.receiver("t", lambda message: held.wait(GIVE_UP_S), readers[1])
        bus.joined(source, 2)

        def holder() -> str | None:
            with pytest.raises(ipcbus.WouldBlock):
                while True:
                    source.send(b"x" * 1000, block=False)
            found = session_of(bus, source).held_up_by
            return None if found is None else found.context_name

        bus.until(lambda: holder() == "slow", "the receiver that holds up")
        for _ in range(20):
            assert holder() in ("slow", None)
        held.set()
    finally:
        bus.close()


def test_receptions_leave_nothing(bus: Bus) -> None:
    bus.receiver("t", lambda message: None, bus.context("reader"))
    source = bus.source("t", bus.context("writer"))
    bus.joined(source)
    assert re.fullmatch(r"LBT-RU:127\.0\.0\.1:\d+:[0-9a-f]{8}", source.source)
    bus.close()
    assert stats.take_snapshot(bus.domain).contexts == ()
