"""The table of options: one class a scope, one row an option.

Names and units are Ultra Messaging's; where a default or a meaning differs from it, or the option is an
addition, the meaning says so. To add an option, add its row here: checks, errors and config files follow.
"""

from __future__ import annotations

import dataclasses
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from ipcbus.config.values import Option, OptionValues

if TYPE_CHECKING:
    from collections.abc import Mapping

_KIB: Final = 1024
_MIB: Final = 1024 * _KIB
# Limits that keep a mistyped value from leaving the machine words that will hold it.
_MAX_COUNT: Final = 2**31 - 1
_MAX_MS: Final = 2**31 - 1
_MAX_WINDOW: Final = 2**40
_MAX_ID: Final = 2**16 - 1


class ContextOptions(OptionValues, scope="context"):
    """Options of a context."""

    operational_mode = Option(
        default="embedded",
        choices=("embedded", "sequential"),
        meaning="embedded: threads of the context deliver; sequential: the caller's thread does all "
        "the work in process_events.",
    )
    context_name = Option(
        default="",
        maximum=31,
        meaning="Names the context in lists, statistics and events of the other side; it need not be unique.",
    )
    transport_lbtipc_id_low = Option(
        default=20001,
        minimum=1,
        maximum=_MAX_ID,
        meaning="First id of the pool of LBT-IPC sessions that sources without an id of their own share.",
    )
    transport_lbtipc_id_high = Option(
        default=20005,
        minimum=1,
        maximum=_MAX_ID,
        meaning="Last id of the pool of LBT-IPC sessions.",
    )
    transport_lbtsmx_id_low = Option(
        default=30001,
        minimum=1,
        maximum=_MAX_ID,
        meaning="First id of the pool of LBT-SMX sessions that sources without an id of their own share.",
    )
    transport_lbtsmx_id_high = Option(
        default=30005,
        minimum=1,
        maximum=_MAX_ID,
        meaning="Last id of the pool of LBT-SMX sessions.",
    )
    transport_lbtipc_datagram_max_size = Option(
        default=65535,
        unit="bytes",
        minimum=500,
        maximum=65535,
        meaning="Largest LBT-IPC datagram: a batch of messages with their headers is never larger.",
    )
    transport_lbtipc_receiver_thread_behavior = Option(
        default="pend",
        choices=("pend", "busy_wait"),
        meaning="How the LBT-IPC receiving thread waits: pend sleeps until it is woken, busy_wait spins on its core.",
    )
    transport_lbtipc_pend_behavior_linger_loop_count = Option(
        default=1,
        unit="loops",
        minimum=1,
        maximum=_MAX_COUNT,
        subject_to_change=True,
        meaning="How often a pending receiver looks at its rings before it goes to sleep. What one "
        "loop costs may change between releases.",
    )
    transport_lbtsmx_receiver_thread_behavior = Option(
        default="pend",
        choices=("pend", "busy_wait"),
        meaning="How the LBT-SMX receiving thread waits. An addition: Ultra Messaging always spins there.",
    )
    shared_memory_group = Option(
        default="",
        meaning="When set, shared memory objects get mode 0660 and this group, so that its members "
        "may map them; otherwise 0600. An addition to Ultra Messaging.",
    )
    registry_hidden = Option(
        default=False,
        meaning="Makes the registry object of the context 0600 instead of 0644, so that other users "
        "do not see which topics it has. An addition to Ultra Messaging.",
    )
    liveness_check_interval = Option(
        default=250,
        unit="ms",
        minimum=10,
        maximum=60_000,
        meaning="How often the context looks for peers that died, and reclaims what they left. An "
        "addition to Ultra Messaging, which waits for the activity timeout.",
    )
    resolution_scan_interval = Option(
        default=1000,
        unit="ms",
        minimum=10,
        maximum=60_000,
        meaning="How often the context reads all registries of its domain even without a sign of "
        "change. An addition to Ultra Messaging, which resolves topics over the network.",
    )
    delivery_control_maximum_total_map_entries = Option(
        default=200_000,
        unit="entries",
        minimum=0,
        maximum=_MAX_COUNT,
        meaning="Most messages waiting behind gaps, and gaps, of all topics of the context; above it the oldest gap "
        "of the topic that needs one more is given up. 0 is no limit.",
    )
    delivery_control_maximum_reassembly_bytes = Option(
        default=2**31,
        unit="bytes",
        minimum=64 * _KIB,
        maximum=2**40,
        meaning="Memory for messages of which fragments are missing, of all topics of the context; a message for which "
        "there is none is reported lost. An addition to Ultra Messaging.",
    )
    thread_cpu = Option(
        default=-1,
        minimum=-1,
        maximum=1023,
        meaning="CPU that the receiving thread of the context is pinned to; -1 leaves it to the "
        "scheduler. An addition to Ultra Messaging.",
    )
    latency_sampling_interval = Option(
        default=16,
        unit="datagrams",
        minimum=1,
        maximum=_MAX_COUNT,
        meaning="The latency histogram takes one datagram in this many. An addition to Ultra Messaging.",
    )


