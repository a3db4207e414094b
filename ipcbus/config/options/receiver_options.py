"""The options of a receiver."""

from __future__ import annotations

from ipcbus.config.option_values import Option, OptionValues
from ipcbus.config.options.gmd_options import GmdReceiver
from ipcbus.config.options.lbtrm_options import LbtrmReceiver
from ipcbus.config.options.lbtru_options import LbtruReceiver
from ipcbus.config.options.option_limits import MAX_COUNT, interval, queue_bytes
from ipcbus.config.options.recovery_options import RecoveryReceiver
from ipcbus.config.options.resolver_options import ResolverReceiver
from ipcbus.config.options.share_options import ShareReceiver
from ipcbus.config.options.tcp_options import TcpReceiver


class ReceiverOptions(
    LbtruReceiver,
    LbtrmReceiver,
    TcpReceiver,
    ResolverReceiver,
    RecoveryReceiver,
    GmdReceiver,
    ShareReceiver,
    OptionValues,
    scope="receiver",
):
    """Options of a receiver: order, losses, and the transports that it joins."""

    delivery_control_maximum_burst_loss = Option(
        default=1024,
        unit="messages",
        minimum=2,
        maximum=MAX_COUNT,
        meaning="A gap that is longer than this is reported as one burst. Messages that wait behind the gap are still "
        "delivered, unlike in Ultra Messaging.",
    )
    delivery_control_loss_check_interval = interval(
        250,
        "How often the receiver checks for losses while no message arrives; 0: it notices a loss only when a "
        "later message of the topic arrives. Ultra Messaging: 0.",
        minimum=0,
        special_zero=True,
    )
    ordered_delivery = Option(
        default=1,
        minimum=-1,
        maximum=1,
        meaning="1: the receiver gets whole messages in the order of their numbers; -1: whole messages as they arrive; "
        "0: messages and single fragments as they arrive (not on LBT-SMX).",
    )
    otr_message_caching_threshold = Option(
        default=10_000,
        unit="messages",
        minimum=0,
        maximum=MAX_COUNT,
        special_zero=True,
        meaning="Most messages of a topic that wait behind gaps. Above this limit a receiver asks for the missing "
        "messages at once (OTR), or gives up the oldest gap in a session over a ring whose source keeps no messages. "
        "0: no limit. delivery_control_maximum_total_map_entries limits them too.",
    )
    resolution_no_source_notification_threshold = Option(
        default=0,
        unit="queries",
        minimum=0,
        maximum=MAX_COUNT,
        special_zero=True,
        meaning="A receiver whose topic has no source after this many searches of the registries gets a "
        "NO_SOURCE_NOTIFICATION; 0: off. Ultra Messaging counts queries over the network.",
    )
    receive_queue_maximum = Option(
        default=4096,
        unit="messages",
        minimum=1,
        maximum=2**24,
        meaning="Most messages that a pull receiver buffers; it leaves further messages in the ring, and merges events "
        "that wait above this limit. Messages that waited for missing ones, or for the receiver's own history, are "
        "added together, also above this limit: at most otr_message_caching_threshold of one topic, or where that does "
        "not limit them delivery_control_maximum_total_map_entries. An addition to Ultra Messaging.",
    )
    receive_queue_bytes_maximum = queue_bytes(
        "A pull receiver that buffers messages of this many bytes, headers included, leaves further ones in "
        "the ring; an empty one takes any message. So a receiver that is slower than its source does not fill the "
        "memory of the host with long messages: a receiver-paced source waits in the end, and a source-paced one "
        "overtakes. An addition to Ultra Messaging.",
    )
    transport_topic_sequence_number_info_request_interval = interval(
        1000,
        "A receiver that has joined a session over UDP or TCP and has got no message of its topic asks the source "
        "once in this interval for the topic's next number (TSNI), and for how far the session has sent; so the loss "
        "of the first messages shows without a later one. 0: off. On rings nothing is asked: the source shows there "
        "how far each topic is. The first receiver of a session decides.",
        minimum=0,
        special_zero=True,
    )
    transport_topic_sequence_number_info_request_maximum = Option(
        default=60,
        unit="requests",
        minimum=1,
        maximum=MAX_COUNT,
        meaning="Most of these requests for a topic.",
    )
    use_udp_fallback = Option(
        default=True,
        meaning="Whether the receiver receives a session over UDP or TCP, as udp_fallback says, when it cannot map "
        "the ring. An addition to Ultra Messaging.",
    )
    transport_lbtipc_activity_timeout = interval(
        60_000,
        "The receiver treats an LBT-IPC session as ended after this time without a sign of life. Keep it at "
        "least twice the transport_lbtipc_sm_interval of the source.",
    )
    transport_lbtsmx_activity_timeout = interval(
        60_000,
        "The receiver treats an LBT-SMX session as ended after this time without a sign of life. Keep it at "
        "least twice the transport_lbtsmx_sm_interval of the source.",
    )
