"""Contexts that exist only as bytes in shared memory, made with the types of the layout."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np

from ipcbus.resolution import names
from ipcbus.resolution.adverts import SessionAdvert
from ipcbus.resolution.registry import Registry
from ipcbus.wire import layout as wire
from ringbuf import layout, liveness, segment

if TYPE_CHECKING:
    from collections.abc import Mapping

CONTEXT_ID = 0x1234ABCD
SESSION_ID = 0x6481F8D4
TOPICS_MAX = 8
SLOTS_MAX = 4
CAPACITY = 65536
TAIL = 5000

Fields = dict[str, Any]


class Recorded:
    """A context with one session of two topics, which this process holds alive but never uses."""

    def __init__(self, domain: str) -> None:
        """Makes registry, ring and control block."""
        self.domain = domain
        self.advert = SessionAdvert(
            CONTEXT_ID, 0, wire.TRANSPORT_LBTIPC, SESSION_ID, 20001, CAPACITY, False, TOPICS_MAX
        )
        self.registry = Registry(domain, CONTEXT_ID, "recorded", "1.2.3", hidden=False, group="")
        self.registry.add_session(self.advert)
        self.registry.add_source(0, "a", 1)
        self.registry.add_source(0, "b", 2 + TOPICS_MAX)
        self.receiver = self.registry.add_receiver("c")
        self.ring_name = names.ring(domain, CONTEXT_ID, 0)
        self.control_name = names.control(domain, CONTEXT_ID, 0)
        data = layout.data_offset(TOPICS_MAX * wire.TOPIC_LINE.itemsize)
        self.ring_fd = segment.create(self.ring_name, data + CAPACITY)
        self.control_fd = segment.create(self.control_name, layout.control_bytes(SLOTS_MAX, 8 * TOPICS_MAX))
        self.slot_locks: list[int] = []
        self.ring(
            **{"magic": layout.MAGIC, "layout_id": layout.LAYOUT_ID, "kind": layout.KIND_RING},
            **{"session_id": SESSION_ID, "user_offset": layout.RING_HEADER.itemsize, "user_bytes": 64 * TOPICS_MAX},
            **{"capacity": CAPACITY, "record_max": 8208, "tail": TAIL, "pid": os.getpid()},
        )
        self.control(
            **{"magic": layout.MAGIC, "layout_id": layout.LAYOUT_ID, "kind": layout.KIND_CONTROL},
            **{"session_id": SESSION_ID, "slots_max": SLOTS_MAX, "slots_offset": layout.slots_offset(8 * TOPICS_MAX)},
            **{"user_offset": layout.CONTROL_HEADER.itemsize, "user_bytes": 8 * TOPICS_MAX},
        )

    def ring(self, **fields: object) -> None:
        """Sets fields of the ring's header."""
        _patch(self.ring_fd, 0, layout.RING_HEADER, fields)

    def control(self, **fields: object) -> None:
        """Sets fields of the control block's header."""
        _patch(self.control_fd, 0, layout.CONTROL_HEADER, fields)

    def line(self, number: int, **fields: object) -> None:
        """Sets fields of a topic's line."""
        offset = layout.RING_HEADER.itemsize + number % TOPICS_MAX * wire.TOPIC_LINE.itemsize
        _patch(self.ring_fd, offset, wire.TOPIC_LINE, {"topic": number, **fields})

    def joined(self, number: int, mask: int) -> None:
        """Sets which slots receive a topic."""
        at = layout.CONTROL_HEADER.itemsize + 8 * (number % TOPICS_MAX)
        os.pwrite(self.control_fd, mask.to_bytes(8, "little"), at)

    def slot(self, index: int, *, held: bool = False, **fields: object) -> None:
        """Sets fields of a slot; a held one belongs to a reader that lives."""
        offset = layout.slots_offset(8 * TOPICS_MAX) + index * layout.SLOT.itemsize
        _patch(self.control_fd, offset, layout.SLOT, fields)
        if held:
            # A description of its own, as a reader in another process has.
            fd = os.open(segment.ROOT / self.control_name, os.O_RDWR | os.O_CLOEXEC)
            assert liveness.take(fd, index + 1)
            self.slot_locks.append(fd)

    def receiver_counts(self, **fields: object) -> None:
        """Sets counters of the context's receiver."""
        view = self.registry.mapping.view(self.registry.entry_offset(self.receiver), wire.REGISTRY_ENTRY.itemsize)
        entry = np.frombuffer(view, wire.REGISTRY_ENTRY, 1)
        for name, value in fields.items():
            entry[name] = value

    def close(self) -> None:
        """Removes all of it."""
        for fd in (self.ring_fd, self.control_fd, *self.slot_locks):
            os.close(fd)
        for name in (self.ring_name, self.control_name):
            segment.remove(name)
        self.registry.close()


def _patch(fd: int, offset: int, dtype: np.dtype[np.void], fields: Mapping[str, object]) -> None:
    record = np.frombuffer(os.pread(fd, dtype.itemsize, offset), dtype, 1).copy()
    for name, value in fields.items():
        record[name] = value
    os.pwrite(fd, record.tobytes(), offset)
