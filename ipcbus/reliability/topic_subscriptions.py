"""The topics that a receiver wants of a session, and what its source has said of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ipcbus.wire.udp_packets import NUMBER_MAX

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ipcbus.wire.udp_packets import Topics


class TopicSubscriptions:
    """Those of one receiver's end.

    Attributes:
        numbers: of the topics.
        revision: of the list; later than that of any before, also of an earlier membership in the same session.
        starts: of topics, the number of the first message that it is to have; None when it has no such.
        published: of the same topics, a number below which all their messages are published.
    """

    def __init__(self, now_ns: int) -> None:
        """None is wanted."""
        self.numbers: tuple[int, ...] = ()
        self.revision = now_ns
        self.starts: dict[int, int | None] = {}
        self.published: dict[int, int] = {}
        self._again = False

    def want(self, numbers: Iterable[int], now_ns: int) -> None:
        """These are wanted from now on."""
        self.numbers = tuple(numbers)
        self.starts = {topic: start for topic, start in self.starts.items() if topic in self.numbers}
        self.published = {topic: number for topic, number in self.published.items() if topic in self.numbers}
        self.revision = max(self.revision + 1, now_ns)

    def ask(self) -> None:
        """The source has to say again where they are."""
        self._again = bool(self.numbers)

    @property
    def asks(self) -> bool:
        """Whether it has still to say so."""
        return self._again or len(self.starts) < len(self.numbers)

    def told(self, found: Topics) -> None:
        """It has."""
        self._again = False
        for topic, start, published in found.topics:
            if topic in self.numbers:
                self.starts.setdefault(topic, start if start <= NUMBER_MAX else None)
                if published <= NUMBER_MAX:
                    self.published[topic] = max(self.published.get(topic, 0), published)
