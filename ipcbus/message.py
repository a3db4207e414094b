"""What receivers and sources are told."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from ipcbus.delivery.message_types import FragmentInfo, MessageType
from ipcbus.delivery.received_message import Message

__all__ = ["FragmentInfo", "Message", "MessageType", "SourceEvent", "SourceEventType"]


class SourceEventType(IntEnum):
    """Kind of a source event; numbers are Ultra Messaging's where it has the kind (lbm.h, LBM_SRC_EVENT_*)."""

    CONNECT = 1
    DISCONNECT = 2
    WAKEUP = 3
    RECEIVER_EVICTED = 100
    GMD_FAILURE = 101


@dataclass(frozen=True, slots=True)
class SourceEvent:
    """Something that happened to a source.

    Attributes:
        type: what happened.
        pid: process id of the other side; 0 for WAKEUP.
        context_name: name of the other side's context; empty when it has none.
    """

    type: SourceEventType
    pid: int = 0
    context_name: str = ""
