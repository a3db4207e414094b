"""The counters that tests of other modules move, and those that no test can force."""

from __future__ import annotations

from typing import Final

NAMED: Final[dict[str, dict[str, str]]] = {
    "uplink": {
        "transport/udp/test_stats_blocks.py::test_time_in_which_the_data_rate_limits": "rate_limited_ns",
        "transport/udp/test_stats_blocks.py::test_counters_and_values_of_the_moment": "unknown_msgs_rcved",
        "transport/udp/test_udp_link.py::test_counts": "frames_sent frames_retransmitted frames_rcved links_refused",
        "../../system/test_tls.py::test_who_is_refused_is_counted_and_told": "socket_tls_failed",
    },
    "reception": {
        "transport/udp/test_udp_link.py::test_counts": "frames_sent frames_retransmitted frames_rcved",
        "../../system/test_tls.py::test_who_is_refused_is_counted_and_told": "socket_tls_failed",
        "reliability/test_reliable_receiver.py::test_reset_keeps_what_is_there": "resets_rcved",
        "reliability/test_reliable_sender.py::test_who_is_too_slow_is_told_and_counted_at_both_ends": (
            "evictions_rcved"
        ),
        "reliability/test_receive_state.py::test_what_left_the_window_is_not_asked_for": "unrecovered_txw",
        "reliability/test_receive_state.py::test_given_up_and_then_there_after_all": "unrecovered_tmo late",
        "reliability/test_receive_state.py::test_a_number_from_nowhere_costs_no_memory": "unrecovered_full",
        "reliability/test_receive_state.py::test_overtaken_is_not_recovered": "out_of_order",
        "reliability/test_receive_state.py::test_ncfs_by_reason": ("ncfs_ignored ncfs_rx_delay ncfs_shed ncfs_unknown"),
    },
    "context": {
        "../../conformance/test_resent_responses.py::test_responses_that_no_link_brings_are_given_up_and_counted": (
            "resps_lost"
        ),
        "../../conformance/test_network_key.py::test_a_context_counts_what_it_drops_of_strangers": (
            "dgrams_dropped_seal"
        ),
        "runtime/receiving/test_history_archives.py::test_what_comes_from_an_archive_is_counted": (
            "archived_rcved archive_faults"
        ),
    },
    "recorder": {
        "archive/test_recorder.py::test_everything_of_a_topic_is_recorded": ("messages bytes next_offset"),
        "archive/test_recorder.py::test_the_next_recorder_goes_on_and_tells_what_was_missed": "missed",
        "archive/test_record_buffer.py::test_events_are_rows_without_bytes": "losses lost",
        "archive/test_recorder_refused.py::test_a_disk_that_refuses_costs_only_what_finds_no_memory": (
            "dropped errors buffered_bytes behind_ns"
        ),
    },
}
"""Tests elsewhere, in tests/unit/ipcbus, by kind of thing, and the counters that they see moving."""

NOT_FORCED: Final = {
    ("uplink", "socket_send_blocked"): "loopback never refuses a datagram for want of room",
    ("reception", "socket_send_blocked"): "loopback never refuses a datagram for want of room",
    ("recorder", "buffer_bytes"): "the size of the buffer, which is there from the beginning",
}
"""Counters that no test can make move on every host, each with its reason."""
