"""Messages between the processes of one host through lock-free rings in shared memory.

with ipcbus.Context() as ctx:
src = ctx.source("quotes.AAPL")
rcv = ctx.receiver("quotes.AAPL", print)
src.wait_for_receivers(1, timeout=5)
src.send(b"191.24")
"""

from ipcbus.context import Context
from ipcbus.errors import (
    ClosedError,
    ConfigError,
    GmdAreaDamaged,
    GmdAreaFull,
    GmdAreaLocked,
    GmdError,
    IpcBusError,
    LayoutMismatch,
    MessageTooLarge,
    PermissionRefused,
    ReservationError,
    SessionGone,
    SharedMemoryFull,
    TransportError,
    WouldBlock,
    WrongProcess,
    WrongThread,
)
from ipcbus.event_queue import EventQueue, EventQueueStatistics
from ipcbus.message import FragmentInfo, Message, MessageType, SourceEvent, SourceEventType
from ipcbus.receiver import Receiver
from ipcbus.runtime.info import SessionInfo, SourceNotification, SourceNotificationType
from ipcbus.source import Source
from ipcbus.version import __version__
from ipcbus.wildcard import WildcardReceiver

__all__ = [
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
    "PermissionRefused",
    "Receiver",
    "ReservationError",
    "SessionGone",
    "SessionInfo",
    "SharedMemoryFull",
    "Source",
    "SourceEvent",
    "SourceEventType",
    "SourceNotification",
    "SourceNotificationType",
    "TransportError",
    "WildcardReceiver",
    "WouldBlock",
    "WrongProcess",
    "WrongThread",
    "__version__",
]
