from __future__ import annotations

import pytest

from ipcbus.config import SCOPES, TABLE, ContextOptions, Option, ReceiverOptions, SourceOptions

ROWS = pytest.mark.parametrize("row", TABLE, ids=lambda row: f"{row.scope}.{row.name}")

# Ultra Messaging's own default, or ours where the meaning names the difference.
DEFAULTS: dict[str, dict[str, bool | int | str]] = {
    "context": {
        "operational_mode": "embedded",
        "transport_lbtipc_receiver_operational_mode": "embedded",
        "context_name": "",
        "transport_lbtipc_id_low": 20001,
        "transport_lbtipc_id_high": 20005,
        "transport_lbtsmx_id_low": 30001,
        "transport_lbtsmx_id_high": 30005,
        "transport_lbtipc_datagram_max_size": 65535,
        "transport_lbtipc_receiver_thread_behavior": "pend",
        "transport_lbtipc_pend_behavior_linger_loop_count": 1,
        "transport_lbtsmx_receiver_thread_behavior": "pend",
        "shared_memory_group": "",
        "registry_hidden": False,
        "liveness_check_interval": 250,
        "resolution_scan_interval": 1000,
        "delivery_control_maximum_total_map_entries": 200_000,
        "delivery_control_maximum_reassembly_bytes": 2**31,
        "thread_cpu": -1,
        "latency_sampling_interval": 16,
    },
    "source": {
        "transport": "lbtipc",
        "transport_lbtipc_id": 0,
        "transport_lbtipc_behavior": "receiver_paced",
        "transport_lbtipc_transmission_window_size": 4194304,
        "transport_lbtipc_maximum_receivers_per_transport": 20,
        "transport_lbtipc_maximum_topics_per_transport": 1024,
        "transport_lbtipc_sm_interval": 10000,
        "transport_lbtsmx_id": 0,
        "transport_lbtsmx_transmission_window_size": 1048576,
        "transport_lbtsmx_datagram_max_size": 8192,
        "transport_lbtsmx_maximum_receivers_per_transport": 64,
        "transport_lbtsmx_maximum_topics_per_transport": 1024,
        "transport_lbtsmx_sm_interval": 10000,
        "transport_topic_sequence_number_info_interval": 5000,
        "transport_topic_sequence_number_info_active_threshold": 60,
        "slow_receiver_behavior": "block",
        "slow_receiver_timeout": 5000,
        "implicit_batching_minimum_length": 2048,
        "implicit_batching_interval": 200,
    },
    "receiver": {
        "delivery_control_maximum_burst_loss": 1024,
        "delivery_control_loss_check_interval": 250,
        "ordered_delivery": 1,
        "otr_message_caching_threshold": 10_000,
        "resolution_no_source_notification_threshold": 0,
        "receive_queue_maximum": 4096,
        "transport_lbtipc_activity_timeout": 60000,
        "transport_lbtsmx_activity_timeout": 60000,
    },
    "event_queue": {
        "event_queue_name": "",
        "queue_size_warning": 0,
        "queue_delay_warning": 0,
        "queue_age_enabled": True,
        "queue_service_time_enabled": True,
        "queue_count_enabled": True,
    },
    "wildcard_receiver": {
        "pattern_type": "pcre",
        "resolver_no_source_linger_timeout": 1000,
    },
}


def test_defaults() -> None:
    assert {scope: dict(options()) for scope, options in SCOPES.items()} == DEFAULTS


def test_one_row_a_name_and_scope() -> None:
    assert len({(row.scope, row.name) for row in TABLE}) == len(TABLE)


@ROWS
def test_row_knows_its_place(row: Option[int]) -> None:
    assert SCOPES[row.scope].rows[row.name] is row
    assert getattr(SCOPES[row.scope], row.name) is row


@ROWS
def test_meaning_is_a_sentence(row: Option[int]) -> None:
    assert row.meaning[-1] == "."
    assert "  " not in row.meaning
    assert len(row.meaning) > 20


@ROWS
def test_default_passes_its_own_check(row: Option[int]) -> None:
    assert row.check(row.default) == row.default


@ROWS
def test_limits_are_stated(row: Option[int]) -> None:
    if row.kind is int:
        assert row.minimum is not None
        assert row.maximum is not None
        assert row.minimum <= row.default <= row.maximum
    if row.choices:
        assert str(row.default) in row.choices
    assert row.limits()


@ROWS
def test_time_and_size_have_units(row: Option[int]) -> None:
    if row.name.endswith(("_interval", "_timeout")):
        assert row.unit in ("ms", "datagrams")
    if row.name.endswith(("_size", "_length")):
        assert row.unit == "bytes"


def test_subject_to_change() -> None:
    assert [row.name for row in TABLE if row.subject_to_change] == ["transport_lbtipc_pend_behavior_linger_loop_count"]


def test_attribute_of_the_class_is_the_row() -> None:
    assert SourceOptions.transport.choices == ("lbtipc", "lbtsmx")
    assert ContextOptions.thread_cpu.minimum == -1
    assert ReceiverOptions.receive_queue_maximum.unit == "messages"
