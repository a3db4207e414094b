"""The topics and logs that a reader selected."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ipcbus.archive.row_filter import suggestion

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from ipcbus.spark.read_options import ReadOptions


@dataclass(frozen=True, slots=True)
class TopicSelection:
    """The topics to read; at most one of the three is set, and without any all topics are selected.

    Attributes:
        names: these topics.
        pattern: topics whose whole name it matches.
        assigned: topic -> partitions to read it from.
    """

    names: tuple[str, ...] | None = None
    pattern: str | None = None
    assigned: dict[str, tuple[int, ...]] | None = None

    @classmethod
    def of(cls, options: ReadOptions) -> TopicSelection:
        """Returns the selection that the options give."""
        return cls(options.subscribe, options.subscribe_pattern, options.assign)

    @property
    def partitions(self) -> frozenset[int] | None:
        """The logs that may hold selected topics; None for all."""
        return None if self.assigned is None else frozenset().union(*self.assigned.values())

    def wants_log(self, partition: int) -> bool:
        """Returns whether a log may hold selected topics."""
        return self.partitions is None or partition in self.partitions

    def wants(self, partition: int) -> Callable[[str], bool] | None:
        """Returns a test of whether a topic of a log is selected; None where all are."""
        if self.pattern is not None:
            matches = re.compile(self.pattern).fullmatch
            return lambda topic: matches(topic) is not None
        known = self.known(partition)
        return None if known is None else known.__contains__

    def known(self, partition: int) -> frozenset[str] | None:
        """Returns all topics of a log that are selected; None where that depends on the topics in it."""
        if self.names is not None:
            return frozenset(self.names)
        if self.assigned is not None:
            return frozenset(topic for topic, partitions in self.assigned.items() if partition in partitions)
        return None

    def unknown(self, there: Mapping[int, Collection[str]]) -> list[str]:
        """Returns a text for each selected topic that no log has, with the most similar names.

        Args:
            there: partition -> the topics of its log.
        """
        every = frozenset[str]().union(*there.values())
        if self.pattern is not None:
            matches = re.compile(self.pattern).fullmatch
            found = any(matches(topic) for topic in every)
            return (
                []
                if found
                else [f"no topic matches subscribePattern {self.pattern!r}{suggestion(self.pattern, every)}"]
            )
        if self.assigned is not None:
            return [
                f"partition {partition} has no topic {topic!r}{suggestion(topic, there.get(partition, ()))}"
                for topic, partitions in self.assigned.items()
                for partition in partitions
                if topic not in there.get(partition, ())
            ]
        return [
            f"there is no topic {topic!r}{suggestion(topic, every)}" for topic in self.names or () if topic not in every
        ]
