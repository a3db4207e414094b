"""What the sources of a context keep of the messages that they sent."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

from ipcbus.topic.message_retention import Retention

if TYPE_CHECKING:
    from ipcbus.config import SourceOptions
    from ipcbus.topic.topic_source import TopicSource

_SECOND_NS = 1_000_000_000


class Retentions:
    """The retentions of a context's sources."""

    def __init__(self) -> None:
        self._retentions: weakref.WeakKeyDictionary[TopicSource, Retention] = weakref.WeakKeyDictionary()

    def add(self, source: TopicSource, options: SourceOptions) -> Retention | None:
        """Lets a new source keep what it sends, if its options ask for that."""
        retention = None
        if options.late_join:
            retention = self._retentions[source] = Retention(
                options.retransmit_retention_size_threshold,
                options.retransmit_retention_age_threshold * _SECOND_NS,
                options.retransmit_retention_size_limit,
            )
            source._retain(retention)
        return retention

    def of(self, source: object) -> Retention | None:
        """Returns what a source keeps; None if its options do not ask for that."""
        return self._retentions.get(source)  # type: ignore[call-overload,no-any-return]

    def __contains__(self, source: object) -> bool:
        """Returns whether a source keeps what it sends."""
        return source in self._retentions

    def expire(self, now_ticks: int) -> None:
        """Drops messages that are too old, by timer; sources drop them themselves when they send."""
        for retention in list(self._retentions.values()):
            retention.expire(now_ticks)

    def counters(self) -> dict[str, int]:
        """Returns the counters, by their names in the layout."""
        return {"retained_bytes": sum(each.retained_bytes for each in list(self._retentions.values()))}
