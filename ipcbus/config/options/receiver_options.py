"""The options of a receiver."""

from __future__ import annotations

from ipcbus.config.option_values import Option, OptionValues
from ipcbus.config.options.lbtrm_options import LbtrmReceiver
from ipcbus.config.options.lbtru_options import LbtruReceiver
from ipcbus.config.options.option_limits import MAX_COUNT, MAX_MS
from ipcbus.config.options.resolver_options import ResolverReceiver


class ReceiverOptions(LbtruReceiver, LbtrmReceiver, ResolverReceiver, OptionValues, scope="receiver"):
    """Options of a receiver."""

    delivery_control_maximum_burst_loss = Option(
        default=1024,
        unit="messages",
        minimum=2,
        maximum=MAX_COUNT,
        meaning="A gap longer than this is reported as one burst. Unlike in Ultra Messaging good "
        "messages already buffered are delivered all the same.",
    )
    delivery_control_loss_check_interval = Option(
        default=250,
        unit="ms",
        minimum=0,
        maximum=MAX_MS,
        special_zero=True,
        meaning="How often the receiver looks for loss while nothing arrives; 0: loss is then noticed only when "
        "something else of the topic arrives. Ultra Messaging: 0.",
    )
    ordered_delivery = Option(
        default=1,
        minimum=-1,
        maximum=1,
        meaning="1: messages come by number, fragments put together; -1: as they arrive, fragments put together; "
        "0: as they arrive, fragments too (not on LBT-SMX).",
    )
    otr_message_caching_threshold = Option(
        default=10_000,
        unit="messages",
        minimum=0,
        maximum=MAX_COUNT,
        special_zero=True,
        meaning="Most messages that wait behind a gap of a topic of a session over a ring; when there are more the "
        "oldest gap is given up. 0 is no limit. Over UDP, where what is missing is asked for, only "
        "delivery_control_maximum_total_map_entries limits them. Ultra Messaging asks over another way then.",
    )
    resolution_no_source_notification_threshold = Option(
        default=0,
        unit="queries",
        minimum=0,
        maximum=MAX_COUNT,
        special_zero=True,
        meaning="A receiver whose topic has no source after this many looks at the registries gets a "
        "NO_SOURCE_NOTIFICATION; 0 gives none. Ultra Messaging counts queries over the network.",
    )
    receive_queue_maximum = Option(
        default=4096,
        unit="messages",
        minimum=1,
        maximum=2**24,
        meaning="How many messages a pull receiver holds before it leaves the rest in the ring; with as many, "
        "events that wait are joined. An addition to Ultra Messaging.",
    )
    use_udp_fallback = Option(
        default=True,
        meaning="Whether the receiver takes messages over UDP from a session whose ring it cannot map. An addition to "
        "Ultra Messaging.",
    )
    transport_lbtipc_activity_timeout = Option(
        default=60_000,
        unit="ms",
        minimum=1,
        maximum=MAX_MS,
        meaning="An LBT-IPC session that shows no life for this long has ended for the receiver. "
        "Keep it at least twice the transport_lbtipc_sm_interval of the source.",
    )
    transport_lbtsmx_activity_timeout = Option(
        default=60_000,
        unit="ms",
        minimum=1,
        maximum=MAX_MS,
        meaning="An LBT-SMX session that shows no life for this long has ended for the receiver. "
        "Keep it at least twice the transport_lbtsmx_sm_interval of the source.",
    )