class SourceOptions(OptionValues, scope="source"):
    """Options of a source; those named transport_lbt* come from the first source of a session."""

    transport = Option(
        default="lbtipc",
        choices=("lbtipc", "lbtsmx"),
        meaning="Transport of the source; LBT-IPC, lbt-ipc and lbtipc are the same. Ultra Messaging: tcp.",
    )
    transport_lbtipc_id = Option(
        default=0,
        minimum=0,
        maximum=_MAX_ID,
        meaning="Id of the LBT-IPC session to use; 0 takes the next of the pool.",
    )
    transport_lbtipc_behavior = Option(
        default="receiver_paced",
        choices=("receiver_paced", "source_paced"),
        meaning="receiver_paced: the source waits for the slowest receiver; source_paced: it never "
        "waits, and a slow receiver loses data, counted. Ultra Messaging: source_paced.",
    )
    transport_lbtipc_transmission_window_size = Option(
        default=4 * _MIB,
        unit="bytes",
        minimum=64 * _KIB,
        maximum=_MAX_WINDOW,
        meaning="Size of the ring of an LBT-IPC session. Ultra Messaging: 25165824; ours fits "
        "several sessions into the 64 MiB of shared memory that a container has.",
    )
    transport_lbtipc_maximum_receivers_per_transport = Option(
        default=20,
        minimum=1,
        maximum=64,
        meaning="How many receiving contexts may join an LBT-IPC session.",
    )
    transport_lbtipc_maximum_topics_per_transport = Option(
        default=1024,
        minimum=1,
        maximum=_MAX_ID,
        meaning="How many topics an LBT-IPC session may carry. An addition to Ultra Messaging.",
    )
    transport_lbtipc_sm_interval = Option(
        default=10_000,
        unit="ms",
        minimum=1,
        maximum=_MAX_MS,
        meaning="How often an idle LBT-IPC session shows that it lives. A counter in shared memory; "
        "in Ultra Messaging a message.",
    )
    transport_lbtsmx_id = Option(
        default=0,
        minimum=0,
        maximum=_MAX_ID,
        meaning="Id of the LBT-SMX session to use; 0 takes the next of the pool.",
    )
    transport_lbtsmx_transmission_window_size = Option(
        default=_MIB,
        unit="bytes",
        minimum=4 * _KIB,
        maximum=_MAX_WINDOW,
        power_of_two=True,
        meaning="Size of the ring of an LBT-SMX session, rounded up to a power of two. Ultra "
        "Messaging: 131072, at least 64.",
    )
    transport_lbtsmx_datagram_max_size = Option(
        default=8192,
        unit="bytes",
        minimum=32,
        maximum=2**30,
        meaning="Largest LBT-SMX datagram; each holds one message and its header.",
    )
    transport_lbtsmx_maximum_receivers_per_transport = Option(
        default=64,
        minimum=1,
        maximum=64,
        meaning="How many receiving contexts may join an LBT-SMX session.",
    )
    transport_lbtsmx_maximum_topics_per_transport = Option(
        default=1024,
        minimum=1,
        maximum=_MAX_ID,
        meaning="How many topics an LBT-SMX session may carry. An addition to Ultra Messaging.",
    )
    transport_lbtsmx_sm_interval = Option(
        default=10_000,
        unit="ms",
        minimum=1,
        maximum=_MAX_MS,
        meaning="How often an idle LBT-SMX session shows that it lives.",
    )
    implicit_batching_minimum_length = Option(
        default=2048,
        unit="bytes",
        minimum=1,
        maximum=2**30,
        meaning="A batch is sent as soon as it holds this much; 1 sends each message at once. Not on LBT-SMX.",
    )
    implicit_batching_interval = Option(
        default=200,
        unit="ms",
        minimum=3,
        maximum=_MAX_MS,
        meaning="A batch is sent at the latest this long after its first message. Not on LBT-SMX.",
    )


