"""The table of counters: one row each, with where it stands in shared memory.

Names are Ultra Messaging's where it has the counter (`msgs` are datagrams there, `lbm_msgs` are messages). All count
up from the beginning of what they belong to; the unit says where one is a value of the moment instead. To add a
counter, add the word to the layout and its row here: snapshots, `ipcbus list` and JSON follow.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ipcbus.stats.udp_counters import RECEPTION_ROWS, RESOLUTION_ROWS, UPLINK_ROWS
from ipcbus.wire import wire_layout as wire
from ringbuf import layout

if TYPE_CHECKING:
    from collections.abc import Mapping

CONTEXT: Final = "context"
SESSION: Final = "session"
SOURCE: Final = "source"
SLOT: Final = "slot"
RECEIVER: Final = "receiver"
UPLINK: Final = "uplink"
RECEPTION: Final = "reception"
RECORDER: Final = "recorder"

STRUCT_OF: Final = {
    CONTEXT: "RegistryHeader",
    SESSION: "RingHeader",
    SOURCE: "TopicLine",
    SLOT: "Slot",
    UPLINK: "UplinkBoard",
    RECEPTION: "ReceptionBoard",
    RECEIVER: "RegistryEntry",
    RECORDER: "RecorderEntry",
}
"""The structure of the layout in which the counters of each kind of thing stand."""


@dataclass(frozen=True, slots=True)
class Counter:
    """One counter.

    Attributes:
        of: what it belongs to: `context`, `session`, `source` (a topic on a session), `slot` (a receiving context on a
            session), `uplink` (a session's way over UDP), `reception` (a session that a context receives over UDP),
            `receiver`, or `recorder`.
        name: its name in snapshots.
        unit: what it counts.
        meaning: one sentence.
        field: its field in the structure `STRUCT_OF[of]`; empty when it is computed from several.
        ultra: what Ultra Messaging calls it, after the statistics in which it has it; empty where it has none.
    """

    of: str
    name: str
    unit: str
    meaning: str
    field: str
    ultra: str = ""

    @property
    def grows(self) -> bool:
        """Whether it counts up, so that it has a rate; else it is a value of the moment."""
        return not self.unit.endswith(", now") and self.name not in _NO_RATE


_NO_RATE: Final = ("latency_max", "batch_wait_max", "sequence_next")
"""Grow, but how fast says nothing that another counter does not say better."""


def _row(of: str, name: str, unit: str, meaning: str, field: str | None = None, ultra: str = "") -> Counter:
    return Counter(of, name, unit, meaning, name if field is None else field, ultra)


_ULTRA_SOURCE: Final = "source transport: "
_ULTRA_RECEIVER: Final = "receiver transport: "
_ULTRA_CONTEXT: Final = "context: "


COUNTERS: Final = (
    *(Counter(CONTEXT, name, unit, meaning, name, ultra) for name, unit, meaning, ultra in RESOLUTION_ROWS),
    _row(SESSION, "msgs_sent", "datagrams", "Datagrams published.", ultra=_ULTRA_SOURCE + "msgs_sent"),
    _row(
        SESSION, "bytes_sent", "bytes", "Bytes of these datagrams with all headers.", ultra=_ULTRA_SOURCE + "bytes_sent"
    ),
    _row(SESSION, "lbm_msgs_sent", "messages", "Messages in these datagrams; one in fragments counts with its last."),
    _row(SESSION, "fragments_sent", "fragments", "Fragments of messages that are longer than a datagram."),
    _row(
        SESSION,
        "num_clients",
        "contexts, now",
        "Receiving contexts that are joined.",
        "",
        _ULTRA_SOURCE + "num_clients",
    ),
    _row(
        SESSION,
        "send_blocked",
        "sends",
        "Sends that had to wait because the ring was full.",
        ultra=_ULTRA_CONTEXT + "send_blocked",
    ),
    _row(
        SESSION,
        "send_would_block",
        "sends",
        "Sends that were refused because the ring was full.",
        ultra=_ULTRA_CONTEXT + "send_would_block",
    ),
    _row(SESSION, "blocked_ns", "ns", "Time that sends have waited for room."),
    _row(
        SESSION,
        "batch_wait_ns",
        "ns",
        "Time that messages have waited for others in open datagrams, in total; by lbm_msgs_sent, the mean.",
    ),
    _row(SESSION, "batch_wait_max", "ns", "The longest time that a message has waited so."),
    _row(SESSION, "wakes_sent", "wakes", "Sleeping receivers that the source has woken."),
    _row(SESSION, "slots_reclaimed", "slots", "Slots taken back from receivers that died."),
    _row(
        SESSION,
        "receivers_evicted",
        "receivers",
        "Receivers evicted because they kept the source waiting for too long.",
    ),
    _row(
        SESSION,
        "batches_timed_out",
        "datagrams",
        "Datagrams of explicit batches that were published before their end, after explicit_batching_interval.",
    ),
    _row(SESSION, "position_errors", "looks", "Impossible positions found in slots, and ignored."),
    _row(SESSION, "activity", "signs", "Signs of life of an idle session, in place of session messages."),
    _row(
        SOURCE,
        "lbm_msgs_sent",
        "messages",
        "Messages of the topic that are published; one in fragments counts with its last.",
        "",
    ),
    _row(
        SOURCE,
        "sequence_next",
        "number",
        "The next topic sequence number, of which each fragment has one; the open batch is counted already.",
    ),
    _row(SOURCE, "bytes_sent", "bytes", "Bytes of its messages with their headers, those of the open batch included."),
    _row(
        SOURCE,
        "fragments_sent",
        "fragments",
        "Fragments of its messages that are longer than a datagram, those of the open batch included.",
        "",
    ),
    _row(SOURCE, "msgs_fragmented", "messages", "Messages that are longer than a datagram."),
    _row(SOURCE, "send_blocked", "sends", "Sends of the topic that had to wait."),
    _row(SOURCE, "send_would_block", "sends", "Sends of the topic that were refused."),
    _row(SLOT, "msgs_rcved", "datagrams", "Datagrams read.", ultra=_ULTRA_RECEIVER + "msgs_rcved"),
    _row(
        SLOT,
        "bytes_rcved",
        "bytes",
        "Bytes of these datagrams with all headers.",
        ultra=_ULTRA_RECEIVER + "bytes_rcved",
    ),
    _row(
        SLOT,
        "lbm_msgs_rcved",
        "messages",
        "Messages of topics that the context receives; one in fragments counts when it is whole.",
        ultra=_ULTRA_RECEIVER + "lbm_msgs_rcved",
    ),
    _row(
        SLOT,
        "lbm_msgs_no_topic_rcved",
        "messages",
        "Messages of topics that the context does not receive.",
        ultra=_ULTRA_RECEIVER + "lbm_msgs_no_topic_rcved",
    ),
    _row(SLOT, "fragments_rcved", "fragments", "Fragments of these messages, also of those that never became whole."),
    _row(
        SLOT,
        "lost",
        "numbers",
        "Sequence numbers lost for good, as told to the receivers: one a message, or one a fragment.",
        ultra=_ULTRA_CONTEXT + "fragments_unrecoverably_lost",
    ),
    _row(SLOT, "overruns", "laps", "How often a source-paced source has overtaken this reader."),
    _row(
        SLOT,
        "malformed",
        "datagrams",
        "Datagrams, fragments and headers that contradict themselves, and messages whose number cannot be; dropped.",
    ),
    _row(
        SLOT,
        "duplicates",
        "numbers",
        "Messages and fragments that had come, or had been reported lost, before; dropped.",
    ),
    _row(SLOT, "msgs_reassembled", "messages", "Messages put together from fragments."),
    _row(SLOT, "reassembly_refused", "messages", "Fragmented messages for which there was no memory; reported lost."),
    _row(SLOT, "order_map_entries", "entries, now", "Messages and fragments that wait behind a gap, and gaps."),
    _row(SLOT, "reassembly_bytes", "bytes, now", "Memory of messages of which fragments are missing."),
    _row(SLOT, "views_kept", "messages", "Messages of whose `view` an array was kept after the callback, at a cost."),
    _row(SLOT, "latency_samples", "samples", "Samples in the latency histogram."),
    _row(SLOT, "latency_max", "ns", "The longest latency sampled."),
    _row(SLOT, "parks", "times", "How often the reader went to sleep."),
    _row(SLOT, "clock_faults", "samples", "Samples that were received before they were sent."),
    *(Counter(UPLINK, name, unit, meaning, name, ultra) for name, unit, meaning, ultra in UPLINK_ROWS),
    *(Counter(RECEPTION, name, unit, meaning, name, ultra) for name, unit, meaning, ultra in RECEPTION_ROWS),
    _row(
        RECEIVER,
        "lbm_msgs_rcved",
        "messages",
        "Messages delivered to the receiver, from all sessions; with `ordered_delivery` 0 one in fragments counts with "
        "its last.",
    ),
    _row(RECEIVER, "bytes_rcved", "bytes", "Bytes of these messages with their headers."),
    _row(RECEIVER, "fragments_rcved", "fragments", "Fragments of which these messages consisted."),
    _row(
        RECEIVER,
        "lost",
        "numbers",
        "Sequence numbers lost for good, as told to the receiver: one a message, or one a fragment.",
    ),
    _row(
        RECEIVER,
        "events",
        "events",
        "Events that came for it: BOS, EOS, losses; those that wait in a full queue may be joined.",
    ),
    _row(RECEIVER, "callback_errors", "errors", "Exceptions that the callback raised."),
    _row(RECORDER, "messages", "messages", "Messages that it has written into its log."),
    _row(RECORDER, "bytes", "bytes", "Bytes of these messages with their headers."),
    _row(RECORDER, "losses", "events", "Loss events that came to it; noted in its log."),
    _row(RECORDER, "lost", "numbers", "Sequence numbers lost on the way to it, as these events tell."),
    _row(RECORDER, "dropped", "numbers", "Sequence numbers for which it had no room itself; noted in its log."),
    _row(RECORDER, "missed", "numbers", "Sequence numbers sent while no recorder was there, after one; noted too."),
    _row(RECORDER, "next_offset", "offset, now", "Offset of the next message in its log."),
    _row(RECORDER, "buffered_bytes", "bytes, now", "Bytes that it has received and not written yet."),
    _row(RECORDER, "buffer_bytes", "bytes, now", "Room that it has for these."),
    _row(RECORDER, "behind_ns", "ns, now", "Age of the oldest message that it has received and not written yet.", ""),
    _row(RECORDER, "errors", "errors", "Writes that the system refused."),
)
"""Every counter, in the order in which it is shown."""


@functools.cache
def counters_of(of: str) -> tuple[Counter, ...]:
    """Returns the rows of one kind of thing."""
    return tuple(counter for counter in COUNTERS if counter.of == of)


def bits() -> dict[tuple[str, str], int]:
    """Width in bits of the words of all counters, by kind of thing and name."""
    structures = {**layout.STRUCTS, **wire.STRUCTS}
    return {
        (row.of, row.name): 8 * structures[STRUCT_OF[row.of]][row.field].itemsize if row.field else 64
        for row in COUNTERS
    }


def values(of: str, record: Any, computed: Mapping[str, int] | None = None) -> dict[str, int]:  # noqa: ANN401
    """Returns the counters in a copied structure.

    Args:
        of: kind of thing.
        record: numpy record of the structure, or anything else that is indexed by field names.
        computed: values of the rows that have no field of their own; 0 where missing.
    """
    more = computed or {}
    return {
        counter.name: int(record[counter.field]) if counter.field else more.get(counter.name, 0)
        for counter in counters_of(of)
    }
