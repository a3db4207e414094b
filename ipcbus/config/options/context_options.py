"""The options of a context."""

from __future__ import annotations

from ipcbus.config.option_values import Option, OptionValues
from ipcbus.config.options.lbtrm_options import LbtrmContext
from ipcbus.config.options.lbtru_options import LbtruContext
from ipcbus.config.options.option_limits import KIB, MAX_COUNT, MAX_ID, MAX_NAME
from ipcbus.config.options.resolver_options import ResolverContext


class ContextOptions(LbtruContext, LbtrmContext, ResolverContext, OptionValues, scope="context"):
    """Options of a context."""

    operational_mode = Option(
        default="embedded",
        choices=("embedded", "sequential"),
        meaning="embedded: threads of the context deliver; sequential: the caller's thread does all "
        "the work in process_events.",
    )
    transport_lbtipc_receiver_operational_mode = Option(
        default="embedded",
        choices=("embedded", "sequential"),
        meaning="sequential: with operational_mode embedded, the context's thread leaves the rings of LBT-IPC and "
        "LBT-SMX to the application, whose thread reads them and calls receivers back in process_events (in Ultra "
        "Messaging, which has it for LBT-IPC only, lbm_context_process_lbtipc_messages).",
    )
    context_name = Option(
        default="",
        maximum=MAX_NAME,
        meaning="Names the context in lists, statistics and events of the other side; it need not be unique.",
    )
    transport_lbtipc_id_low = Option(
        default=20001,
        minimum=1,
        maximum=MAX_ID,
        meaning="First id of the pool of LBT-IPC sessions that sources without an id of their own share.",
    )
    transport_lbtipc_id_high = Option(
        default=20005,
        minimum=1,
        maximum=MAX_ID,
        meaning="Last id of the pool of LBT-IPC sessions.",
    )
    transport_lbtsmx_id_low = Option(
        default=30001,
        minimum=1,
        maximum=MAX_ID,
        meaning="First id of the pool of LBT-SMX sessions that sources without an id of their own share.",
    )
    transport_lbtsmx_id_high = Option(
        default=30005,
        minimum=1,
        maximum=MAX_ID,
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
        maximum=MAX_COUNT,
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
    reclaim_other_domains = Option(
        default=True,
        meaning="A new context also removes what dead contexts of this user left in other domains, which may have "
        "nobody else to do it: it looks at 256 contexts at most, for 5 ms. In its own domain it always does. The "
        "environment variable IPCBUS_RECLAIM_OTHER_DOMAINS=0 turns it off too. An addition to Ultra Messaging.",
    )
    acquire_close_timeout = Option(
        default=1000,
        unit="ms",
        minimum=0,
        maximum=3_600_000,
        meaning="How long closing a source or the context waits for another thread that is inside an acquire block. "
        "After it the message of that block is not sent, and the block ends with ClosedError. An addition to Ultra "
        "Messaging.",
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
        maximum=MAX_COUNT,
        special_zero=True,
        meaning="Most messages waiting behind gaps, and gaps, of all topics of the context; above it the gap of "
        "the context that opened first is given up, whatever topic it is of. 0 is no limit.",
    )
    delivery_control_maximum_reassembly_bytes = Option(
        default=2**31,
        unit="bytes",
        minimum=64 * KIB,
        maximum=2**40,
        meaning="Memory for messages of which fragments are missing, of all topics of the context; a message for which "
        "there is none is reported lost. An addition to Ultra Messaging.",
    )
    network_key_file = Option(
        default="",
        meaning="File with the key that all contexts of the domain share: datagrams of the network are then sealed "
        "with it, and others are dropped. Only its owner may be able to read it; empty is no seal. An addition to "
        "Ultra Messaging.",
    )
    network_replay_window = Option(
        default=4096,
        unit="datagrams",
        minimum=64,
        maximum=2**20,
        meaning="How much older than the latest one a sealed datagram of the same sender may be; older ones are taken "
        "for replayed and dropped. An addition to Ultra Messaging.",
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
        maximum=MAX_COUNT,
        meaning="The latency histogram times one message of one datagram in this many, and counts it for all since "
        "the one before. An addition to Ultra Messaging.",
    )
