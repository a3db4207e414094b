"""The options of recovery: late join, off-transport recovery (OTR), and the control channel that both use."""

from __future__ import annotations

from ipcbus.config.option_values import Option
from ipcbus.config.options.option_limits import KIB, MAX_COUNT, MAX_SECONDS, MAX_WINDOW, MIB, interval


class RecoveryContext:
    """The options of recovery for a context."""

    control_channel_size = Option(
        default=256 * KIB,
        unit="bytes",
        minimum=16 * KIB,
        maximum=64 * MIB,
        power_of_two=True,
        meaning="Size of each of the two queues of a control channel in shared memory, over which a receiving context "
        "asks a source of this context for messages that it does not have. A channel is made when a receiver first "
        "needs it. An addition to Ultra Messaging, which asks over TCP.",
    )
    control_channel_queue_maximum = Option(
        default=1 * MIB,
        unit="bytes",
        minimum=64 * KIB,
        maximum=1024 * MIB,
        meaning="Most bytes of messages that wait in this context for room in a control channel, for retransmissions "
        "and for the other messages separately; one message always has room. An addition to Ultra Messaging, whose "
        "response_session_maximum_buffer limits only responses.",
    )
    control_channel_message_maximum = Option(
        default=64 * MIB,
        unit="bytes",
        minimum=128 * KIB,
        maximum=1024 * MIB,
        meaning="Longest message on the control channels of this context, in both directions. respond() refuses a "
        "longer response, and a source answers that it does not have a longer message any more. Give both contexts "
        "the same value, because a context drops and counts a longer message. An addition to Ultra Messaging.",
    )
    retransmit_time_share = Option(
        default=20,
        unit="percent",
        minimum=1,
        maximum=100,
        meaning="Most of its time that the context's thread spends on retransmissions while receivers of its sources "
        "ask for them, so that they do not delay live messages and callbacks by more. There is no limit while the "
        "context has sent and received nothing for 10 ms. An addition to Ultra Messaging.",
    )


class RecoverySource:
    """The options of recovery for a source."""

    late_join = Option(
        default=False,
        meaning="Whether the source keeps the messages that it sent, so that a receiver that is made later gets them "
        "too, and a receiver that lost messages can ask for them.",
    )
    retransmit_retention_size_threshold = Option(
        default=0,
        unit="bytes",
        minimum=0,
        maximum=MAX_WINDOW,
        special_zero=True,
        meaning="The source drops the oldest messages that it keeps above this size, if they are also older than "
        "retransmit_retention_age_threshold. 0: no threshold. With both thresholds 0 it keeps all up to "
        "retransmit_retention_size_limit; Ultra Messaging keeps one message then.",
    )
    retransmit_retention_age_threshold = Option(
        default=0,
        unit="s",
        minimum=0,
        maximum=MAX_SECONDS,
        special_zero=True,
        meaning="The source drops messages that are older than this, if it also keeps more than "
        "retransmit_retention_size_threshold. 0: no threshold.",
    )
    retransmit_retention_size_limit = Option(
        default=24 * MIB,
        unit="bytes",
        minimum=64 * KIB,
        maximum=MAX_WINDOW,
        meaning="Most bytes of messages, with their headers, that the source keeps for its topic; above this limit it "
        "drops the oldest messages, whatever the thresholds.",
    )
    retransmit_close_timeout = interval(
        5000,
        "How long close() of a source waits for receivers that are getting messages that the source keeps. 0: "
        "close() does not wait. An addition to Ultra Messaging.",
        minimum=0,
        special_zero=True,
    )


