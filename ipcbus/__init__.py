"""Messages between the processes of one host through lock-free rings in shared memory.

A context makes sources, which send the messages of a topic, and receivers, which get them:

    import ipcbus

    with ipcbus.Context() as ctx:
        rcv = ctx.receiver("quotes.AAPL")  # here, or in any other process of this host
        src = ctx.source("quotes.AAPL")
        src.wait_for_receivers(1, timeout=5)
        src.send(b"191.24", flush=True)
        print(rcv.receive(timeout=5))  # an event: the beginning of the session
        print(rcv.receive(timeout=5).data)

Times are seconds, and lengths are bytes. Every error is an `ipcbus.IpcBusError`; its text names the cure.
"""

from __future__ import annotations

import atexit
import importlib
import importlib.util
import sys
from typing import TYPE_CHECKING

from ipcbus.version import __version__

if TYPE_CHECKING:
    from ipcbus.context import Context
    from ipcbus.errors import (
        ArchiveDamaged,
        ArchiveError,
        ArchiveLocked,
        ArchiveMissing,
        ClosedError,
        ConfigError,
        GmdAreaDamaged,
        GmdAreaFull,
        GmdAreaLocked,
        GmdError,
        IpcBusError,
        LayoutMismatch,
        MessageTooLarge,
        NoResponder,
        OffsetsExpired,
        PermissionRefused,
        QueueClosed,
        RequestTimeout,
        ReservationError,
        SegmentDamaged,
        SessionGone,
        SharedMemoryFull,
        SinkError,
        StorageError,
        StorageFull,
        TransportError,
        WouldBlock,
        WrongProcess,
        WrongThread,
    )
    from ipcbus.event_queue import EventQueue, EventQueueStatistics
    from ipcbus.gmd.gmd_events import GmdReceiverStatistics, GmdSourceStatistics, GmdStatus, Standing
    from ipcbus.message import FragmentInfo, Message, MessageFlag, MessageType, SourceEvent, SourceEventType
    from ipcbus.queue import Queue, QueueCounts
    from ipcbus.receiver import Receiver
    from ipcbus.runtime.receiving.session_info import SessionInfo, SourceNotification, SourceNotificationType
    from ipcbus.runtime.sending.asking import Request
    from ipcbus.shares.share_settings import ShareStatistics
    from ipcbus.source import Source
    from ipcbus.wildcard import WildcardReceiver

__all__ = [
    "ArchiveDamaged",
    "ArchiveError",
    "ArchiveLocked",
    "ArchiveMissing",
    "ClosedError",
    "ConfigError",
    "Context",
    "EventQueue",
    "EventQueueStatistics",
    "FragmentInfo",
    "GmdAreaDamaged",
    "GmdAreaFull",
    "GmdAreaLocked",
    "GmdError",
    "GmdReceiverStatistics",
    "GmdSourceStatistics",
    "GmdStatus",
    "IpcBusError",
    "LayoutMismatch",
    "Message",
    "MessageFlag",
    "MessageTooLarge",
    "MessageType",
    "NoResponder",
    "OffsetsExpired",
    "PermissionRefused",
    "Queue",
    "QueueClosed",
    "QueueCounts",
    "Receiver",
    "Request",
    "RequestTimeout",
    "ReservationError",
    "SegmentDamaged",
    "SessionGone",
    "SessionInfo",
    "ShareStatistics",
    "SharedMemoryFull",
    "SinkError",
    "Source",
    "SourceEvent",
    "SourceEventType",
    "SourceNotification",
    "SourceNotificationType",
    "Standing",
    "StorageError",
    "StorageFull",
    "TransportError",
    "WildcardReceiver",
    "WouldBlock",
    "WrongProcess",
    "WrongThread",
    "__version__",
]

_HOMES = {
    "ipcbus.context": ("Context",),
    "ipcbus.errors": (
        "ArchiveDamaged",
        "ArchiveError",
        "ArchiveLocked",
        "ArchiveMissing",
        "ClosedError",
        "ConfigError",
        "GmdAreaDamaged",
        "GmdAreaFull",
        "GmdAreaLocked",
        "GmdError",
        "IpcBusError",
        "LayoutMismatch",
        "MessageTooLarge",
        "NoResponder",
        "OffsetsExpired",
        "PermissionRefused",
        "QueueClosed",
        "RequestTimeout",
        "ReservationError",
        "SegmentDamaged",
        "SessionGone",
        "SharedMemoryFull",
        "SinkError",
        "StorageError",
        "StorageFull",
        "TransportError",
        "WouldBlock",
        "WrongProcess",
        "WrongThread",
    ),
    "ipcbus.event_queue": (
        "EventQueue",
        "EventQueueStatistics",
    ),
    "ipcbus.shares.share_settings": ("ShareStatistics",),
    "ipcbus.gmd.gmd_events": ("GmdReceiverStatistics", "GmdSourceStatistics", "GmdStatus", "Standing"),
    "ipcbus.message": (
        "FragmentInfo",
        "Message",
        "MessageFlag",
        "MessageType",
        "SourceEvent",
        "SourceEventType",
    ),
    "ipcbus.queue": ("Queue", "QueueCounts"),
    "ipcbus.receiver": ("Receiver",),
    "ipcbus.runtime.receiving.session_info": (
        "SessionInfo",
        "SourceNotification",
        "SourceNotificationType",
    ),
    "ipcbus.runtime.sending.asking": ("Request",),
    "ipcbus.source": ("Source",),
    "ipcbus.wildcard": ("WildcardReceiver",),
}


def __getattr__(name: str) -> object:
    """Loads a public name, or a module of the package, at its first use.

    So statistics, and the commands that need only them, start in half of the time that the whole package takes to load.
    """
    for home, names in _HOMES.items():
        if name in names:
            globals()[name] = found = getattr(importlib.import_module(home), name)
            return found
    if not name.startswith("_") and importlib.util.find_spec(f"{__name__}.{name}"):
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """Returns the public names, loaded or not."""
    return sorted({*globals(), *__all__})


@atexit.register
def _close_all() -> None:
    """Closes the open contexts at exit, after the functions that the application registered later than its import."""
    context = sys.modules.get("ipcbus.context")
    if context is not None:
        context.close_all()
