"""Messages between the processes of one host through lock-free rings in shared memory.

with ipcbus.Context() as ctx:
src = ctx.source("quotes.AAPL")
rcv = ctx.receiver("quotes.AAPL", print)
src.wait_for_receivers(1, timeout=5)
src.send(b"191.24")
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
        OffsetsExpired,
        PermissionRefused,
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
    from ipcbus.message import FragmentInfo, Message, MessageType, SourceEvent, SourceEventType
    from ipcbus.receiver import Receiver
    from ipcbus.runtime.receiving.session_info import SessionInfo, SourceNotification, SourceNotificationType
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
    "IpcBusError",
    "LayoutMismatch",
    "Message",
    "MessageTooLarge",
    "MessageType",
    "OffsetsExpired",
    "PermissionRefused",
    "Receiver",
    "ReservationError",
    "SegmentDamaged",
    "SessionGone",
    "SessionInfo",
    "SharedMemoryFull",
    "SinkError",
    "Source",
    "SourceEvent",
    "SourceEventType",
    "SourceNotification",
    "SourceNotificationType",
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
        "OffsetsExpired",
        "PermissionRefused",
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
    "ipcbus.message": (
        "FragmentInfo",
        "Message",
        "MessageType",
        "SourceEvent",
        "SourceEventType",
    ),
    "ipcbus.receiver": ("Receiver",),
    "ipcbus.runtime.receiving.session_info": (
        "SessionInfo",
        "SourceNotification",
        "SourceNotificationType",
    ),
    "ipcbus.source": ("Source",),
    "ipcbus.wildcard": ("WildcardReceiver",),
}


def __getattr__(name: str) -> object:
    """A public name or a module of the package, loaded when it is first asked for.

    The statistics, and the commands that need only them, start in half of the time that everything takes to load.
    """
    for home, names in _HOMES.items():
        if name in names:
            globals()[name] = found = getattr(importlib.import_module(home), name)
            return found
    if not name.startswith("_") and importlib.util.find_spec(f"{__name__}.{name}"):
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """The public names, loaded or not."""
    return sorted({*globals(), *__all__})


@atexit.register
def _close_all() -> None:
    """Closes what contexts are open at the end; what the application registers after its import comes before that."""
    context = sys.modules.get("ipcbus.context")
    if context is not None:
        context.close_all()
