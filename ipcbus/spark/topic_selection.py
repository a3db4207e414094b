"""Which topics of which logs a reader asked for."""

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
    """At most one of the three is set; with none, everything was asked for.

    Attributes:
        names: these topics.
        pattern: topics whose whole name it matches.
        assigned: these topics of these partitions.
    """

    names: tuple[str, ...] | None = None
    pattern: str | None = None
    assigned: dict[str, tuple[int, ...]] | None = None

    @classmethod
    def of(cls, options: ReadOptions) -> TopicSelection:
        """What the options say."""
        return cls(options.subscribe, options.subscribe_pattern, options.assign)

    @property
    def partitions(self) -> frozenset[int] | None:
        """The logs of which anything may have been asked for; None for all."""
        return None if self.assigned is None else frozenset().union(*self.assigned.values())

    def wants_log(self, partition: int) -> bool:
        """Returns whether anything of a log may have been asked for."""
        return self.partitions is None or partition in self.partitions

    def wants(self, partition: int) -> Callable[[str], bool] | None:
        """Says of a topic of a log whether it was asked for; None where all were."""
        if self.pattern is not None:
            matches = re.compile(self.pattern).fullmatch
            return lambda topic: matches(topic) is not None
        known = self.known(partition)
        return None if known is None else known.__contains__

    def known(self, partition: int) -> frozenset[str] | None:
        """Returns all topics of a log that were asked for; None where that depends on which there are."""
        if self.names is not None:
            return frozenset(self.names)
        if self.assigned is not None:
            return frozenset(topic for topic, partitions in self.assigned.items() if partition in partitions)
        return None

    def unknown(self, there: Mapping[int, Collection[str]]) -> list[str]:
        """What was asked for and no log has, a text for each, with the nearest names that there are.

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
