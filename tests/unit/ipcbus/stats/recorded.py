"""Contexts that exist only as bytes in shared memory, made with the types of the layout."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np

from ipcbus.resolution.local import object_names
from ipcbus.resolution.local.adverts import Endpoint, SessionAdvert
from ipcbus.resolution.local.registry import Registry
from ipcbus.wire import wire_layout as wire
from ringbuf import layout, liveness, segment

if TYPE_CHECKING:
    from collections.abc import Mapping

CONTEXT_ID = 0x1234ABCD
SESSION_ID = 0x6481F8D4
TOPICS_MAX = 8
SLOTS_MAX = 4
CAPACITY = 65536
TAIL = 5000

_UPLINK = layout.RING_HEADER.itemsize + TOPICS_MAX * wire.TOPIC_LINE.itemsize

Fields = dict[str, Any]


class Recorded:
    """A context with one session of two topics, which this process holds alive but never uses."""

    def __init__(self, domain: str, *, udp: bool = False) -> None:
        """Makes registry, ring and control block; `udp` gives the session a twin over UDP."""
        self.domain = domain
        endpoint = Endpoint("127.0.0.1", 14380) if udp else None
        self.advert = SessionAdvert(
            CONTEXT_ID, 0, wire.TRANSPORT_LBTIPC, SESSION_ID, 20001, CAPACITY, False, TOPICS_MAX, endpoint
        )
        self.others: list[tuple[str, int]] = []
        user = TOPICS_MAX * wire.TOPIC_LINE.itemsize + (wire.uplink_bytes(TOPICS_MAX) if udp else 0)
        self.registry = Registry(domain, CONTEXT_ID, "recorded", "1.2.3", hidden=False, group="")
        self.registry.add_session(self.advert)
        self.registry.add_source(0, "a", 1)
        self.registry.add_source(0, "b", 2 + TOPICS_MAX)
        self.receiver = self.registry.add_receiver("c")
        self.ring_name = object_names.ring(domain, CONTEXT_ID, 0)
        self.control_name = object_names.control(domain, CONTEXT_ID, 0)
        data = layout.data_offset(user)
        self.ring_fd = segment.create(self.ring_name, data + CAPACITY)
        self.control_fd = segment.create(self.control_name, layout.control_bytes(SLOTS_MAX, 8 * TOPICS_MAX))
        self.slot_locks: list[int] = []
        self.ring(
            **{"magic": layout.MAGIC, "layout_id": layout.LAYOUT_ID, "kind": layout.KIND_RING},
            **{"session_id": SESSION_ID, "user_offset": layout.RING_HEADER.itemsize, "user_bytes": user},
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

    def uplink(self, **fields: object) -> None:
        """Sets fields of what the session's uplink shows."""
        _patch(self.ring_fd, _UPLINK, wire.UPLINK_BOARD, {"version": 2, "transport": wire.TRANSPORT_LBTRU, **fields})

    def client(self, line: int, topics: tuple[int, ...] = (), **fields: object) -> None:
        """Sets fields of a client, and which topics it receives."""
        at = _UPLINK + wire.UPLINK_BOARD.itemsize
        _patch(self.ring_fd, at + line * wire.CLIENT_LINE.itemsize, wire.CLIENT_LINE, {"used": 1, **fields})
        at += wire.CLIENTS_SHOWN * wire.CLIENT_LINE.itemsize
        for number in topics:
            word = at + 8 * (number % TOPICS_MAX)
            mask = int.from_bytes(os.pread(self.ring_fd, 8, word), "little") | 1 << line
            os.pwrite(self.ring_fd, mask.to_bytes(8, "little"), word)

    def reception(self, session: SessionAdvert, local: int = 0x8000, **fields: object) -> int:
        """Makes the ring of a session that the context receives over UDP; returns a descriptor of it."""
        self.registry.add_reception(session, local)
        ring, control = (
            object_names.ring(self.domain, CONTEXT_ID, local),
            object_names.control(self.domain, CONTEXT_ID, local),
        )
        area = wire.RECEPTION_BOARD.itemsize
        self.others.append((ring, segment.create(ring, layout.data_offset(area) + layout.PAGE)))
        self.others.append((control, segment.create(control, layout.control_bytes(1, 0))))
        (_, ring_fd), (_, control_fd) = self.others[-2:]
        head = {"magic": layout.MAGIC, "layout_id": layout.LAYOUT_ID, "session_id": session.session_id}
        own = {"kind": layout.KIND_RING, "user_offset": layout.RING_HEADER.itemsize, "user_bytes": area, "tail": TAIL}
        _patch(ring_fd, 0, layout.RING_HEADER, head | own)
        slots = {"kind": layout.KIND_CONTROL, "slots_max": 1, "slots_offset": layout.slots_offset(0)}
        _patch(control_fd, 0, layout.CONTROL_HEADER, head | slots)
        _patch(control_fd, layout.slots_offset(0), layout.SLOT, {"state": layout.SLOT_ACTIVE, "position": TAIL})
        shown = {"version": 2, "transport": wire.TRANSPORT_LBTRU, "state": b"joined", **fields}
        _patch(ring_fd, layout.RING_HEADER.itemsize, wire.RECEPTION_BOARD, shown)
        return ring_fd

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
        for name, fd in self.others:
            os.close(fd)
            segment.remove(name)
        self.registry.close()


def _patch(fd: int, offset: int, dtype: np.dtype[np.void], fields: Mapping[str, object]) -> None:
    record = np.frombuffer(os.pread(fd, dtype.itemsize, offset), dtype, 1).copy()
    for name, value in fields.items():
        record[name] = value
    os.pwrite(fd, record.tobytes(), offset)