class ReceiverOptions(OptionValues, scope="receiver"):
    """Options of a receiver."""

    delivery_control_maximum_burst_loss = Option(
        default=1024,
        unit="messages",
        minimum=2,
        maximum=_MAX_COUNT,
        meaning="A gap longer than this is reported as one burst. Unlike in Ultra Messaging good "
        "messages already buffered are delivered all the same.",
    )
    delivery_control_loss_check_interval = Option(
        default=250,
        unit="ms",
        minimum=0,
        maximum=_MAX_MS,
        meaning="How often the receiver looks for loss while nothing arrives; 0 is off. Ultra Messaging: 0.",
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
        maximum=_MAX_COUNT,
        meaning="Most messages that wait behind a gap of a topic; when there are more the oldest gap is given up. "
        "0 is no limit. Ultra Messaging asks for the missing ones over another way then.",
    )
    receive_queue_maximum = Option(
        default=4096,
        unit="messages",
        minimum=1,
        maximum=2**24,
        meaning="How many messages a pull receiver holds before it leaves the rest in the ring. An "
        "addition to Ultra Messaging.",
    )
    transport_lbtipc_activity_timeout = Option(
        default=60_000,
        unit="ms",
        minimum=1,
        maximum=_MAX_MS,
        meaning="An LBT-IPC session that shows no life for this long has ended for the receiver. "
        "Keep it at least twice the transport_lbtipc_sm_interval of the source.",
    )
    transport_lbtsmx_activity_timeout = Option(
        default=60_000,
        unit="ms",
        minimum=1,
        maximum=_MAX_MS,
        meaning="An LBT-SMX session that shows no life for this long has ended for the receiver. "
        "Keep it at least twice the transport_lbtsmx_sm_interval of the source.",
    )


class EventQueueOptions(OptionValues, scope="event_queue"):
    """Options of an event queue; there are none yet."""


class WildcardReceiverOptions(OptionValues, scope="wildcard_receiver"):
    """Options of a wildcard receiver; there are none yet."""


SCOPES: Final[Mapping[str, type[OptionValues]]] = MappingProxyType(
    {
        options.scope: options
        for options in (
            ContextOptions,
            SourceOptions,
            ReceiverOptions,
            EventQueueOptions,
            WildcardReceiverOptions,
        )
    }
)

TABLE: Final = tuple(row for options in SCOPES.values() for row in options.rows.values())
"""Every row, in the order of this file."""


@dataclasses.dataclass(frozen=True, slots=True)
class Relation:
    """Two options that limit each other: `larger` is at least `factor` times `smaller`."""

    larger: Option[int]
    smaller: Option[int]
    reason: str
    factor: int = 1


RELATIONS: Final = (
    Relation(
        ContextOptions.transport_lbtipc_id_high,
        ContextOptions.transport_lbtipc_id_low,
        "the pool of ids would be empty",
    ),
    Relation(
        ContextOptions.transport_lbtsmx_id_high,
        ContextOptions.transport_lbtsmx_id_low,
        "the pool of ids would be empty",
    ),
    Relation(
        SourceOptions.transport_lbtipc_transmission_window_size,
        ContextOptions.transport_lbtipc_datagram_max_size,
        "the ring has to hold two datagrams of maximum size",
        factor=2,
    ),
    Relation(
        SourceOptions.transport_lbtsmx_transmission_window_size,
        SourceOptions.transport_lbtsmx_datagram_max_size,
        "the ring has to hold two datagrams of maximum size",
        factor=2,
    ),
)
