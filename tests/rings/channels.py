"""Small rings for tests, named after the test's domain so that whatever is left of them is found."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

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


def shape(
    *,
    source_paced: bool = False,
    window: int = WINDOW,
    record_max: int = 0,
    slots_max: int = 4,
    control_user: int = 64,
    group: str = "",
) -> Shape:
    """A ring's shape; the longest record is half the window unless said."""
    return Shape(
        session_id=0x51E55104,
        window=window,
        record_max=record_max or window // 2,
        source_paced=source_paced,
        slots_max=slots_max,
        ring_user=128,
        control_user=control_user,
        group=group,
    )


@contextmanager
def owned(domain: str, **values: Any) -> Iterator[OwnedChannel]:
    """The writing side; closed and removed at the end."""
    channel = OwnedChannel(ring_name(domain), control_name(domain), shape(**values))
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
