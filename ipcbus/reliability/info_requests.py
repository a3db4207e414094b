"""Requests for topic sequence number info: a receiver asks for the next number of a topic of which nothing has come."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection


class InfoRequests:
    """The times at which a receiver asks about the topics of one session of which nothing has come."""

    def __init__(self, interval_ns: int, maximum: int) -> None:
        """Starts without topics.

        Args:
            interval_ns: time between two requests for a topic; 0 turns them off.
            maximum: largest number of requests for a topic.
        """
        self._interval_ns, self._maximum = interval_ns, maximum
        # By topic: the number of requests that are left, and the time of the next one.
        self._waiting: dict[int, tuple[int, int]] = {}

    def due(self, silent: Collection[int], now_ns: int) -> bool:
        """Returns whether to ask now.

        Args:
            silent: the topics of which nothing has come. The first request for a topic is due one interval after the
                first call with it: joining has asked before.
            now_ns: the time.
        """
        if not self._interval_ns:
            return False
        new = self._maximum, now_ns + self._interval_ns
        waiting = {topic: self._waiting.get(topic, new) for topic in silent}
        asked = {topic: left for topic, (left, due_ns) in waiting.items() if left and now_ns >= due_ns}
        waiting |= {topic: (left - 1, now_ns + self._interval_ns) for topic, left in asked.items()}
        self._waiting = waiting
        return bool(asked)

    @property
    def next_ns(self) -> int | None:
        """The time at which to call `due`; None when no request is left."""
        return min((due_ns for left, due_ns in self._waiting.values() if left), default=None)
