"""Receivers of a domain that may be about to join a source: their contexts show them, and have not joined it yet."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from ipcbus.resolution.local import object_names
from ipcbus.resolution.local.registry import PeerRegistry
from ringbuf import segment
from ringbuf.ring_errors import RingError

if TYPE_CHECKING:
    from collections.abc import Container, Iterator

    from ipcbus.resolution.local.adverts import ContextAdvert


class ExpectedReceivers:
    """The receivers of a domain, as their registries show them at one moment."""

    def __init__(self, domain: str, leave_out: Container[int]) -> None:
        """Looks at the registries.

        Args:
            domain: the bus domain.
            leave_out: ids of contexts that do not count.
        """
        self._contexts = [each for each in _contexts(domain) if each[0].context_id not in leave_out]

    def of(self, topic: str) -> dict[int, int]:
        """Returns the contexts that receive a topic, by their ids: since when, in ns of the wall clock."""
        found: dict[int, int] = {}
        for advert, trusted in self._contexts:
            since = [
                each.since_ns
                for each in advert.receivers
                if (trusted and _matches(each.topic, topic) if each.wildcard else each.topic == topic)
            ]
            if since:
                found[advert.context_id] = max(since)
        return found


def _contexts(domain: str) -> Iterator[tuple[ContextAdvert, bool]]:
    """The live contexts, and whether each is of this user; a pattern of another one might take for ever to match."""
    for name in object_names.of_kind(segment.names(object_names.domain_prefix(domain)), object_names.REGISTRY):
        try:
            registry = PeerRegistry(name)
        except (RingError, OSError):
            continue
        try:
            contents = registry.read() if registry.alive() else None
            if contents is not None:
                yield contents[1], registry.uid == os.geteuid()
        finally:
            registry.close()


def _matches(pattern: str, topic: str) -> bool:
    try:
        return re.fullmatch(pattern, topic) is not None
    except (re.error, OverflowError, RecursionError):
        return False  # a longer pattern than a registry has room for is cut short there
