"""The topic lines of a ring: how many messages of each topic its source has published.

A context that has mapped the ring can read them, also when the ring's name is gone, or when its messages come over UDP.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import numpy as np

from ipcbus.resolution.local import object_names
from ipcbus.wire import wire_layout
from ringbuf import layout, segment
from ringbuf.layout import CONTROL_HEADER, RING_HEADER, field_offset
from ringbuf.shared_words import SharedWords

if TYPE_CHECKING:
    from ipcbus.resolution.local.adverts import SessionAdvert
    from ringbuf.memory import Mapping

_SEQUENCE_NEXT, _PUBLISHED, _TOPIC = (
    field_offset(wire_layout.TOPIC_LINE, name) for name in ("sequence_next", "published", "topic")
)


class TopicLines:
    """The topic lines of one ring, read only."""

    def __init__(self, ring: Mapping, topics_max: int) -> None:
        """Reads the lines of a ring that was checked.

        Args:
            ring: the mapping of the ring.
            topics_max: the number of its lines, a power of two.
        """
        self._words, self._topics_max = SharedWords(ring), topics_max

    def carries(self, number: int) -> bool:
        """Returns whether the topic still has its line; another topic may have it now."""
        return self._words.load32(self._line(number) + _TOPIC) == number

    def numbers(self, number: int) -> tuple[int, int]:
        """Returns both counters of a topic's messages, the lower one first.

        If one of them is damaged, the other one is safe to believe until the source writes again.
        """
        line = self._line(number)
        published = self._words.load64(line + _PUBLISHED)  # SYNC published
        return published, self._words.load64(line + _SEQUENCE_NEXT)

    def published(self, number: int) -> int:
        """Returns a number below which all messages of a topic are published; 0 when another topic has its line now."""
        published = min(self.numbers(number))
        return published if self.carries(number) else 0

    def _line(self, number: int) -> int:
        return RING_HEADER.itemsize + wire_layout.TOPIC_LINE.itemsize * (number % self._topics_max)


def last_word(control_bytes: int, topics_max: int, number: int) -> int:
    """Returns where the last word on a topic stands in a control block of this size."""
    return control_bytes - 8 * topics_max + 8 * (number % topics_max)


def quiet_word(topics_max: int) -> int:
    """Returns where, in a control block, bit i says that no record needs to wake the reader of slot i.

    The word stands behind those of the topics. A control block without it has readers that each record wakes.
    """
    return CONTROL_HEADER.itemsize + 8 * topics_max


def find(domain: str, advert: SessionAdvert, owner_uid: int) -> TopicLines | None:
    """Returns the topic lines of a session that is not joined by its ring; None when the ring is damaged.

    Args:
        domain: the bus domain.
        advert: the session.
        owner_uid: the user that has to own the ring; a ring of another user is not read.

    Raises:
        ringbuf.ring_errors.RingError, OSError: the ring cannot be opened or mapped.
    """
    fd = segment.open_fd(object_names.ring(domain, advert.context_id, advert.local), write=False)
    try:
        stat = os.fstat(fd)
        needed = RING_HEADER.itemsize + advert.topics_max * wire_layout.TOPIC_LINE.itemsize
        if stat.st_uid != owner_uid or stat.st_size < needed:
            return None
        header = np.frombuffer(os.pread(fd, RING_HEADER.itemsize, 0), RING_HEADER, 1)[0]
        known = header["magic"] == layout.MAGIC and header["layout_id"] == layout.LAYOUT_ID
        if not known or header["session_id"] != advert.session_id or advert.topics_max & (advert.topics_max - 1):
            return None
        return TopicLines(segment.map_fd(fd, write=False), advert.topics_max)
    finally:
        os.close(fd)
