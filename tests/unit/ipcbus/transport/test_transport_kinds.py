"""Session plans: two sources share a session when their plans are equal."""

from __future__ import annotations

import dataclasses

from ipcbus.config import Config
from ipcbus.transport.transport_kinds import SessionPlan, evict_after_ms
from ipcbus.wire.wire_layout import TRANSPORT_LBTIPC, TRANSPORT_LBTRU

PLAN = SessionPlan(
    transport=TRANSPORT_LBTIPC,
    window=1 << 20,
    source_paced=False,
    datagram_max=8192,
    receivers_max=20,
    topics_max=64,
    sm_interval_ms=1000,
    batch_minimum=2048,
    batch_interval_ms=200,
)


def test_each_field_shows_in_the_options_of_a_ring_session() -> None:
    before = PLAN.as_options("transport_lbtipc")
    assert before["transport_lbtipc_transmission_window_size"] == 1 << 20
    for name in (
        each.name for each in dataclasses.fields(PLAN) if each.name not in ("transport", "udp", "fills_datagrams")
    ):
        value = getattr(PLAN, name)
        changed = dataclasses.replace(PLAN, **{name: not value if isinstance(value, bool) else value + 1})
        assert changed != PLAN
        assert changed.as_options("transport_lbtipc") != before, name


def test_a_session_over_udp_has_no_checksums_of_records() -> None:
    plan = dataclasses.replace(PLAN, transport=TRANSPORT_LBTRU)
    assert plan.over_udp
    assert not PLAN.over_udp
    assert "transport_lbtru_record_checksum" not in plan.as_options("transport_lbtru")


def test_receivers_are_evicted_only_where_the_source_asks_for_it() -> None:
    for behavior, after_ms in (("block", 0), ("evict", 70)):
        options = {"slow_receiver_behavior": behavior, "slow_receiver_timeout": 70}
        assert evict_after_ms(Config({}).values("source", "t", **options)) == after_ms
