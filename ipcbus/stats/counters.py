"""The table of counters: one row for each counter, with its field in shared memory.

Names are those of Ultra Messaging where it has the counter (`msgs` are datagrams, `lbm_msgs` are messages). A counter
begins at 0 with its object and grows; a unit with "now" marks a current value instead. To add a counter, add its word
to the layout and its row here: snapshots, `ipcbus list` and JSON follow from the row.
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
"""The structure of the layout with the counters of each kind of object."""


@dataclass(frozen=True, slots=True)
class Counter:
    """A row of the table of counters.

    Attributes:
        of: the kind of object: `context`, `session`, `source` (a topic on a session), `slot` (a receiving context on a
            session), `uplink` (a session's sending side over UDP), `reception` (a session that a context receives over
            UDP), `receiver`, or `recorder`.
        name: its name in snapshots.
        unit: what it counts.
        meaning: one sentence.
        field: its field in the structure `STRUCT_OF[of]`; empty for a counter that is computed from several fields.
        ultra: the kind of statistics of Ultra Messaging that has the counter, and its name there; empty if none has it.
    """

    of: str
    name: str
    unit: str
    meaning: str
    field: str
    ultra: str = ""

    @property
    def grows(self) -> bool:
        """Whether the counter has a rate; other counters are current values, or their rates have no use."""
        return not self.unit.endswith(", now") and self.name not in _NO_RATE


_NO_RATE: Final = ("latency_max", "batch_wait_max", "sequence_next")
"""Counters whose rate has no use."""


def _row(of: str, name: str, unit: str, meaning: str, field: str | None = None, ultra: str = "") -> Counter:
    return Counter(of, name, unit, meaning, name if field is None else field, ultra)


_ULTRA_SOURCE: Final = "source transport: "
_ULTRA_RECEIVER: Final = "receiver transport: "
_ULTRA_CONTEXT: Final = "context: "


def _session(where: str, name: str, unit: str, meaning: str) -> Counter:
    return _row(SESSION, name, unit, meaning, ultra=where + name)


def _slot(name: str, unit: str, meaning: str) -> Counter:
    return _row(SLOT, name, unit, meaning, ultra=_ULTRA_RECEIVER + name)


COUNTERS: Final = (
    *(Counter(CONTEXT, name, unit, meaning, name, ultra) for name, unit, meaning, ultra in RESOLUTION_ROWS),
    _row(CONTEXT, "retained_bytes", "bytes, now", "Messages that the sources keep, with their headers."),
    _row(CONTEXT, "retransmissions_sent", "messages", "Kept messages sent again to receivers; each fragment counts."),
    _row(CONTEXT, "retransmission_bytes_sent", "bytes", "Bytes of these messages, with their headers."),
    _row(CONTEXT, "retransmissions_rcved", "messages", "Messages that sources sent again, delivered to receivers."),
    _row(CONTEXT, "recoveries_running", "recoveries, now", "Recoveries of topics that run for receivers."),
    _row(CONTEXT, "retransmissions_missing", "messages, now", "Messages that these recoveries still have to ask for."),
    _row(CONTEXT, "archived_rcved", "messages", "Messages that receivers took from an archive (history_archive)."),
    _row(CONTEXT, "archive_faults", "faults", "How often rows of such an archive could not be read."),
    _row(CONTEXT, "gmd_pending", "messages, now", "Guaranteed messages of the sources that are not acknowledged."),
    _row(CONTEXT, "gmd_oldest_ns", "ns, now", "Age of the oldest of these messages."),
    _row(CONTEXT, "gmd_area_bytes", "bytes, now", "Bytes that these messages take in their GMD areas."),
    _row(CONTEXT, "gmd_acks_rcved", "messages", "Guaranteed messages acknowledged; each receiver counts."),
    _row(CONTEXT, "gmd_failures", "messages", "Guaranteed messages that failed (GMD_FAILURE); each receiver counts."),
    _row(CONTEXT, "reqs_sent", "requests", "Requests sent."),
    _row(CONTEXT, "reqs_pending", "requests, now", "Requests that wait for responses, or for a receiver to join."),
    _row(CONTEXT, "resps_rcved", "responses", "Responses delivered to requests."),
    _row(CONTEXT, "resps_late", "responses", "Responses to requests that had ended; dropped."),
    _row(CONTEXT, "resps_unknown", "responses", "Responses to requests that the context never sent; dropped."),
    _row(CONTEXT, "resps_sent", "responses", "Responses sent."),
    _row(
        CONTEXT,
        "resp_blocked",
        "responses",
        "Responses that had to wait for room on the way to the asking context.",
        ultra=_ULTRA_CONTEXT + "resp_blocked",
    ),
    _row(
        CONTEXT,
        "resp_would_block",
        "responses",
        "Responses refused inside a callback because there was no room.",
        ultra=_ULTRA_CONTEXT + "resp_would_block",
    ),
    _row(
        CONTEXT,
        "resps_lost",
        "responses",
        "Responses that may not have come: their session ended, or was left, before the asking context had taken "
        "them, or 16 links over UDP broke.",
    ),
    _row(SESSION, "msgs_sent", "datagrams", "Datagrams published.", ultra=_ULTRA_SOURCE + "msgs_sent"),
    _session(_ULTRA_SOURCE, "bytes_sent", "bytes", "Bytes of these datagrams with all headers."),
    _row(
        SESSION,
        "lbm_msgs_sent",
        "messages",
        "Messages in these datagrams; a message in fragments counts with its last fragment.",
    ),
    _row(SESSION, "fragments_sent", "fragments", "Fragments of messages that are longer than a datagram."),
    _row(
        SESSION,
        "num_clients",
        "contexts, now",
        "Contexts that receive the session.",
        "",
        _ULTRA_SOURCE + "num_clients",
    ),
    _session(_ULTRA_CONTEXT, "send_blocked", "sends", "Sends that had to wait because the ring was full."),
    _session(_ULTRA_CONTEXT, "send_would_block", "sends", "Sends that were refused because the ring was full."),
    _row(SESSION, "blocked_ns", "ns", "Time that sends waited for room in the ring."),
    _row(
        SESSION,
        "batch_wait_ns",
        "ns",
        "Time that messages waited for other messages in open datagrams; divided by lbm_msgs_sent it is the mean.",
    ),
    _row(SESSION, "batch_wait_max", "ns", "Longest time that a message waited in an open datagram."),
    _row(SESSION, "wakes_sent", "wakes", "Sleeping receivers that the source woke."),
    _row(SESSION, "slots_reclaimed", "slots", "Slots reclaimed from dead receivers."),
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
        "Datagrams of explicit batches that were published after explicit_batching_interval, before the end of the "
        "batch.",
    ),
    _row(SESSION, "position_errors", "reads", "Reads of a slot that found an impossible position and ignored it."),
    _row(SESSION, "activity", "signs", "Signs of life of an idle session; they replace session messages."),
    _row(
        SOURCE,
        "lbm_msgs_sent",
        "messages",
        "Published messages of the topic; a message in fragments counts with its last fragment.",
        "",
    ),
    _row(
        SOURCE,
        "sequence_next",
        "number",
        "Next sequence number of the topic; each fragment has one, and the open batch is included.",
    ),
    _row(SOURCE, "bytes_sent", "bytes", "Bytes of its messages with their headers; the open batch is included."),
    _row(
        SOURCE,
        "fragments_sent",
        "fragments",
        "Fragments of its messages that are longer than a datagram; the open batch is included.",
        "",
    ),
    _row(SOURCE, "msgs_fragmented", "messages", "Messages that are longer than a datagram."),
    _row(SOURCE, "send_blocked", "sends", "Sends of the topic that had to wait."),
    _row(SOURCE, "send_would_block", "sends", "Sends of the topic that were refused."),
    _slot("msgs_rcved", "datagrams", "Datagrams read."),
    _slot("bytes_rcved", "bytes", "Bytes of these datagrams with all headers."),
    _slot(
        "lbm_msgs_rcved",
        "messages",
        "Messages of topics that the context receives; a message in fragments counts when it is complete.",
    ),
    _slot("lbm_msgs_no_topic_rcved", "messages", "Messages of topics that the context does not receive."),
    _slot("lbm_reqs_rcved", "messages", "Requests among these messages."),
    _row(SLOT, "fragments_rcved", "fragments", "Fragments of messages, those of incomplete messages included."),
    _row(
        SLOT,
        "lost",
        "numbers",
        "Sequence numbers reported lost to the receivers: one for each message, or one for each fragment.",
        ultra=_ULTRA_CONTEXT + "fragments_unrecoverably_lost",
    ),
    _row(SLOT, "overruns", "laps", "How often a source-paced source overtook this reader."),
    _row(
        SLOT,
        "malformed",
        "datagrams",
        "Damaged datagrams, fragments and headers, and messages with impossible numbers; dropped.",
    ),
    _row(
        SLOT,
        "duplicates",
        "numbers",
        "Messages and fragments that arrived again, or after they were reported lost; dropped.",
    ),
    _row(SLOT, "msgs_reassembled", "messages", "Messages reassembled from fragments."),
    _row(SLOT, "reassembly_refused", "messages", "Messages in fragments that found no memory; reported lost."),
    _row(SLOT, "order_map_entries", "entries, now", "Gaps, and messages and fragments that wait behind gaps."),
    _row(SLOT, "reassembly_bytes", "bytes, now", "Memory of messages with missing fragments."),
    _row(
        SLOT,
        "views_kept",
        "messages",
        "Messages of which the application kept an array of `view` after the callback, which costs a copy.",
    ),
    _row(SLOT, "latency_samples", "samples", "Samples in the latency histogram."),
    _row(SLOT, "latency_max", "ns", "Longest latency of all samples."),
    _row(SLOT, "parks", "times", "How often the reader went to sleep."),
    _row(SLOT, "clock_faults", "samples", "Samples whose receive time is before their send time."),
    *(Counter(UPLINK, name, unit, meaning, name, ultra) for name, unit, meaning, ultra in UPLINK_ROWS),
    *(Counter(RECEPTION, name, unit, meaning, name, ultra) for name, unit, meaning, ultra in RECEPTION_ROWS),
    _row(
        RECEIVER,
        "lbm_msgs_rcved",
        "messages",
        "Messages delivered to the receiver, from all sessions; with `ordered_delivery` 0 a message in fragments "
        "counts with its last fragment.",
    ),
    _row(RECEIVER, "bytes_rcved", "bytes", "Bytes of these messages with their headers."),
    _row(RECEIVER, "fragments_rcved", "fragments", "Fragments of these messages."),
    _row(
        RECEIVER,
        "lost",
        "numbers",
        "Sequence numbers reported lost to the receiver: one for each message, or one for each fragment.",
    ),
    _row(
        RECEIVER,
        "events",
        "events",
        "Events for the receiver: BOS, EOS, losses; events that wait in a full queue may be merged.",
    ),
    _row(RECEIVER, "callback_errors", "errors", "Exceptions that the callback raised."),
    _row(RECORDER, "messages", "messages", "Messages that the recorder wrote into its log."),
    _row(RECORDER, "bytes", "bytes", "Bytes of these messages with their headers."),
    _row(RECORDER, "losses", "events", "Loss events that the recorder received and wrote into its log."),
    _row(RECORDER, "lost", "numbers", "Sequence numbers that these loss events report."),
    _row(
        RECORDER,
        "dropped",
        "numbers",
        "Sequence numbers that the recorder dropped because its buffer was full; its log reports them as losses.",
    ),
    _row(
        RECORDER,
        "missed",
        "numbers",
        "Sequence numbers sent between two runs of the recorder; its log reports them as losses.",
    ),
    _row(RECORDER, "next_offset", "offset, now", "Offset of the next row in its log."),
    _row(RECORDER, "buffered_bytes", "bytes, now", "Bytes that the recorder has received and not written yet."),
    _row(RECORDER, "buffer_bytes", "bytes, now", "Size of the buffer for these bytes."),
    _row(RECORDER, "behind_ns", "ns, now", "Age of the oldest message that the recorder has not written yet.", ""),
    _row(RECORDER, "errors", "errors", "Writes that the system refused."),
)
"""All counters, in the order in which they are shown."""


@functools.cache
def counters_of(of: str) -> tuple[Counter, ...]:
    """Returns the rows of one kind of object."""
    return tuple(counter for counter in COUNTERS if counter.of == of)


def bits() -> dict[tuple[str, str], int]:
    """Returns the width in bits of the words of all counters, by kind of object and name."""
    structures = {**layout.STRUCTS, **wire.STRUCTS}
    return {
        (row.of, row.name): 8 * structures[STRUCT_OF[row.of]][row.field].itemsize if row.field else 64
        for row in COUNTERS
    }


def values(of: str, record: Any, computed: Mapping[str, int] | None = None) -> dict[str, int]:  # noqa: ANN401
    """Returns the counters in a copied structure.

    Args:
        of: kind of object.
        record: numpy record of the structure, or a mapping from field names to values.
        computed: values of counters without a field (default 0).
    """
    more = computed or {}
    return {
        counter.name: int(record[counter.field]) if counter.field else more.get(counter.name, 0)
        for counter in counters_of(of)
    }
