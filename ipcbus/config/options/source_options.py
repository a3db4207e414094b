"""The options of a source."""

from __future__ import annotations

from ipcbus.config.option_values import Option, OptionValues
from ipcbus.config.options.gmd_options import GmdSource
from ipcbus.config.options.lbtrm_options import LbtrmSource
from ipcbus.config.options.lbtru_options import LbtruSource
from ipcbus.config.options.option_limits import KIB, MAX_ID, MAX_SECONDS, MAX_WINDOW, MIB, interval
from ipcbus.config.options.recovery_options import RecoverySource
from ipcbus.config.options.resolver_options import ResolverSource
from ipcbus.config.options.share_options import ShareSource
from ipcbus.config.options.tcp_options import TcpSource

_SYNONYMS = (("tcp", "lbttcp"),)
_GUESSES = (
    ("udp", "lbtru, or lbtrm for multicast"),
    ("unicast", "lbtru"),
    ("multicast", "lbtrm"),
    ("shm", "lbtipc"),
)


class SourceOptions(
    LbtruSource,
    LbtrmSource,
    TcpSource,
    ResolverSource,
    RecoverySource,
    GmdSource,
    ShareSource,
    OptionValues,
    scope="source",
):
    """Options of a source; a session keeps the options of transport and batches of its first source.

    A source with other values goes to another session, and is refused if it names the id of this one.
    """

    transport = Option(
        default="lbtipc",
        choices=("lbtipc", "lbtsmx", "lbtru", "lbtrm", "lbttcp"),
        synonyms=_SYNONYMS,
        guesses=_GUESSES,
        meaning="Transport of the source; LBT-IPC, lbt-ipc and lbtipc name one transport, and so do lbttcp "
        "and tcp. Ultra Messaging: tcp.",
    )
    udp_fallback = Option(
        default="lbtru",
        choices=("none", "lbtru", "lbtrm", "lbttcp"),
        synonyms=_SYNONYMS,
        guesses=_GUESSES,
        meaning="Transport over UDP or TCP for receivers that cannot map the ring of an LBT-IPC or LBT-SMX session: "
        "they get its messages over it, and receiver.sessions shows why. An LBT-SMX session whose datagrams may be "
        "longer than 65,400 bytes has none. An addition to Ultra Messaging.",
    )
    message_max = Option(
        default=0,
        unit="bytes",
        minimum=0,
        maximum=2**30 - KIB,
        special_zero=True,
        meaning="Longest message of the source, with its headers. The source then uses LBT-SMX, where a message of "
        "this length lies in one piece in shared memory. The ring holds messages_in_flight of them, rounded up to a "
        "power of two. Sources whose options agree share a session, which leaves the pool of ids to others. With "
        "messages above about 65,000 bytes, receivers that cannot map the memory get nothing. 0: the other options "
        "decide. An addition to Ultra Messaging.",
    )
    messages_in_flight = Option(
        default=4,
        unit="messages",
        minimum=2,
        maximum=1024,
        meaning="How many messages of message_max the ring holds at least: the one that the source writes, those that "
        "wait, and the one that the slowest receiver looks at. An addition to Ultra Messaging.",
    )
    transport_lbtipc_id = Option(
        default=0,
        minimum=0,
        maximum=MAX_ID,
        meaning="Id of the source's LBT-IPC session; 0: the next one of the pool.",
    )
    transport_lbtipc_behavior = Option(
        default="receiver_paced",
        choices=("receiver_paced", "source_paced"),
        meaning="receiver_paced: the source waits for the slowest receiver; source_paced: the source never waits, and "
        "a slow receiver loses messages, which are counted. Ultra Messaging: source_paced.",
    )
    transport_lbtipc_record_checksum = Option(
        default=False,
        meaning="Whether each datagram in the ring of an LBT-IPC session has a checksum (CRC-32C). Receivers skip a "
        "datagram whose checksum is wrong: it counts as malformed, and its messages are reported lost. For machines "
        "whose memory or programs are not trusted. Source and receiver need about 9 ns each for a message of 64 "
        "bytes, and 0.15 ns a byte for longer messages, on a processor with an instruction for it. An addition to "
        "Ultra Messaging.",
    )
    transport_lbtipc_transmission_window_size = Option(
        default=4 * MIB,
        unit="bytes",
        minimum=64 * KIB,
        maximum=MAX_WINDOW,
        meaning="Size of the ring of an LBT-IPC session. Ultra Messaging: 25165824; with the smaller default several "
        "sessions fit into the 64 MiB of shared memory of a container.",
    )
    transport_lbtipc_maximum_receivers_per_transport = Option(
        default=20,
        minimum=1,
        maximum=64,
        meaning="Most contexts that may receive an LBT-IPC session.",
    )
    transport_lbtipc_maximum_topics_per_transport = Option(
        default=1024,
        minimum=1,
        maximum=MAX_ID,
        meaning="Most topics of an LBT-IPC session. An addition to Ultra Messaging.",
    )
    transport_lbtipc_sm_interval = interval(
        10_000,
        "How often an idle LBT-IPC session gives a sign of life: it raises a counter in shared memory. Ultra "
        "Messaging sends a session message.",
    )
    transport_lbtsmx_id = Option(
        default=0,
        minimum=0,
        maximum=MAX_ID,
        meaning="Id of the source's LBT-SMX session; 0: the next one of the pool.",
    )
    transport_lbtsmx_record_checksum = Option(
        default=False,
        meaning="Whether each datagram in the ring of an LBT-SMX session has a checksum (CRC-32C). Receivers skip a "
        "datagram whose checksum is wrong: it counts as malformed, and its messages are reported lost. For machines "
        "whose memory or programs are not trusted. Sending a message of 64 bytes takes about 22 ns longer and "
        "receiving it 14 ns, and 0.15 ns a byte for longer messages, on a processor with an instruction for it. An "
        "addition to Ultra Messaging.",
    )
    transport_lbtsmx_transmission_window_size = Option(
        default=MIB,
        unit="bytes",
        minimum=4 * KIB,
        maximum=MAX_WINDOW,
        power_of_two=True,
        meaning="Size of the ring of an LBT-SMX session, rounded up to a power of two. Ultra Messaging: 131072, and 64 "
        "or more is valid.",
    )
    transport_lbtsmx_datagram_max_size = Option(
        default=8192,
        unit="bytes",
        minimum=32,
        maximum=2**30,
        meaning="Largest LBT-SMX datagram, which is one message with its header.",
    )
    transport_lbtsmx_maximum_receivers_per_transport = Option(
        default=64,
        minimum=1,
        maximum=64,
        meaning="Most contexts that may receive an LBT-SMX session.",
    )
    transport_lbtsmx_maximum_topics_per_transport = Option(
        default=1024,
        minimum=1,
        maximum=MAX_ID,
        meaning="Most topics of an LBT-SMX session. An addition to Ultra Messaging.",
    )
    transport_lbtsmx_sm_interval = interval(
        10_000,
        "How often an idle LBT-SMX session gives a sign of life: it raises a counter in shared memory.",
    )
    transport_topic_sequence_number_info_interval = interval(
        5000,
        "How often an idle source repeats its last sequence number (TSNI), so that receivers notice when the "
        "last messages are missing; 0: off. LBT-SMX has this, too, unlike in Ultra Messaging.",
        minimum=0,
        special_zero=True,
    )
    transport_topic_sequence_number_info_active_threshold = Option(
        default=60,
        unit="s",
        minimum=0,
        maximum=MAX_SECONDS,
        special_zero=True,
        meaning="How long after its last message a source repeats its last sequence number (TSNI); 0: without end.",
    )
    transport_source_side_filtering_behavior = Option(
        default="none",
        choices=("none", "inclusion"),
        meaning="inclusion: a context that receives an LBT-RU or LBT-TCP session, or a twin of a ring over one of "
        "them, gets only datagrams with a topic that it receives, and the source does not send a datagram that no "
        "context wants. none: each context gets every datagram. LBT-RM sends all of them to its group. Ultra "
        "Messaging has ulb, too, and filters LBT-IPC.",
    )
    resolver_no_receiver_linger_timeout = interval(
        1000,
        "How long close() of a source keeps the open batch for receivers of the topic in its domain (wildcard "
        "receivers included) that have not joined yet; counted from the time at which both source and receiver "
        "existed. 0: close() does not wait. It never waits inside a callback or while an exception is raised. An "
        "addition to Ultra Messaging.",
        minimum=0,
        special_zero=True,
    )
    slow_receiver_behavior = Option(
        default="block",
        choices=("block", "evict"),
        meaning="What a receiver-paced session does about a slow receiver. block: the source waits for it without "
        "limit; evict: the session evicts a receiver that keeps the source waiting for slow_receiver_timeout; the "
        "receiver loses messages, which are counted, and joins again by itself (over UDP it stays). Receivers of a "
        "session that evicts copy each datagram before they read it. An addition to Ultra Messaging.",
    )
    slow_receiver_timeout = interval(
        5000,
        "How long a receiver may keep a source waiting before it is evicted (slow_receiver_behavior evict). An "
        "addition to Ultra Messaging.",
        minimum=10,
    )
    implicit_batching_minimum_length = Option(
        default=2048,
        unit="bytes",
        minimum=1,
        maximum=2**30,
        meaning="The source sends a batch as soon as it has this size; 1: it sends each message at once. A message in "
        "fragments counts with its whole length. Not on LBT-SMX. On LBT-TCP, and on LBT-RU and LBT-RM over loopback, "
        "with 2048 or more, batches that follow each other within 200 us are filled up to seven eighths of a datagram, "
        "or to 16 KiB, after the first few. One that has this size waits for that for 10 ms at most, if the context is "
        "driven. In a long burst, batches that follow each other within 50 us are sent together, 64 KiB in one go, "
        "within the same time; a message that fills a batch alone, or takes several, is sent at once.",
    )
    implicit_batching_interval = interval(
        200,
        "The source sends a batch at the latest this time after its first message. Not on LBT-SMX.",
        minimum=3,
    )
    explicit_batching_interval = interval(
        1000,
        "How long an explicit batch (start_batch) may hold back its messages and those of the other topics of "
        "its session. After this time the session publishes them before the end of the batch, counts this "
        "(batches_timed_out) and logs one warning. 0: no limit. Not on LBT-SMX. An addition to Ultra Messaging.",
        minimum=0,
        special_zero=True,
    )
