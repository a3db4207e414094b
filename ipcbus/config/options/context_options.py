"""The options of a context."""

from __future__ import annotations

from ipcbus.config.option_values import Option, OptionValues
from ipcbus.config.options.lbtrm_options import LbtrmContext
from ipcbus.config.options.lbtru_options import LbtruContext
from ipcbus.config.options.option_limits import KIB, MAX_COUNT, MAX_ID, MAX_NAME, MAX_WINDOW, MIB
from ipcbus.config.options.recovery_options import RecoveryContext
from ipcbus.config.options.resolver_options import ResolverContext
from ipcbus.config.options.tcp_options import TcpContext
from ipcbus.config.options.tls_options import TlsContext


class ContextOptions(
    LbtruContext, LbtrmContext, TcpContext, TlsContext, ResolverContext, RecoveryContext, OptionValues, scope="context"
):
    """Options of a context: its threads, its sessions, discovery, and limits for all its topics."""

    operational_mode = Option(
        default="embedded",
        choices=("embedded", "sequential"),
        meaning="embedded: threads of the context receive and deliver messages; sequential: the thread that calls "
        "process_events does.",
    )
    transport_lbtipc_receiver_operational_mode = Option(
        default="embedded",
        choices=("embedded", "sequential"),
        meaning="sequential: although operational_mode is embedded, the context's thread does not read the rings of "
        "LBT-IPC and LBT-SMX; a thread of the application reads them and calls the receivers' callbacks in "
        "process_events. process_events also answers what receivers ask of the sources of the context (late join, "
        "shares, acknowledgements of guaranteed delivery), so a process that only sends has to call it, too. Ultra "
        "Messaging has this for LBT-IPC only (lbm_context_process_lbtipc_messages).",
    )
    context_name = Option(
        default="",
        maximum=MAX_NAME,
        meaning="Name of the context in lists, statistics and events of its peers; it need not be unique.",
    )
    requests_outstanding_maximum = Option(
        default=10_000,
        unit="requests",
        minimum=1,
        maximum=1_000_000,
        meaning="Most requests of the context that wait for responses at a time; one more raises WouldBlock.",
    )
    transport_lbtipc_id_low = Option(
        default=20001,
        minimum=1,
        maximum=MAX_ID,
        meaning="First id of the pool of LBT-IPC sessions, which the sources that set no id share.",
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
        meaning="First id of the pool of LBT-SMX sessions, which the sources that set no id share.",
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
        meaning="Largest LBT-IPC datagram; it limits a batch of messages with their headers.",
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
        meaning="How often a thread that waits with pend checks its rings and sockets before it sleeps.",
    )
    transport_lbtipc_pend_behavior_linger_maximum = Option(
        default=100,
        unit="us",
        minimum=0,
        maximum=10_000,
        special_zero=True,
        meaning="Longest time for which a thread that waits with pend checks its rings and sockets before it sleeps. "
        "It does so only while its last waits were short, and for at most a ninth of the time. 0: it sleeps at once. "
        "An addition to Ultra Messaging.",
    )
    transport_lbtsmx_receiver_thread_behavior = Option(
        default="pend",
        choices=("pend", "busy_wait"),
        meaning="How the LBT-SMX receiving thread waits, as for LBT-IPC. An addition to Ultra Messaging, which always "
        "spins.",
    )
    shared_memory_group = Option(
        default="",
        meaning="System group (name or number) whose members may map the shared memory objects (mode 0660); without a "
        "group, only the user may (mode 0600). An addition to Ultra Messaging.",
    )
    shared_memory_touch_maximum = Option(
        default=4 * MIB,
        unit="bytes",
        minimum=0,
        maximum=MAX_WINDOW,
        special_zero=True,
        meaning="Rings of at most this size have all their pages touched when a source of the context makes them and "
        "when the context joins them, so that no message waits for a page; this takes about 0.3 ms a MiB, up to 1.5 ms "
        "for large rings. In larger rings the first message in each page waits 1 to 4 us; 0: in all rings. Needs Linux "
        "5.14. An addition to Ultra Messaging.",
    )
    registry_hidden = Option(
        default=False,
        meaning="Whether the registry of the context has mode 0600 instead of 0644, so that other users do not see its "
        "topics. An addition to Ultra Messaging.",
    )
    liveness_check_interval = Option(
        default=250,
        unit="ms",
        minimum=10,
        maximum=60_000,
        meaning="How often the context looks for dead peers and removes the shared memory that they left. While all "
        "peers live, the rest of this check runs once a second at most. An addition to Ultra Messaging, which waits "
        "for the activity timeout.",
    )
    reclaim_other_domains = Option(
        default=True,
        meaning="Whether a new context also removes the shared memory that dead contexts of its user left in other "
        "domains, where no other context may do so. It checks 256 contexts at most, for 5 ms at most. It always does "
        "this in its own domain. The environment variable IPCBUS_RECLAIM_OTHER_DOMAINS=0 turns the option off, too. An "
        "addition to Ultra Messaging.",
    )
    acquire_close_timeout = Option(
        default=1000,
        unit="ms",
        minimum=0,
        maximum=3_600_000,
        meaning="How long close() of a source or the context waits for another thread that is inside an acquire block. "
        "After this time the message of the block is not sent, and the block ends with ClosedError. An addition to "
        "Ultra Messaging.",
    )
    resolution_scan_interval = Option(
        default=1000,
        unit="ms",
        minimum=10,
        maximum=60_000,
        meaning="How often the context reads all registries of its domain when no peer has announced a change. An "
        "addition to Ultra Messaging, which resolves topics over the network.",
    )
    delivery_control_maximum_total_map_entries = Option(
        default=200_000,
        unit="entries",
        minimum=0,
        maximum=MAX_COUNT,
        special_zero=True,
        meaning="Most gaps, and messages that wait behind gaps, of all topics of the context together. Above this "
        "limit the context gives up its oldest gap, of whatever topic. 0: no limit.",
    )
    delivery_control_maximum_reassembly_bytes = Option(
        default=2**31,
        unit="bytes",
        minimum=64 * KIB,
        maximum=MAX_WINDOW,
        meaning="Memory for incomplete messages in fragments, of all topics of the context; a message that does not "
        "fit is reported lost. An addition to Ultra Messaging.",
    )
    network_key_file = Option(
        default="",
        meaning="File with the keys that all contexts of the domain share: the context seals its datagrams to the "
        "network with the first key, opens with each, and drops datagrams without a valid seal. A line has the number "
        "of a key and 64 hexadecimal digits. Only its owner may be able to read the file; contexts read it again when "
        "it changes. Empty: no seal. Needs the extra 'network-key'. An addition to Ultra Messaging.",
    )
    network_protection = Option(
        default="encrypt",
        choices=("encrypt", "authenticate"),
        meaning="What a context with network_key_file does with the datagrams that it sends. encrypt: only contexts "
        "with the key can read them. authenticate: any host can read them, and none without the key can change them. "
        "Contexts open both. An addition to Ultra Messaging.",
    )
    network_replay_window = Option(
        default=4096,
        unit="datagrams",
        minimum=64,
        maximum=2**20,
        meaning="How many datagrams a sealed datagram may be behind the latest one of its sender; older datagrams "
        "count as replayed and are dropped. An addition to Ultra Messaging.",
    )
    thread_cpu = Option(
        default=-1,
        minimum=-1,
        maximum=1023,
        meaning="CPU that the receiving thread of the context is pinned to; -1: the scheduler chooses. An addition to "
        "Ultra Messaging.",
    )
    latency_sampling_interval = Option(
        default=16,
        unit="datagrams",
        minimum=1,
        maximum=MAX_COUNT,
        meaning="How many datagrams share one sample of the latency histogram: one message of one of them is timed "
        "and counts for all messages since the sample before. An addition to Ultra Messaging.",
    )
