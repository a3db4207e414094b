"""Looks into shared memory, past the public face."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np

from ipcbus.resolution.local import object_names
from ipcbus.resolution.local.registry import PeerRegistry
from ipcbus.wire.wire_layout import TOPIC_LINE
from ringbuf import layout

if TYPE_CHECKING:
    from ipcbus import Context, Receiver, Source
    from ipcbus.resolution.local.adverts import ContextAdvert

ROOT = "/dev/shm"


def ring_header(source: Source) -> np.ndarray[Any, Any]:
    """The header of the ring that a source sends on."""
    return layout.ring_view(source._session.channel.ring.view())[0]


def slots(source: Source) -> np.ndarray[Any, Any]:
    """The receiver slots of the session that a source sends on."""
    return layout.control_view(source._session.channel.control.view())[2]


def published(source: Source) -> int:
    """Datagrams that the source's session has published."""
    return int(ring_header(source)["msgs_sent"])


def datagrams(receiver: Receiver) -> int:
    """Datagrams that reached the receiver's context on its only session."""
    (session,) = receiver.sessions
    return session.counters["msgs_rcved"]


def callback_errors(receiver: Receiver) -> int:
    """Exceptions of the receiver's callback, as counted."""
    return receiver._sink.callback_errors


def queued(receiver: Receiver) -> int:
    """Messages and events that wait in a pull receiver."""
    return len(receiver._sink.queue)


def advert(context: Context) -> ContextAdvert:
    """What a context's registry says to the others."""
    peer = PeerRegistry(object_names.registry(context.domain, context._id))
    try:
        found = peer.read()
        assert found is not None
        return found[1]
    finally:
        peer.close()


def objects(domain: str) -> list[str]:
    """Names of a domain's objects."""
    return sorted(name for name in os.listdir(ROOT) if name.startswith(object_names.domain_prefix(domain)))


def rings(domain: str) -> list[str]:
    """Names of the domain's rings."""
    return [name for name in objects(domain) if name.rpartition(".")[2].startswith("r")]


class DistantRing:
    """A ring of another process, mapped for reading; it stays readable when its owner dies."""

    def __init__(self, name: str) -> None:
        self._bytes = memoryview(np.memmap(f"{ROOT}/{name}", np.uint8, "r"))  # type: ignore[arg-type]

    def sent(self, line: int = 0) -> tuple[int, int]:
        """How many messages of a topic were published for certain, and how many the source had begun."""
        header, _ = layout.ring_view(self._bytes)
        lines = np.frombuffer(self._bytes, TOPIC_LINE, line + 1, int(header["user_offset"]))
        return int(lines[line]["published"]), int(lines[line]["sequence_next"])
