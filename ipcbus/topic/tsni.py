"""When a silent source says which number was its last: topic sequence number info (TSNI).

A source that has sent and is silent for its interval is told of, again after each interval, until it has been silent
for longer than its active threshold. Data suppresses it. (Concepts guide, TSNI; options
transport_topic_sequence_number_info_*.)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ipcbus.topic.batch import BatchWriter
    from ipcbus.topic.topic_source import TopicSource


class SequenceInfos:
    """The sources of one session."""

    def __init__(self, batch: BatchWriter) -> None:
        """Without sources.

        Args:
            batch: the session's open datagram, in which the information travels.
        """
        self._batch = batch
        self._terms: dict[TopicSource, tuple[int, int]] = {}

    def add(self, source: TopicSource, interval_ns: int, active_ns: int) -> None:
        """Tells of one more source.

        Args:
            source: of this session.
            interval_ns: how long it is silent first, and between two infos; 0 is never.
            active_ns: for how long it is told of; 0 is for ever.
        """
        if interval_ns:
            self._terms[source] = interval_ns, active_ns

    def remove(self, source: TopicSource) -> None:
        """Tells of a source no more."""
        self._terms.pop(source, None)

    def tell(self, now_ticks: int) -> int | None:
        """Sends what is due.

        Args:
            now_ticks: the time, by the clock of the session's ring.

        Returns:
            The ns until something may be due next; None without sources.
        """
        if not self._terms:
            return None
        due = []
        upcoming = []
        for source, (interval_ns, active_ns) in list(self._terms.items()):
            idle = source._idle_ns(now_ticks)
            # A source that has never sent, or is silent for good, may send its next message right now.
            left = interval_ns
            if idle is not None and not 0 < active_ns < idle:
                left = interval_ns - source._uninformed_ns(now_ticks)
                if left <= 0:
                    due.append(source)
                    left = interval_ns
            upcoming.append(left)
        if due:
            self._batch.inform(due)
        return min(upcoming)
