"""Messages, and the events of sources."""

from __future__ import annotations

from dataclasses import dataclass

from ipcbus.delivery.message_types import FragmentInfo, MessageFlag, MessageType, NamedNumber
from ipcbus.delivery.received_message import Message

__all__ = ["FragmentInfo", "Message", "MessageFlag", "MessageType", "SourceEvent", "SourceEventType"]


class SourceEventType(NamedNumber):
    """The kind of a source event, with Ultra Messaging's number where it has the kind (lbm.h, LBM_SRC_EVENT_*).

    Attributes:
        CONNECT: a receiving context has joined the topic.
        DISCONNECT: a receiving context has left the topic, or has died.
        WAKEUP: there is room again after a send that raised `WouldBlock`.
        RECEIVER_EVICTED: the source has evicted a receiving context that kept it waiting.
        GMD_FAILURE: a guaranteed message cannot be delivered. Its copy stays in the GMD area until the application
            calls `Source.gmd_resend` or `Source.gmd_delete`, or a receiver that returns acknowledges the message.
            Without `on_event` the source logs a warning.
        GMD_DELIVERED: the delivery of guaranteed messages is complete (option gmd_confirm_delivery).
        SHARE_FAILURE: a message is not delivered to a share. Without `on_event` the first one is logged.
    """

    CONNECT = 1
    DISCONNECT = 2
    WAKEUP = 3
    RECEIVER_EVICTED = 100
    GMD_FAILURE = 101
    GMD_DELIVERED = 102
    SHARE_FAILURE = 103


@dataclass(frozen=True, slots=True)
class SourceEvent:
    """An event of a source, which the source gives to its `on_event`.

    Attributes:
        type: the kind of the event.
        pid: process id of the receiving context; 0 for WAKEUP.
        context_name: name of the receiving context; empty if the context has no name, and for WAKEUP.
        message: with GMD_FAILURE the message; None if its copy is damaged.
        receiver: with GMD_FAILURE the `gmd_name` of the receiver; empty if no receiver was expected.
        error_number: with GMD_FAILURE why, as in SmartSockets: 518 it was not acknowledged within its delivery timeout;
            519 the receiver went away and did not return; 520 the receiver, whose gmd_disconnect_mode is gmd_failure,
            went away; 521 no receiver was expected; also 522 the receiver gave it up after gmd_max_deliveries; 24 its
            copy is damaged.
        send_time_ns: with GMD_FAILURE when the message was sent for the first time, in ns since the Unix epoch.
        gmd_sequence_number: the GMD number of the message; with GMD_DELIVERED of the last message.
        first_gmd_sequence_number: with GMD_DELIVERED the GMD number of the first message.
        share: with SHARE_FAILURE the name of the share.
        reason: with SHARE_FAILURE why, as a text.
        deliveries: with SHARE_FAILURE how often the message was assigned to members.
        sequence_number: with SHARE_FAILURE the last topic number.
        first_sequence_number: with SHARE_FAILURE the first topic number.
    """

    type: SourceEventType
    pid: int = 0
    context_name: str = ""
    message: Message | None = None
    receiver: str = ""
    error_number: int = 0
    send_time_ns: int = 0
    gmd_sequence_number: int = 0
    first_gmd_sequence_number: int = 0
    share: str = ""
    reason: str = ""
    deliveries: int = 0
    sequence_number: int = 0
    first_sequence_number: int = 0
