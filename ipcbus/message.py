"""Messages, and the events of sources."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from ipcbus.delivery.message_types import FragmentInfo, MessageFlag, MessageType
from ipcbus.delivery.received_message import Message

__all__ = ["FragmentInfo", "Message", "MessageFlag", "MessageType", "SourceEvent", "SourceEventType"]


class SourceEventType(IntEnum):
    """The kind of a source event, with Ultra Messaging's number where it has the kind (lbm.h, LBM_SRC_EVENT_*).

    Attributes:
        CONNECT: a receiving context has joined the topic.
        DISCONNECT: a receiving context has left the topic, or has died.
        WAKEUP: there is room again after a send that raised `WouldBlock`.
        RECEIVER_EVICTED: the source has evicted a receiving context that kept it waiting.
        GMD_FAILURE: a guaranteed message cannot be delivered.
    """

    CONNECT = 1
    DISCONNECT = 2
    WAKEUP = 3
    RECEIVER_EVICTED = 100
    GMD_FAILURE = 101


@dataclass(frozen=True, slots=True)
class SourceEvent:
    """An event of a source, which the source gives to its `on_event`.

    Attributes:
        type: the kind of the event.
        pid: process id of the receiving context; 0 for WAKEUP.
        context_name: name of the receiving context; empty if the context has no name, and for WAKEUP.
    """

    type: SourceEventType
    pid: int = 0
    context_name: str = ""
