"""The options of a source."""

from __future__ import annotations

from ipcbus.config.option_values import Option, OptionValues
from ipcbus.config.options.lbtrm_options import LbtrmSource
from ipcbus.config.options.lbtru_options import LbtruSource
from ipcbus.config.options.option_limits import KIB, MAX_ID, MAX_MS, MAX_SECONDS, MAX_WINDOW, MIB
from ipcbus.config.options.resolver_options import ResolverSource


class SourceOptions(LbtruSource, LbtrmSource, ResolverSource, OptionValues, scope="source"):
    """Options of a source; those named transport_lbt* come from the first source of a session."""

    transport = Option(
        default="lbtipc",
        choices=("lbtipc", "lbtsmx", "lbtru", "lbtrm"),
        meaning="Transport of the source; LBT-IPC, lbt-ipc and lbtipc are the same. Ultra Messaging: tcp.",
    )
    udp_fallback = Option(
        default="lbtru",
        choices=("none", "lbtru", "lbtrm"),
        meaning="Transport over UDP for receivers that cannot map the ring of an LBT-IPC or LBT-SMX session: they get "
        "the same messages by it, and are told why. An addition to Ultra Messaging.",
    )
    transport_lbtipc_id = Option(
        default=0,
        minimum=0,
        maximum=MAX_ID,
        meaning="Id of the LBT-IPC session to use; 0 takes the next of the pool.",
    )
    transport_lbtipc_behavior = Option(
        default="receiver_paced",
        choices=("receiver_paced", "source_paced"),
        meaning="receiver_paced: the source waits for the slowest receiver; source_paced: it never "
        "waits, and a slow receiver loses data, counted. Ultra Messaging: source_paced.",
    )
    transport_lbtipc_record_checksum = Option(
        default=False,
        meaning="Each datagram in the ring of an LBT-IPC session bears a checksum (CRC-32C), and receivers skip a "
        "datagram whose checksum is wrong: it counts as malformed, and its messages are reported lost. "
        "For machines whose memory or programs are not trusted. It takes about 9 ns a message of 64 bytes "
        "on each side, and 0.15 ns a byte of longer ones, on a processor with an instruction for it. An "
        "addition to Ultra Messaging.",
    )
    transport_lbtipc_transmission_window_size = Option(
        default=4 * MIB,
        unit="bytes",
        minimum=64 * KIB,
        maximum=MAX_WINDOW,
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
        maximum=MAX_ID,
        meaning="How many topics an LBT-IPC session may carry. An addition to Ultra Messaging.",
    )
    transport_lbtipc_sm_interval = Option(
        default=10_000,
        unit="ms",
        minimum=1,
        maximum=MAX_MS,
        meaning="How often an idle LBT-IPC session shows that it lives. A counter in shared memory; "
        "in Ultra Messaging a message.",
    )
    transport_lbtsmx_id = Option(
        default=0,
        minimum=0,
        maximum=MAX_ID,
        meaning="Id of the LBT-SMX session to use; 0 takes the next of the pool.",
    )
    transport_lbtsmx_record_checksum = Option(
        default=False,
        meaning="Each datagram in the ring of an LBT-SMX session bears a checksum (CRC-32C), and receivers skip a "
        "datagram whose checksum is wrong: it counts as malformed, and its messages are reported lost. "
        "For machines whose memory or programs are not trusted. It takes about 22 ns for sending and 14 "
        "ns for receiving a message of 64 bytes, and 0.15 ns a byte of longer ones, on a processor with "
        "an instruction for it. An addition to Ultra Messaging.",
    )
    transport_lbtsmx_transmission_window_size = Option(
        default=MIB,
        unit="bytes",
        minimum=4 * KIB,
        maximum=MAX_WINDOW,
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
        maximum=MAX_ID,
        meaning="How many topics an LBT-SMX session may carry. An addition to Ultra Messaging.",
    )
    transport_lbtsmx_sm_interval = Option(
        default=10_000,
        unit="ms",
        minimum=1,
        maximum=MAX_MS,
        meaning="How often an idle LBT-SMX session shows that it lives.",
    )
    transport_topic_sequence_number_info_interval = Option(
        default=5000,
        unit="ms",
        minimum=0,
        maximum=MAX_MS,
        special_zero=True,
        meaning="How often a source that sends nothing tells its last sequence number (TSNI), from which a receiver "
        "sees that the last messages are missing; 0 is off. On LBT-SMX too, unlike in Ultra Messaging.",
    )
    transport_topic_sequence_number_info_active_threshold = Option(
        default=60,
        unit="s",
        minimum=0,
        maximum=MAX_SECONDS,
        special_zero=True,
        meaning="How long after its last message a source goes on telling its last sequence number; 0 is for ever.",
    )
    resolver_no_receiver_linger_timeout = Option(
        default=1000,
        unit="ms",
        minimum=0,
        maximum=MAX_MS,
        special_zero=True,
        meaning="How long a source that is closed keeps its open batch for receivers of its topic, exact or wildcard, "
        "that its domain shows and that have not joined; counted from when both were there. 0 does not wait. A source "
        "never waits inside a callback or while an exception is on its way. An addition to Ultra Messaging.",
    )
    slow_receiver_behavior = Option(
        default="block",
        choices=("block", "evict"),
        meaning="Of receiver-paced sessions. block: a receiver holds its source up for as long as it likes; evict: one "
        "that keeps it waiting for slow_receiver_timeout is cut off, loses messages, counted, and may join again. "
        "Receivers of such a session copy each datagram before they read it. An addition to Ultra Messaging.",
    )
    slow_receiver_timeout = Option(
        default=5000,
        unit="ms",
        minimum=10,
        maximum=MAX_MS,
        meaning="How long a receiver may keep a waiting source waiting where slow_receiver_behavior is evict. An "
        "addition to Ultra Messaging.",
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
        maximum=MAX_MS,
        meaning="A batch is sent at the latest this long after its first message. Not on LBT-SMX.",
    )
    explicit_batching_interval = Option(
        default=1000,
        unit="ms",
        minimum=0,
        maximum=MAX_MS,
        special_zero=True,
        meaning="How long an explicit batch (start_batch) may keep back its messages, and those of all topics of its "
        "session; after that they are published before its end and counted (batches_timed_out), which the session says "
        "once in the log. 0 is no limit. Not on LBT-SMX. An addition to Ultra Messaging.",
    )
