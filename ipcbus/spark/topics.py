"""Which topics of which logs a reader asked for."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from ipcbus.spark.options import ReadOptions


@dataclass(frozen=True, slots=True)
class Subscription:
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
    def of(cls, options: ReadOptions) -> Subscription:
        """What the options say."""
        return cls(options.subscribe, options.subscribe_pattern, options.assign)

    @property
    def partitions(self) -> frozenset[int] | None:
        """The logs of which anything may have been asked for; None for all."""
        return None if self.assigned is None else frozenset().union(*self.assigned.values())

    def wants_log(self, partition: int) -> bool:
        """Whether anything of a log may have been asked for."""
        return self.partitions is None or partition in self.partitions

    def wants(self, partition: int) -> Callable[[str], bool] | None:
        """Says of a topic of a log whether it was asked for; None where all were."""
        if self.pattern is not None:
            matches = re.compile(self.pattern).fullmatch
            return lambda topic: matches(topic) is not None
        known = self.known(partition)
        return None if known is None else known.__contains__

    def known(self, partition: int) -> frozenset[str] | None:
        """All topics of a log that were asked for; None where that depends on which there are."""
        if self.names is not None:
            return frozenset(self.names)
        if self.assigned is not None:
            return frozenset(topic for topic, partitions in self.assigned.items() if partition in partitions)
        return None
