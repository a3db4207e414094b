"""Receivers that may be about to join a source: registries show them, but their contexts have not joined yet."""

from __future__ import annotations

import hashlib
import os
import re
from typing import TYPE_CHECKING, NamedTuple

from ipcbus.resolution.local import object_names
from ipcbus.resolution.local.registry import PeerRegistry
from ringbuf import segment
from ringbuf.ring_errors import RingError

if TYPE_CHECKING:
    from collections.abc import Container, Iterator

    from ipcbus.config import ReceiverOptions
    from ipcbus.resolution.local.adverts import ReceiverAdvert


class _Context(NamedTuple):
    """A context with its receivers.

    Attributes:
        trusted: whether it belongs to this user: a stranger's pattern may match for ever.
    """

    context_id: int
    pid: int
    trusted: bool
    receivers: tuple[ReceiverAdvert, ...]


class ExpectedReceivers:
    """The receivers of a domain, as their registries show them at one moment."""

    def __init__(self, domain: str, leave_out: Container[int], topic: str | None = None) -> None:
        """Reads the registries.

        Args:
            domain: the bus domain.
            leave_out: ids of contexts that do not count.
            topic: the only topic to ask for, which takes less time where there are many; None for any.
        """
        self._contexts = [each for each in _contexts(domain, topic) if each.context_id not in leave_out]

    def of(self, topic: str) -> dict[int, int]:
        """Returns the contexts that receive a topic: their ids, and since when, in ns of the wall clock."""
        found: dict[int, int] = {}
        for context_id, receiver in self._receivers(topic):
            found[context_id] = max(receiver.since_ns, found.get(context_id, receiver.since_ns))
        return found

    def names(self, topic: str) -> dict[int, set[int]]:
        """Returns the contexts with receivers of a topic that have a `gmd_name`: their ids, and hashes of the names."""
        found: dict[int, set[int]] = {}
        for context_id, receiver in self._receivers(topic):
            if receiver.gmd_identity & 1:
                found.setdefault(context_id, set()).add(receiver.gmd_identity)
        return found

    def only_members(self, topic: str) -> dict[int, bool]:
        """Returns the contexts that receive a topic: their ids, and whether shares have all their receivers."""
        found: dict[int, bool] = {}
        for context_id, receiver in self._receivers(topic):
            is_member = receiver.gmd_identity != 0 and not receiver.gmd_identity & 1
            found[context_id] = is_member and found.get(context_id, True)
        return found

    def user_of(self, topic: str, gmd_identity: int) -> int | None:
        """Returns the process id of a receiver of this topic with this name, no wildcard receiver; None without one."""
        for context in self._contexts:
            for each in context.receivers:
                if not each.wildcard and each.topic == topic and each.gmd_identity == gmd_identity:
                    return context.pid
        return None

    def _receivers(self, topic: str) -> Iterator[tuple[int, ReceiverAdvert]]:
        """Yields the receivers of a topic, each with the id of its context."""
        for context in self._contexts:
            for each in context.receivers:
                if context.trusted and _matches(each.topic, topic) if each.wildcard else each.topic == topic:
                    yield context.context_id, each


def gmd_identity(name: str) -> int:
    """Returns the hash of a `gmd_name` as registries show it, 64 bits; 0 for no name."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little") | 1 if name else 0


def receiver_identity(options: ReceiverOptions) -> int:
    """Returns what registries show of the names of a receiver: `gmd_identity`, or an even number for a share."""
    return gmd_identity(f"share {options.share}") - 1 if options.share else gmd_identity(options.gmd_name)


def _contexts(domain: str, topic: str | None) -> Iterator[_Context]:
    """Yields the live contexts, each with its receivers, or with those of a topic."""
    for name in object_names.of_kind(segment.names(object_names.domain_prefix(domain)), object_names.REGISTRY):
        try:
            registry = PeerRegistry(name)
        except (RingError, OSError):
            continue
        try:
            receivers = registry.receivers(topic) if registry.alive() else None
            if receivers is not None:
                yield _Context(registry.context_id, registry.pid, registry.uid == os.geteuid(), receivers)
        finally:
            registry.close()


def _matches(pattern: str, topic: str) -> bool:
    try:
        return re.fullmatch(pattern, topic) is not None
    except (re.error, OverflowError, RecursionError):
        return False  # a registry cuts a pattern that is too long for it