class RecoveryReceiver:
    """The options of recovery for a receiver."""

    use_late_join = Option(
        default=True,
        meaning="Whether the receiver gets what its sources sent before it joined, and still keep (late_join of the "
        "source).",
    )
    history = Option(
        default=-1,
        unit="messages",
        minimum=-1,
        maximum=MAX_COUNT,
        none_is_default=True,
        meaning="At most this many of the messages that a source sent before the receiver joined; a message in "
        "fragments counts once. -1: all that the source keeps, as retransmit_request_maximum limits it; 0: none. "
        "Python also takes None for -1. An addition to Ultra Messaging.",
    )
    history_archive = Option(
        default="",
        maximum=4096,
        meaning="Directory of an archive that a recorder (ipcbus record) writes or has written. The receiver takes "
        "from there what its sources sent before it joined and do not keep any more, and, on rings, what sources "
        "without late_join sent. For a recorder that still writes, but hangs or is stopped, it waits for "
        "retransmit_request_message_timeout at most. Empty: no archive. An addition to Ultra Messaging.",
    )
    retransmit_initial_sequence_number_request = Option(
        default=True,
        meaning="Whether the receiver asks a source that keeps messages for its sequence numbers at once. If not, it "
        "asks when the first message or topic sequence number info (TSNI) has come.",
    )
    retransmit_request_interval = interval(
        500,
        "How long the receiver waits for the answer to a request of late join before it asks again.",
    )
    retransmit_request_message_timeout = interval(
        10_000,
        "How long after the first request the receiver gives up a message of late join; it is reported lost.",
    )
    retransmit_request_maximum = Option(
        default=0,
        unit="messages",
        minimum=0,
        maximum=MAX_COUNT,
        special_zero=True,
        meaning="Most messages that the receiver asks for when it joins, counted back from the latest one. 0: all.",
    )
    retransmit_request_outstanding_maximum = Option(
        default=10,
        unit="requests",
        minimum=1,
        maximum=MAX_COUNT,
        meaning="Most requests of late join for one topic that are unanswered. A request may ask for many messages; "
        "Ultra Messaging counts messages.",
    )
    retransmit_message_caching_proximity = Option(
        default=5000,
        unit="messages",
        minimum=1,
        maximum=MAX_COUNT,
        meaning="While more messages than this are missing before the live messages, the receiver does not keep live "
        "messages but asks for them later.",
    )
    late_join_info_request_interval = interval(
        1000,
        "How long the receiver waits before it asks a source again which messages the source keeps.",
    )
    late_join_info_request_maximum = Option(
        default=60,
        unit="requests",
        minimum=1,
        maximum=MAX_COUNT,
        meaning="How often the receiver asks a source which messages it keeps, before it begins with live messages.",
    )
    use_otr = Option(
        default=2,
        minimum=0,
        maximum=2,
        meaning="Off-transport recovery (OTR): whether the receiver asks a source for messages that the transport "
        "lost. 0: never; 1 and 2: from sources that keep messages (late_join). Ultra Messaging: 2 means persistent "
        "sources.",
    )
    otr_request_initial_delay = interval(
        2000,
        "How long the receiver waits after it found a loss before it asks the source for the messages. A ring "
        "brings no lost message again, so there the receiver asks at once.",
        minimum=0,
    )
    otr_request_minimum_interval = interval(
        1000,
        "How long the receiver waits for the answer to a request of OTR before it asks again; each further "
        "wait is twice as long.",
    )
    otr_request_maximum_interval = interval(
        10_000,
        "The longest wait between two requests of OTR for one message.",
    )
    otr_request_message_timeout = interval(
        60_000,
        "How long after the first request of OTR the receiver gives up a message; it is reported lost.",
    )
    otr_request_outstanding_maximum = Option(
        default=200,
        unit="requests",
        minimum=1,
        maximum=MAX_COUNT,
        meaning="Most requests of OTR for one topic that are unanswered. A request may ask for many messages; Ultra "
        "Messaging counts messages.",
    )
    otr_request_log_alert_cooldown = Option(
        default=300,
        unit="s",
        minimum=0,
        maximum=MAX_SECONDS,
        meaning="Shortest time between two log lines that say that a receiver recovers a topic by OTR; further "
        "recoveries in between are only counted.",
    )
