"""Topic sequence number info (TSNI): a silent source repeats the number of its last message.

A source that has sent and is silent for its interval sends an info, and again after each interval, until it has been
silent for longer than its active threshold. Data suppresses the info. (Concepts guide, TSNI; options
transport_topic_sequence_number_info_*.)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ipcbus.topic.batch import BatchWriter
    from ipcbus.topic.topic_source import TopicSource


class SequenceInfos:
    """The infos of the sources of one session."""

    def __init__(self, batch: BatchWriter) -> None:
        """Makes an object without sources.

        Args:
            batch: the session's open datagram, which carries the infos.
        """
        self._batch = batch
        self._intervals: dict[TopicSource, tuple[int, int]] = {}

    def add(self, source: TopicSource, interval_ns: int, active_ns: int) -> None:
        """Adds a source.

        Args:
            source: a source of this session.
            interval_ns: silence before the first info, and time between two infos; 0 for no infos.
            active_ns: silence after which infos end; 0 for no end.
        """
        if interval_ns:
            self._intervals[source] = interval_ns, active_ns

    def remove(self, source: TopicSource) -> None:
        """Ends the infos of a source."""
        self._intervals.pop(source, None)

    def send_due(self, now_ticks: int) -> int | None:
        """Sends the infos that are due.

        Args:
            now_ticks: the time, by the clock of the session's ring.

        Returns:
            The ns until the next info may be due; None without sources.
        """
        if not self._intervals:
            return None
        due = []
        upcoming = []
        for source, (interval_ns, active_ns) in list(self._intervals.items()):
            idle = source._idle_ns(now_ticks)
            # A source that has never sent, or that was silent for too long, may send its next message right now.
            rest_ns = interval_ns
            if idle is not None and not 0 < active_ns < idle:
                rest_ns = interval_ns - source._ns_since_info(now_ticks)
                if rest_ns <= 0:
                    due.append(source)
                    rest_ns = interval_ns
            upcoming.append(rest_ns)
        if due:
            self._batch.send_infos(due)
        return min(upcoming)
