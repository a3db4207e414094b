"""The topics that a receiver wants from a session, and the numbers that its source has sent for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ipcbus.wire.udp_packets import NUMBER_MAX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ipcbus.wire.udp_packets import Topics


class TopicSubscriptions:
    """The topics of one receiver in one session.

    Attributes:
        numbers: the numbers of the topics.
        revision: the revision of the list; higher than any before, also in an earlier membership of the session.
        starts: for a topic, the number of the first message to receive; None when the source does not have the topic.
        published: for a topic, a number below which all its messages are published, in datagrams that the receiver
            knows of: those that have not come are missing, and on their way.
        said: the same number as the source has said it last; datagrams with such messages may wait with the source.
    """

    def __init__(self, now_ns: int) -> None:
        self.numbers: tuple[int, ...] = ()
        self.revision = now_ns
        self.starts: dict[int, int | None] = {}
        self.published: dict[int, int] = {}
        self.said: dict[int, int] = {}
        self._awaited: dict[int, tuple[int, int]] = {}
        """For a topic, the next number of `published`, behind the number below which its datagrams lie."""
        self._ask_again = False

    def subscribe(self, numbers: Iterable[int], now_ns: int) -> None:
        """Replaces the list of topics."""
        self.numbers = tuple(numbers)
        known: tuple[dict[int, Any], ...] = (self.starts, self.published, self.said, self._awaited)
        for by_topic in known:
            for topic in by_topic.keys() - set(self.numbers):
                del by_topic[topic]
        self.revision = max(self.revision + 1, now_ns)

    def ask(self) -> None:
        """Has the source asked again for the numbers of the topics."""
        self._ask_again = bool(self.numbers)

    @property
    def awaits_starts(self) -> bool:
        """Whether the source still has to send the number of the first message of a topic."""
        return len(self.starts) < len(self.numbers)

    @property
    def asks(self) -> bool:
        """Whether the source still has to send numbers."""
        return self._ask_again or self.awaits_starts

    def answered(self, found: Topics) -> None:
        """Takes the numbers that the source has sent."""
        self._ask_again = False
        for topic, start, published in found.topics:
            if topic in self.numbers:
                self.starts.setdefault(topic, start if start <= NUMBER_MAX else None)
                if published <= NUMBER_MAX:
                    self.said[topic] = max(self.said.get(topic, 0), published)
                    if found.lead <= NUMBER_MAX:
                        # An earlier answer stays: else a receiver that is always a little behind would use none.
                        place = found.lead, published
                        self._awaited[topic] = min(self._awaited.get(topic, place), place)
        self.reached(0)

    def published_below(self, topic: int, lead: Callable[[], int]) -> int:
        """Returns the number of `published`, or 0; calls `lead` for `reached` only where that may change it."""
        if topic in self._awaited:
            self.reached(lead())
        return self.published.get(topic, 0)

    def reached(self, lead: int) -> None:
        """Takes note that the receiver knows of all datagrams below a number."""
        for topic, (until, published) in list(self._awaited.items()):
            if until <= lead:
                self.published[topic] = max(self.published.get(topic, 0), published)
                del self._awaited[topic]
