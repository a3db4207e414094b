"""The terms of guaranteed delivery, at a source and at a receiver; the defaults are those of the options."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Final

from ipcbus.wire import gmd_messages

FOREVER_NS: Final = (1 << 63) - 1
"""A time in ns that never comes."""

_SECOND: Final = 1_000_000_000
_MS: Final = 1_000_000


class GmdErrorNumber(IntEnum):
    """Why a guaranteed message failed: SmartSockets' numbers, and one of our own."""

    AREA_DAMAGED = 24
    """The copy in the area is damaged, so that the message cannot be sent again."""
    SENDER_TIMEOUT = 518
    """No acknowledgement came within the delivery timeout."""
    RECEIVER_TIMEOUT = 519
    """The receiver went away, and did not return within the reconnect timeout."""
    RECEIVER_EXIT = 520
    """The receiver, whose disconnect mode is `gmd_failure`, went away."""
    NO_RECEIVERS = 521
    """No receiver was expected when the message was sent."""
    RECEIVER_REFUSED = 522
    """The receiver gave the message up after `gmd_max_deliveries` deliveries."""


class ZeroReceivers(Enum):
    """What becomes of a message that is sent while no receiver is expected."""

    WAIT = "wait"
    """It waits for the first receiver that registers."""
    SUCCESS = "success"
    """It counts as acknowledged."""
    FAILURE = "failure"
    """It fails with `GmdErrorNumber.NO_RECEIVERS`."""


@dataclass(frozen=True, slots=True)
class SenderSettings:
    """The options of a guaranteed source. Times in ns.

    Attributes:
        zero_receivers: option gmd_zero_receivers.
        reconnect_timeout_ns: option gmd_reconnect_timeout: how long the source waits for a receiver that went away; 0
            for ever.
        confirms: whether acknowledged messages are reported with `Confirmed`.
        turn_bytes: most bytes of messages that one turn sends again.
        piece_bytes: about as many bytes of messages stand in one GMD_RESENT.
        message_max: longest control message in bytes.
        names_max: most names that the area records.
        probe_ns: a receiver that owes acknowledgements and acknowledges nothing for this time is notified how far the
            numbers are; the time doubles up to `probe_max_ns`.
        probe_max_ns: see `probe_ns`.
    """

    zero_receivers: ZeroReceivers = ZeroReceivers.WAIT
    reconnect_timeout_ns: int = 300 * _SECOND
    confirms: bool = False
    turn_bytes: int = 256 << 10
    piece_bytes: int = 32 << 10
    message_max: int = 64 << 20
    names_max: int = 1000
    probe_ns: int = _SECOND
    probe_max_ns: int = 60 * _SECOND


@dataclass(frozen=True, slots=True)
class ReceiverSettings:
    """The options of a named receiver. Times in ns.

    Attributes:
        disconnect_mode: option gmd_disconnect_mode, one of `gmd_messages.WARM`, `GMD_FAILURE`, `GMD_SUCCESS`.
        unrecorded_max: option gmd_unrecorded_maximum: most acknowledged messages that the area has not recorded.
        deliveries_max: option gmd_max_deliveries; 0 for ever.
        backoff_ns: from the first refusal of a message to its next delivery; it doubles with each refusal.
        backoff_max_ns: the longest such time.
        held_messages_max: most live messages that wait behind resent ones.
        held_bytes_max: most bytes of them.
        request_bytes: about as many bytes of messages are asked for at a time.
        register_interval_ns: from a registration without an answer, or with a refusal, to the next one.
        ask_interval_ns: from a request without an answer to the next one; it doubles up to `ask_interval_max_ns`.
        ask_interval_max_ns: see `ask_interval_ns`.
        return_ns: from the end of a session until its losses are reported if the sender does not return.
    """

    disconnect_mode: int = gmd_messages.WARM
    unrecorded_max: int = 64
    deliveries_max: int = 0
    backoff_ns: int = 100 * _MS
    backoff_max_ns: int = 60 * _SECOND
    held_messages_max: int = 10_000
    held_bytes_max: int = 4 << 20
    request_bytes: int = 1 << 20
    register_interval_ns: int = 500 * _MS
    ask_interval_ns: int = 2 * _SECOND
    ask_interval_max_ns: int = 30 * _SECOND
    return_ns: int = 300 * _SECOND
