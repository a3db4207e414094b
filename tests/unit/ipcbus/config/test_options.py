from __future__ import annotations

from ipcbus.config import SCOPES, TABLE, ContextOptions, Option, ReceiverOptions, SourceOptions, options_reference
from tests.kit.cases import each_of

ROWS = each_of("row", TABLE, ids=lambda row: f"{row.scope}.{row.name}")

# Ultra Messaging's own default, or ours where the meaning names the difference.
DEFAULTS: dict[str, dict[str, bool | int | str]] = {
    "context": {
        "operational_mode": "embedded",
        "transport_lbtipc_receiver_operational_mode": "embedded",
        "context_name": "",
        "requests_outstanding_maximum": 10_000,
        "transport_lbtipc_id_low": 20001,
        "transport_lbtipc_id_high": 20005,
        "transport_lbtsmx_id_low": 30001,
        "transport_lbtsmx_id_high": 30005,
        "transport_lbtipc_datagram_max_size": 65535,
        "transport_lbtipc_receiver_thread_behavior": "pend",
        "transport_lbtipc_pend_behavior_linger_loop_count": 1,
        "transport_lbtipc_pend_behavior_linger_maximum": 100,
        "transport_lbtsmx_receiver_thread_behavior": "pend",
        "shared_memory_group": "",
        "shared_memory_touch_maximum": 4 * 2**20,
        "registry_hidden": False,
        "liveness_check_interval": 250,
        "reclaim_other_domains": True,
        "acquire_close_timeout": 1000,
        "resolution_scan_interval": 1000,
        "delivery_control_maximum_total_map_entries": 200_000,
        "delivery_control_maximum_reassembly_bytes": 2**31,
        "network_key_file": "",
        "network_protection": "encrypt",
        "network_replay_window": 4096,
        "use_tls": False,
        "tls_certificate": "",
        "tls_certificate_key": "",
        "tls_trusted_certificates": "",
        "tls_cipher_suites": "",
        "tls_peer_name": "",
        "thread_cpu": -1,
        "latency_sampling_interval": 16,
        "transport_lbtru_port_low": 14380,
        "transport_lbtru_port_high": 14389,
        "transport_lbtru_maximum_ports": 5,
        "transport_lbtru_datagram_max_size": 8192,
        "transport_lbtru_data_rate_limit": 0,
        "transport_lbtru_retransmit_rate_limit": 0,
        "transport_lbtru_rate_interval": 100,
        "transport_lbtru_receiver_socket_buffer": 8388608,
        "transport_lbtru_source_socket_buffer": 1048576,
        "transport_lbtrm_multicast_address_low": "224.10.10.10",
        "transport_lbtrm_multicast_address_high": "224.10.10.14",
        "transport_lbtrm_source_port_low": 14390,
        "transport_lbtrm_source_port_high": 14399,
        "transport_lbtrm_datagram_max_size": 8192,
        "transport_lbtrm_data_rate_limit": 0,
        "transport_lbtrm_retransmit_rate_limit": 0,
        "transport_lbtrm_rate_interval": 10,
        "transport_lbtrm_receiver_socket_buffer": 8388608,
        "transport_lbtrm_source_socket_buffer": 1048576,
        "transport_tcp_port_low": 14371,
        "transport_tcp_port_high": 14390,
        "transport_tcp_maximum_ports": 10,
        "transport_tcp_datagram_max_size": 65535,
        "transport_tcp_receiver_socket_buffer": 0,
        "resolver_multicast_interface": "",
        "resolver_multicast_address": "224.9.10.11",
        "resolver_multicast_port": 12965,
        "resolver_multicast_ttl": 16,
        "resolver_multicast_receiver_socket_buffer": 8388608,
        "control_channel_size": 262144,
        "control_channel_queue_maximum": 1048576,
        "control_channel_message_maximum": 67108864,
        "retransmit_time_share": 20,
        "resolver_unicast_daemon": "",
        "resolver_unicast_interface": "127.0.0.1",
        "resolver_unicast_port_low": 14402,
        "resolver_unicast_port_high": 14406,
        "resolver_unicast_receiver_socket_buffer": 8388608,
        "resolver_unicast_keepalive_interval": 500,
        "resolver_unicast_activity_timeout": 1000,
        "resolver_datagram_max_size": 8192,
        "resolver_initial_advertisements_per_second": 1000,
        "resolver_initial_advertisement_bps": 1_000_000,
        "resolver_sustain_advertisements_per_second": 0,
        "resolver_sustain_advertisement_bps": 1_000_000,
        "resolver_initial_queries_per_second": 1000,
        "resolver_initial_query_bps": 1_000_000,
        "resolver_sustain_queries_per_second": 0,
        "resolver_sustain_query_bps": 1_000_000,
        "resolver_wildcard_queries_per_second": 0,
        "resolver_wildcard_query_bps": 1_000_000,
    },
    "source": {
        "gmd_name": "",
        "delivery_mode": "best_effort",
        "delivery_timeout": 0,
        "ipc_gmd_directory": "",
        "ipc_gmd_type": "default",
        "gmd_durability": "process",
        "gmd_max_size": 0,
        "gmd_fresh": False,
        "gmd_zero_receivers": "wait",
        "gmd_reconnect_timeout": 300,
        "gmd_confirm_delivery": False,
        "umq_ulb_flight_size": 1000,
        "umq_ulb_message_reassignment_timeout": 0,
        "umq_ulb_message_max_reassignments": 0,
        "umq_ulb_dead_letter_topic": "",
        "umq_ulb_message_lifetime": 0,
        "transport": "lbtipc",
        "udp_fallback": "lbtru",
        "message_max": 0,
        "messages_in_flight": 4,
        "transport_lbtipc_id": 0,
        "transport_lbtipc_behavior": "receiver_paced",
        "transport_lbtipc_record_checksum": False,
        "transport_lbtipc_transmission_window_size": 4194304,
        "transport_lbtipc_maximum_receivers_per_transport": 20,
        "transport_lbtipc_maximum_topics_per_transport": 1024,
        "transport_lbtipc_sm_interval": 10000,
        "transport_lbtsmx_id": 0,
        "transport_lbtsmx_record_checksum": False,
        "transport_lbtsmx_transmission_window_size": 1048576,
        "transport_lbtsmx_datagram_max_size": 8192,
        "transport_lbtsmx_maximum_receivers_per_transport": 64,
        "transport_lbtsmx_maximum_topics_per_transport": 1024,
        "transport_lbtsmx_sm_interval": 10000,
        "transport_topic_sequence_number_info_interval": 5000,
        "transport_topic_sequence_number_info_active_threshold": 60,
        "resolver_no_receiver_linger_timeout": 1000,
        "explicit_batching_interval": 1000,
        "slow_receiver_behavior": "block",
        "slow_receiver_timeout": 5000,
        "transport_source_side_filtering_behavior": "none",
        "implicit_batching_minimum_length": 2048,
        "implicit_batching_interval": 200,
        "transport_lbtru_interface": "127.0.0.1",
        "transport_lbtru_port": 0,
        "transport_lbtru_allow_ephemeral": True,
        "transport_lbtru_behavior": "receiver_paced",
        "transport_lbtru_congestion_control": "auto",
        "transport_lbtru_transmission_window_size": 25165824,
        "transport_lbtru_transmission_window_limit": 0,
        "transport_lbtru_maximum_clients_per_transport": 1024,
        "transport_lbtru_maximum_topics_per_transport": 1024,
        "transport_lbtru_client_activity_timeout": 10_000,
        "transport_lbtru_sm_minimum_interval": 200,
        "transport_lbtru_sm_maximum_interval": 10_000,
        "transport_lbtru_ignore_interval": -1,
        "transport_lbtrm_multicast_address": "0.0.0.0",
        "transport_lbtrm_destination_port": 14400,
        "transport_lbtrm_behavior": "receiver_paced",
        "transport_lbtrm_follows": "slowest",
        "transport_lbtrm_follows_tag": "",
        "transport_lbtrm_congestion_control": "auto",
        "transport_lbtrm_transmission_window_size": 25165824,
        "transport_lbtrm_transmission_window_limit": 0,
        "transport_lbtrm_maximum_clients_per_transport": 1024,
        "transport_lbtrm_maximum_topics_per_transport": 1024,
        "transport_lbtrm_client_activity_timeout": 10_000,
        "transport_lbtrm_sm_minimum_interval": 200,
        "transport_lbtrm_sm_maximum_interval": 10_000,
        "transport_lbtrm_ignore_interval": -1,
        "transport_tcp_interface": "127.0.0.1",
        "transport_tcp_port": 0,
        "transport_tcp_nodelay": True,
        "transport_tcp_sender_socket_buffer": 0,
        "transport_tcp_listen_backlog": 1024,
        "transport_tcp_reuseaddr": True,
        "transport_tcp_multiple_receiver_behavior": "normal",
        "transport_session_maximum_buffer": 65536,
        "transport_tcp_transmission_window_size": 25165824,
        "transport_tcp_maximum_clients_per_transport": 1024,
        "transport_tcp_maximum_topics_per_transport": 1024,
        "transport_tcp_client_activity_timeout": 10_000,
        "resolver_advertisement_minimum_initial_interval": 10,
        "resolver_advertisement_maximum_initial_interval": 500,
        "resolver_advertisement_minimum_initial_duration": 5000,
        "resolver_advertisement_sustain_interval": 1000,
        "resolver_advertisement_minimum_sustain_duration": 60,
        "resolver_advertisement_quiescent_interval": 10_000,
        "resolver_advertisement_send_immediate_response": True,
        "resolver_send_final_advertisements": True,
        "late_join": False,
        "retransmit_retention_size_threshold": 0,
        "retransmit_retention_age_threshold": 0,
        "retransmit_retention_size_limit": 25165824,
        "retransmit_close_timeout": 5000,
    },
    "receiver": {
        "gmd_name": "",
        "ipc_gmd_directory": "",
        "ipc_gmd_type": "default",
        "gmd_durability": "process",
        "gmd_disconnect_mode": "warm",
        "ipc_gmd_auto_ack": True,
        "ipc_gmd_auto_ack_policy": "first",
        "gmd_unrecorded_maximum": 64,
        "gmd_max_deliveries": 0,
        "gmd_dead_letter_topic": "",
        "share": "",
        "umq_ulb_receiver_portion": 64,
        "delivery_control_maximum_burst_loss": 1024,
        "delivery_control_loss_check_interval": 250,
        "ordered_delivery": 1,
        "otr_message_caching_threshold": 10_000,
        "use_late_join": True,
        "history": -1,
        "history_archive": "",
        "retransmit_initial_sequence_number_request": True,
        "retransmit_request_interval": 500,
        "retransmit_request_message_timeout": 10_000,
        "retransmit_request_maximum": 0,
        "retransmit_request_outstanding_maximum": 10,
        "retransmit_message_caching_proximity": 5000,
        "late_join_info_request_interval": 1000,
        "late_join_info_request_maximum": 60,
        "use_otr": 2,
        "otr_request_initial_delay": 2000,
        "otr_request_minimum_interval": 1000,
        "otr_request_maximum_interval": 10_000,
        "otr_request_message_timeout": 60_000,
        "otr_request_outstanding_maximum": 200,
        "otr_request_log_alert_cooldown": 300,
        "resolution_no_source_notification_threshold": 0,
        "receive_queue_maximum": 4096,
        "receive_queue_bytes_maximum": 2**30,
        "transport_topic_sequence_number_info_request_interval": 1000,
        "transport_topic_sequence_number_info_request_maximum": 60,
        "use_udp_fallback": True,
        "transport_lbtipc_activity_timeout": 60000,
        "transport_lbtsmx_activity_timeout": 60000,
        "transport_lbtru_interface": "127.0.0.1",
        "transport_lbtru_port_low": 14360,
        "transport_lbtru_port_high": 14379,
        "transport_lbtru_allow_ephemeral": True,
        "transport_lbtru_activity_timeout": 60_000,
        "transport_lbtru_connect_interval": 100,
        "transport_lbtru_maximum_connect_attempts": 600,
        "transport_lbtru_acknowledgement_interval": 500,
        "transport_lbtru_send_naks": True,
        "transport_lbtru_nak_initial_backoff_interval": -1,
        "transport_lbtru_nak_backoff_interval": -1,
        "transport_lbtru_nak_suppress_interval": 1000,
        "transport_lbtru_nak_generation_interval": 10_000,
        "transport_lbtrm_activity_timeout": 60_000,
        "transport_lbtrm_connect_interval": 100,
        "transport_lbtrm_maximum_connect_attempts": 600,
        "transport_lbtrm_acknowledgement_interval": 2000,
        "transport_lbtrm_send_naks": True,
        "transport_lbtrm_nak_initial_backoff_interval": 50,
        "transport_lbtrm_nak_backoff_interval": -1,
        "transport_lbtrm_nak_suppress_interval": 1000,
        "transport_lbtrm_nak_generation_interval": 10_000,
        "transport_tcp_interface": "0.0.0.0",
        "transport_tcp_activity_timeout": 60_000,
        "resolver_query_minimum_initial_interval": 20,
        "resolver_query_maximum_initial_interval": 200,
        "resolver_query_minimum_initial_duration": 5000,
        "resolver_query_sustain_interval": 1000,
        "resolver_query_minimum_sustain_duration": 60,
        "resolver_query_quiescent_interval": 10_000,
    },
    "event_queue": {
        "event_queue_name": "",
        "queue_bytes_maximum": 2**30,
        "queue_size_warning": 0,
        "queue_delay_warning": 0,
        "queue_age_enabled": True,
        "queue_service_time_enabled": True,
        "queue_count_enabled": True,
    },
    "wildcard_receiver": {
        "pattern_type": "pcre",
        "resolver_no_source_linger_timeout": 1000,
        "resolver_query_minimum_interval": 50,
        "resolver_query_maximum_interval": 1000,
        "resolver_query_minimum_duration": 60,
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
    if row.name in ("delivery_timeout", "gmd_reconnect_timeout"):
        assert row.unit == "s"  # as in SmartSockets
    elif row.name.endswith(("_interval", "_timeout")):
        assert row.unit in ("ms", "datagrams")
    if row.name.endswith(("_size", "_length")) and row.name != "umq_ulb_flight_size":  # Ultra Messaging's name
        assert row.unit == "bytes"


def test_subject_to_change() -> None:
    assert [row.name for row in TABLE if row.subject_to_change] == ["transport_lbtipc_pend_behavior_linger_loop_count"]
    assert not [row.name for row in TABLE if "between releases" in row.meaning]  # the page adds it
    assert options_reference.render().count("between releases") == 1


def test_one_name_in_two_scopes_is_two_options() -> None:
    source, receiver = SourceOptions.transport_lbtru_interface, ReceiverOptions.transport_lbtru_interface
    assert (source.scope, receiver.scope) == ("source", "receiver")
    assert source.meaning != receiver.meaning


def test_attribute_of_the_class_is_the_row() -> None:
    assert SourceOptions.transport.choices == ("lbtipc", "lbtsmx", "lbtru", "lbtrm", "lbttcp")
    assert ContextOptions.thread_cpu.minimum == -1
    assert ReceiverOptions.receive_queue_maximum.unit == "messages"
