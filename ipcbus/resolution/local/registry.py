"""The registry of a context: its owner writes it, and other contexts read it."""

from __future__ import annotations

import heapq
import os
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from ipcbus.resolution.local import object_names
from ipcbus.resolution.local.adverts import ContextAdvert, SessionAdvert, decode, decode_receivers, text
from ipcbus.resolution.local.stale_cleanup import same_file
from ipcbus.wire import wire_layout
from ringbuf import liveness, segment
from ringbuf.layout import MAGIC, field_offset
from ringbuf.ring_errors import RingError, SegmentGone, SegmentMismatch
from ringbuf.shared_words import SharedWords

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ipcbus.resolution.local.adverts import ReceiverAdvert
    from ringbuf.memory import Mapping

OWNER_BYTE = 0
_VERSION = field_offset(wire_layout.REGISTRY_HEADER, "version")
_FIRST_ENTRIES = 40
_RESERVE = 1 << 26
_TRIES = 64


class Registry:
    """The owner's side of a registry. Several threads may call its methods."""

    def __init__(
        self,
        domain: str,
        context_id: int,
        context_name: str,
        release: str,
        *,
        hidden: bool,
        group: str,
        busy_wait: int = 0,
    ) -> None:
        """Makes the registry and takes the owner's lock.

        Args:
            domain: the domain of the context.
            context_id: id of the context.
            context_name: name of the context.
            release: version of this program.
            hidden: whether only this user may read the registry.
            group: group that may write the registry, or empty.
            busy_wait: how many threads of the context spin while they wait, for `ipcbus doctor`.

        Raises:
            FileExistsError: another context has this id.
            ringbuf.ring_errors.SegmentFull, ringbuf.ring_errors.SegmentRefused: as `segment.create`.
        """
        self.name = object_names.registry(domain, context_id)
        size = wire_layout.registry_bytes(_FIRST_ENTRIES)
        self.fd = segment.create(self.name, size, group=group, mode=0o600 if hidden else 0o644)
        try:
            self._begin(context_id, context_name, domain, release, size, busy_wait)
        except BaseException:
            self.close()
            raise

    def _begin(self, context_id: int, context_name: str, domain: str, release: str, size: int, busy_wait: int) -> None:
        if not (liveness.take(self.fd, OWNER_BYTE) and same_file(self.fd, self.name)):
            # A sweep found the object before its lock, and removes it just now or has done so already.
            self.abandon()
            raise FileExistsError(f"registry {self.name} was swept away while it was made")
        self.mapping: Mapping = segment.map_fd(self.fd, write=True, reserve=_RESERVE)
        self._words = SharedWords(self.mapping)
        self._lock = threading.Lock()
        self._header = wire_layout.registry_view(self.mapping.view())
        header = self._header
        header["layout_id"], header["kind"], header["context_id"] = (
            wire_layout.LAYOUT_ID,
            wire_layout.KIND_REGISTRY,
            context_id,
        )
        header["pid"], header["uid"], header["start_ns"] = os.getpid(), os.geteuid(), time.time_ns()
        header["context_name"], header["domain"] = context_name.encode()[:31], domain.encode()[:63]
        header["release"], header["busy_wait"] = release.encode()[:15], busy_wait
        header["entries"] = (size - wire_layout.REGISTRY_HEADER.itemsize) // wire_layout.REGISTRY_ENTRY.itemsize
        self._free = list(range(int(header["entries"])))
        self._shown: dict[str, int] = {}
        header["magic"] = MAGIC

    def add_session(self, advert: SessionAdvert) -> int:
        """Adds a session, and returns the number of its entry."""
        return self._add(
            state=wire_layout.ENTRY_SESSION,
            local=advert.local,
            transport=advert.transport,
            session_id=advert.session_id,
            transport_id=advert.transport_id,
            window=advert.window,
            pacing=advert.source_paced,
            topics_max=advert.topics_max,
            name=advert.endpoint.text().encode() if advert.endpoint is not None else b"",
        )

    def add_source(self, local: int, topic: str, topic_number: int, *, retains: bool = False) -> int:
        """Adds a topic on session `local`, and returns the number of its entry."""
        return self._add(
            state=wire_layout.ENTRY_SOURCE, local=local, topic=topic_number, retains=retains, name=topic.encode()
        )

    def add_receiver(self, topic: str, *, wildcard: bool = False, gmd_identity: int = 0) -> int:
        """Adds a receiver of a topic or pattern, and returns the number of its entry."""
        name = topic.encode(errors="replace")[: wire_layout.TOPIC_NAME_MAX]  # a pattern may be longer
        state = wire_layout.ENTRY_WILDCARD if wildcard else wire_layout.ENTRY_RECEIVER
        return self._add(state=state, name=name, gmd_identity=gmd_identity)

    def add_reception(self, advert: SessionAdvert, local: int) -> int:
        """Adds a session received over UDP into the context's ring `local`, and returns the number of its entry."""
        return self._add(
            state=wire_layout.ENTRY_RECEPTION,
            local=local,
            transport=advert.transport,
            session_id=advert.session_id,
            context_id=advert.context_id,
            name=advert.source_string.encode(),
        )

    def add_recorder(self, log: str) -> int:
        """Adds a recorder by the path of its log, and returns the number of its entry."""
        name, room = log.encode(errors="replace"), wire_layout.RECORDER_ENTRY["name"].itemsize - 1
        return self._add(
            state=wire_layout.ENTRY_RECORDER, name=name if len(name) <= room else b"..." + name[3 - room :]
        )

    def show_counters(self, values: dict[str, int]) -> None:
        """Writes the counters of the context, by their names in the header."""
        if self.fd >= 0:
            for name, value in values.items():
                if self._shown.get(name) != value:
                    self._header[name] = self._shown[name] = value

    def entry_offset(self, entry: int) -> int:
        """Returns where an entry begins in the mapping, in bytes; it never moves."""
        return wire_layout.REGISTRY_HEADER.itemsize + entry * wire_layout.REGISTRY_ENTRY.itemsize

    def remove(self, entry: int) -> None:
        """Frees an entry."""
        with self._lock, self._changing():
            self._entry(entry)["state"] = wire_layout.ENTRY_FREE
            heapq.heappush(self._free, entry)

    def close(self) -> None:
        """Removes the registry, which a context removes last."""
        if self.fd >= 0:
            segment.remove(self.name)
            self.abandon()

    def abandon(self) -> None:
        """Closes the descriptor and with it the lock; for a child after a fork."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def _add(self, **fields: object) -> int:
        with self._lock:
            if not self._free:
                self._grow(int(self._header["entries"]))
            free = self._free[0]
            with self._changing():
                entry = self._entry(free)
                state = fields.pop("state")
                # As bytes, because assigning the structure would not clear the bytes between its fields.
                self.mapping.view(self.entry_offset(free), wire_layout.REGISTRY_ENTRY.itemsize)[:] = bytes(entry.nbytes)
                entry["since_ns"] = time.time_ns()
                for field, value in fields.items():
                    entry[field] = value
                entry["state"] = state
            return heapq.heappop(self._free)

    def _grow(self, count: int) -> None:
        size = min(wire_layout.registry_bytes(2 * count), _RESERVE)
        segment.allocate(self.fd, self.name, size)
        self._header["entries"] = (size - wire_layout.REGISTRY_HEADER.itemsize) // wire_layout.REGISTRY_ENTRY.itemsize
        self._free = list(range(count, int(self._header["entries"])))

    def _entry(self, index: int) -> np.ndarray[tuple[()], np.dtype[np.void]]:
        view = self.mapping.view(self.entry_offset(index), wire_layout.REGISTRY_ENTRY.itemsize)
        return np.frombuffer(view, wire_layout.REGISTRY_ENTRY, 1).reshape(())

    @contextmanager
    def _changing(self) -> Iterator[None]:
        version = self._words.load64(_VERSION)
        self._words.store64(_VERSION, version + 1)
        self._words.fence()
        try:
            yield
        finally:
            self._words.store64(_VERSION, version + 2)


def lives(domain: str, context_id: int) -> bool | None:
    """Returns whether a context of this host lives; None where its registry is not there, or may not be read.

    Raises:
        OSError: its registry cannot be opened now, for example without a free file descriptor.
    """
    try:
        registry = PeerRegistry(object_names.registry(domain, context_id))
    except RingError:
        return None
    try:
        return registry.alive()
    finally:
        registry.close()


class PeerRegistry:
    """The reader's side of a registry: that of another context, or this context's own."""

    def __init__(self, name: str) -> None:
        """Opens a registry by name.

        Raises:
            ringbuf.ring_errors.SegmentGone: the registry does not exist any more, or is not ready yet.
            ringbuf.ring_errors.SegmentRefused: its owner hides it.
            ringbuf.ring_errors.SegmentMismatch: a program with another layout made it.
        """
        self.name = name
        parsed = object_names.parse(name)
        self.context_id = 0 if parsed is None else parsed[1]
        self.fd = segment.open_fd(name, write=False)
        try:
            stat = os.fstat(self.fd)
            self.uid = stat.st_uid
            if stat.st_size < wire_layout.registry_bytes(1):
                raise SegmentGone(f"{name} has {stat.st_size} bytes, too few for a registry; its owner is starting")
            header = self._header()
            self.pid = int(header["pid"])
            if header["magic"] == 0:
                raise SegmentGone(f"{name} is not ready yet; its owner is starting")
            if header["magic"] != MAGIC or header["layout_id"] != wire_layout.LAYOUT_ID:
                raise SegmentMismatch(
                    f"{name} (pid {self.pid}) was made by ipcbus {text(header['release'])} with layout "
                    f"{int(header['layout_id']):#010x}, this program has {wire_layout.LAYOUT_ID:#010x}; run the same "
                    "release on both sides"
                )
        except BaseException:
            os.close(self.fd)
            raise

    def version(self) -> int:
        """Returns a number that changes with each entry; -1 if the registry was truncated."""
        word = os.pread(self.fd, 8, _VERSION)
        return int.from_bytes(word, "little") if len(word) == 8 else -1

    def alive(self) -> bool:
        """Returns whether the owner still holds its lock."""
        return liveness.held_by_other(*self.owner_lock())

    def owner_lock(self) -> tuple[int, int]:
        """Returns the descriptor and the byte of the lock that the owner holds while it lives."""
        return self.fd, OWNER_BYTE

    def read(self, *, receivers: bool = True) -> tuple[int, ContextAdvert] | None:
        """Returns version and contents of one moment; None while the owner keeps changing the registry.

        Args:
            receivers: whether to read the receivers, too; without them it is faster.
        """
        copied = self._copy_of_one_moment()
        if copied is None:
            return None
        version, header, entries = copied
        return version, decode(header, entries, self.context_id, receivers=receivers)

    def receivers(self, topic: str | None = None) -> tuple[ReceiverAdvert, ...] | None:
        """Returns the receivers of one moment; None while the owner keeps changing the registry.

        Args:
            topic: where it is given, only its receivers and all wildcard receivers.
        """
        copied = self._copy_of_one_moment()
        return None if copied is None else decode_receivers(copied[2], topic)

    def close(self) -> None:
        """Closes the registry."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def _header(self) -> Any:  # noqa: ANN401 - one structured item
        size = wire_layout.REGISTRY_HEADER.itemsize
        # Read, not mapped, so that truncation by another user is a short read instead of a SIGBUS.
        return np.frombuffer(os.pread(self.fd, size, 0).ljust(size, b"\0"), wire_layout.REGISTRY_HEADER, 1)[0]

    def _copy_of_one_moment(self) -> tuple[int, Any, np.ndarray[tuple[int], np.dtype[np.void]]] | None:
        """Returns version, header and entries."""
        spent = 0
        for _ in range(_TRIES):
            before = self.version()
            if before % 2 == 0:
                header, entries = self._copy()
                spent += entries.nbytes
                if self.version() == before:
                    return before, header, entries
            if spent >= _RESERVE:
                return None  # limits the time for a registry that is too large and keeps changing
            os.sched_yield()
        return None

    def _copy(self) -> tuple[Any, np.ndarray[tuple[int], np.dtype[np.void]]]:
        header = self._header()
        item = wire_layout.REGISTRY_ENTRY.itemsize
        size = min(int(header["entries"]) * item, _RESERVE)
        data = os.pread(self.fd, size, wire_layout.REGISTRY_HEADER.itemsize)
        return header, np.frombuffer(data, wire_layout.REGISTRY_ENTRY, len(data) // item)
