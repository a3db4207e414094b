"""Options of Ultra Messaging that have no effect in ipcbus, by scope, so that files of Ultra Messaging can be read."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

_NAMES: Final = {
    "context": """
        broker compatibility_include_pre_um_6_0_behavior compression context_event_function
        datagram_acceleration_functions dbl_lbtrm_acceleration dbl_lbtru_acceleration dbl_mim_acceleration
        dbl_resolver_acceleration default_interface delivery_control_message_batching
        disable_extended_topic_resolution_message_options dynamic_fragmentation_reduction fd_management_type
        file_descriptor_management_behavior immediate_message_receiver_function
        immediate_message_topic_receiver_function mim_activity_timeout mim_address
        mim_delivery_control_activity_check_interval mim_delivery_control_activity_timeout
        mim_delivery_control_loss_check_interval mim_delivery_control_order_tablesz mim_destination_port
        mim_ignore_interval mim_implicit_batching_interval mim_implicit_batching_minimum_length
        mim_incoming_address mim_incoming_destination_port mim_nak_backoff_interval mim_nak_generation_interval
        mim_nak_initial_backoff_interval mim_nak_suppress_interval mim_ordered_delivery mim_outgoing_address
        mim_outgoing_destination_port mim_send_naks mim_sm_maximum_interval mim_sm_minimum_interval
        mim_sqn_window_increment mim_sqn_window_size mim_src_deletion_timeout mim_tgsz
        mim_transmission_window_limit mim_transmission_window_size mim_unrecoverable_loss_function monitor_appid
        monitor_format monitor_format_opts monitor_interval monitor_transport monitor_transport_opts
        multiple_receive_maximum_datagrams network_compatibility_mode onload_acceleration_stack_name
        receive_thread_pool_size receiver_callback_service_time_enabled request_tcp_activity_timeout
        request_tcp_bind_request_port request_tcp_exclusiveaddr request_tcp_interface request_tcp_listen_backlog
        request_tcp_port request_tcp_port_high request_tcp_port_low request_tcp_reuseaddr
        resolver_active_source_interval resolver_active_threshold resolver_cache
        resolver_context_advertisement_interval resolver_context_name_activity_timeout
        resolver_context_name_query_duration resolver_context_name_query_maximum_interval
        resolver_context_name_query_minimum_interval resolver_disable_udp_topic_resolution
        resolver_domain_id_active_propagation_timeout resolver_maximum_advertisements resolver_maximum_queries
        resolver_multicast_incoming_address resolver_multicast_incoming_port resolver_multicast_outgoing_address
        resolver_multicast_outgoing_port resolver_query_interval resolver_receiver_datagram_max_size
        resolver_receiver_map_tablesz resolver_service resolver_service_interest_mode
        resolver_source_datagram_max_size resolver_source_map_tablesz resolver_source_notification_function
        resolver_string_hash_function resolver_string_hash_function_ex resolver_ud_acceleration
        resolver_unicast_address resolver_unicast_change_interval resolver_unicast_check_interval
        resolver_unicast_destination_port resolver_unicast_force_alive resolver_unicast_ignore_unknown_source
        resolver_unicast_port resolver_wildcard_receiver_map_tablesz response_session_maximum_buffer
        response_session_sender_socket_buffer response_tcp_activity_timeout response_tcp_deletion_timeout
        response_tcp_interface response_tcp_nodelay source_cost_evaluation_function source_event_function
        source_includes_topic_index tls_certificate_key_password tls_compression_negotiation_timeout
        transport_datagram_max_size transport_lbtipc_recycle_receive_buffers transport_lbtrdma_datagram_max_size
        transport_lbtrdma_maximum_ports transport_lbtrdma_port_high transport_lbtrdma_port_low
        transport_lbtrdma_receiver_thread_behavior transport_lbtrm_receiver_datagram_max_size
        transport_lbtrm_receiver_timestamp transport_lbtrm_recycle_receive_buffers
        transport_lbtrm_source_datagram_max_size transport_lbtrm_source_timestamp
        transport_lbtru_receiver_datagram_max_size transport_lbtru_recycle_receive_buffers
        transport_lbtru_source_datagram_max_size transport_lbtsmx_message_statistics_enabled
        transport_mapping_function transport_session_multiple_sending_threads
        transport_session_single_receiving_thread ud_acceleration
        ume_ack_batching_interval ume_proactive_keepalive_interval ume_receiver_liveness_interval ume_session_id
        ume_source_liveness_timeout ume_user_receiver_registration_id umq_command_interval
        umq_command_outstanding_maximum umq_flight_size umq_flight_size_behavior
        umq_message_retransmission_interval umq_message_stability_notification umq_msg_total_lifetime
        umq_queue_activity_timeout umq_queue_check_interval umq_queue_query_interval umq_queue_registration_id
        umq_require_queue_authentication umq_retention_intergroup_stability_behavior
        umq_retention_intragroup_stability_behavior umq_session_id
    """,
    "source": """
        implicit_batching_type mem_mgt_callbacks onload_acceleration_stack_name
        resolver_send_initial_advertisement retransmit_message_map_tablesz smart_src_enable_spectrum_channel
        smart_src_max_message_length smart_src_message_property_int_count smart_src_retention_buffer_count
        smart_src_user_buffer_count transport_lbtipc_client_activity_timeout transport_lbtrdma_interface
        transport_lbtrdma_port transport_lbtrdma_transmission_window_size transport_lbtrm_coalesce_threshold
        transport_lbtrm_smart_src_transmission_window_buffer_count transport_lbtrm_tgsz
        transport_lbtru_client_map_size transport_lbtru_coalesce_threshold
        transport_lbtru_smart_src_transmission_window_buffer_count transport_lbtru_use_session_id
        transport_tcp_activity_timeout transport_tcp_coalesce_threshold transport_tcp_exclusiveaddr
        transport_tcp_multiple_receiver_send_order transport_tcp_use_session_id
        ume_activity_timeout ume_confirmed_delivery_notification ume_consensus_sequence_number_behavior
        ume_flight_size ume_flight_size_behavior ume_flight_size_bytes ume_force_reclaim_function ume_late_join
        ume_message_map_tablesz ume_message_stability_lifetime ume_message_stability_notification
        ume_message_stability_timeout ume_primary_store_address ume_primary_store_port ume_proxy_source
        ume_receiver_paced_persistence ume_registration_id ume_registration_interval
        ume_repository_ack_on_reception ume_repository_disk_file_size_limit ume_repository_size_limit
        ume_repository_size_threshold ume_retention_intergroup_stability_behavior
        ume_retention_intragroup_stability_behavior ume_retention_size_limit ume_retention_size_threshold
        ume_retention_unique_confirmations ume_secondary_store_address ume_secondary_store_port ume_session_id
        ume_sri_flush_sri_request_response ume_sri_immediate_sri_request_response ume_sri_inter_sri_interval
        ume_sri_max_number_of_sri_per_update ume_sri_request_response_latency ume_state_lifetime ume_store
        ume_store_activity_timeout ume_store_behavior ume_store_check_interval ume_store_group ume_store_name
        ume_tertiary_store_address ume_tertiary_store_port ume_write_delay umq_flight_size
        umq_flight_size_behavior umq_message_stability_notification umq_msg_total_lifetime umq_queue_name
        umq_queue_participants_only umq_retention_intergroup_stability_behavior
        umq_retention_intragroup_stability_behavior umq_ulb_application_set
        umq_ulb_application_set_assignment_function umq_ulb_application_set_events
        umq_ulb_application_set_load_factor_behavior umq_ulb_application_set_message_lifetime
        umq_ulb_application_set_message_max_reassignments umq_ulb_application_set_message_reassignment_timeout
        umq_ulb_application_set_receiver_activity_timeout umq_ulb_application_set_receiver_keepalive_interval
        umq_ulb_application_set_round_robin_bias umq_ulb_check_interval umq_ulb_events
        umq_ulb_flight_size_behavior umq_ulb_receiver_events umq_ulb_receiver_portion umq_ulb_receiver_priority
        use_extended_reclaim_notifications use_hotlink
    """,
    "receiver": """
        channel_map_tablesz delivery_control_loss_tablesz delivery_control_order_tablesz hf_duplicate_delivery
        hf_optional_messages message_selector monitor_interval null_channel_behavior
        onload_acceleration_stack_name otr_request_duration rcv_sync_cache rcv_sync_cache_timeout
        resolution_number_of_sources_query_threshold retransmit_request_generation_interval
        source_notification_function source_notification_function_ex transport_demux_tablesz
        transport_lbtipc_acknowledgement_interval transport_lbtipc_dro_loss_recovery_timeout
        transport_lbtrm_preactivity_timeout transport_tcp_activity_method
        transport_tcp_dro_loss_recovery_timeout ume_activity_timeout
        ume_allow_confirmed_delivery ume_application_outstanding_maximum ume_consensus_sequence_number_behavior
        ume_explicit_ack_only ume_receiver_paced_persistence ume_recovery_sequence_number_info_function
        ume_registration_extended_function ume_registration_function ume_registration_interval
        ume_retransmit_request_generation_interval ume_retransmit_request_interval
        ume_retransmit_request_maximum ume_retransmit_request_outstanding_maximum ume_session_id
        ume_sri_request_interval ume_sri_request_maximum ume_state_lifetime ume_use_ack_batching
        ume_use_late_join ume_use_store umq_delayed_consumption_report_interval umq_hold_interval
        umq_index_assignment_eligibility_default umq_queue_participation umq_receiver_type_id
        umq_retransmit_request_interval umq_retransmit_request_outstanding_maximum
        umq_ulb_source_activity_timeout umq_ulb_source_check_interval unrecognized_channel_behavior use_hotlink
        use_transport_thread
    """,
    "event_queue": """
        monitor_appid monitor_format monitor_format_opts monitor_interval monitor_transport
        monitor_transport_opts queue_cancellation_callbacks_enabled queue_enqueue_notification
        queue_objects_purged_on_close
    """,
    "wildcard_receiver": """
        hf_receiver monitor_interval pattern_callback receiver_create_callback receiver_delete_callback
        resolver_query_max_interval
    """,
    "xsp": """
        operational_mode zero_transports_function
    """,
    "hfx": """
        delivery_control_loss_check_interval delivery_control_max_delay delivery_control_maximum_burst_loss
        delivery_control_maximum_total_map_entries duplicate_delivery ordered_delivery
    """,
}

WITHOUT_EFFECT: Final[Mapping[str, frozenset[str]]] = MappingProxyType(
    {scope: frozenset(names.split()) for scope, names in _NAMES.items()}
)
"""Names of options by scope; only Ultra Messaging has the scopes xsp and hfx."""
