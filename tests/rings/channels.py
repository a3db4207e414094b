"""Small rings for tests, named after the test's domain so that whatever is left of them is found."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from ringbuf import layout
from ringbuf.channel import JoinedChannel, OwnedChannel, Shape
from ringbuf.slots import Identity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import numpy as np

WINDOW = layout.PAGE
"""The smallest ring: it wraps and fills soonest."""

PARKED = layout.CONTROL_HEADER.fields["parked"][1]  # type: ignore[index]
WRITER_WAITS = layout.CONTROL_HEADER.fields["writer_waits"][1]  # type: ignore[index]


def ring_name(domain: str) -> str:
    """Name of the test's ring object."""
    return f"ipcbus.{domain}.r"


def control_name(domain: str) -> str:
    """Name of the test's control block."""
    return f"ipcbus.{domain}.c"


def who(context_id: int = 1) -> Identity:
    """This process as a reader."""
    return Identity(os.getpid(), os.geteuid(), context_id, f"context {context_id}")


class Options(TypedDict, total=False):
    """What tests choose about a ring."""

    source_paced: bool
    evicts: bool
    checksums: bool
    window: int
    record_max: int
    slots_max: int
    control_user: int
    group: str


PACINGS: dict[str, Options] = {
    "receiver-paced": {},
    "source-paced": {"source_paced": True},
    "evicting": {"evicts": True},
}
"""Every pacing, by name."""


def shape(**options: Unpack[Options]) -> Shape:
    """A ring's shape; the longest record is half the window unless said."""
    window = options.get("window", WINDOW)
    return Shape(
        session_id=0x51E55104,
        window=window,
        record_max=options.get("record_max", window // 2),
        source_paced=options.get("source_paced", False),
        slots_max=options.get("slots_max", 4),
        ring_user=128,
        control_user=options.get("control_user", 64),
        group=options.get("group", ""),
        evicts=options.get("evicts", False),
        checksums=options.get("checksums", False),
    )


@contextmanager
def owned(domain: str, **options: Unpack[Options]) -> Iterator[OwnedChannel]:
    """The writing side; closed and removed at the end."""
    channel = OwnedChannel(ring_name(domain), control_name(domain), shape(**options))
    try:
        yield channel
    finally:
        channel.close()


def join(domain: str, context_id: int = 1, checkpoint: Callable[[str], None] | None = None) -> JoinedChannel:
    """A reading side; the caller has to leave."""
    return JoinedChannel(ring_name(domain), control_name(domain), who(context_id), checkpoint=checkpoint)


@contextmanager
def joined(domain: str, context_id: int = 1) -> Iterator[JoinedChannel]:
    """A reading side; leaves at the end."""
    channel = join(domain, context_id)
    try:
        yield channel
    finally:
        channel.leave()


def header_of(channel: OwnedChannel | JoinedChannel) -> np.ndarray[Any, Any]:
    """The ring's header as numpy sees it."""
    return layout.ring_view(channel.ring.view())[0]


def control_of(channel: OwnedChannel | JoinedChannel) -> np.ndarray[Any, Any]:
    """The control block's header as numpy sees it."""
    return layout.control_view(channel.control.view())[0]


def slots_of(channel: OwnedChannel | JoinedChannel) -> np.ndarray[Any, Any]:
    """The slots as numpy sees them."""
    return layout.control_view(channel.control.view())[2]


def read_all(channel: JoinedChannel) -> list[bytes]:
    """Every record that is there now; says in the slot that they are read."""
    found = []
    while (body := channel.reader.read()) is not None:
        found.append(body)
    channel.reader.show()
    return found


def fill_with_damaged(channel: OwnedChannel, length: int = 100) -> int:
    """Fills a new ring that has checksums with records whose bodies are damaged; returns how many there are."""
    step = layout.round_up(layout.RECORD_HEADER + length + layout.RECORD_TRAILER, layout.RECORD_ALIGN)
    damaged = 0
    while channel.writer.write(bytes(length)):
        at = int(header_of(channel)["data_offset"]) + damaged * step + layout.RECORD_HEADER
        channel.ring.view(at, 1)[0] ^= 1
        damaged += 1
    return damaged
