"""What guaranteed delivery reports to the application of a source."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ipcbus.gmd.sender_area import SavedMessage


@dataclass(frozen=True, slots=True)
class GmdFailure:
    """A message that a receiver has not acknowledged, and will not get unless the application sends it again.

    The copy stays in the area until `GmdSender.resend` or `GmdSender.delete` is called for it.

    Attributes:
        number: the GMD number.
        receiver: the name of the receiver; empty if no receiver was expected, or if the copy is damaged.
        error_number: a `GmdErrorNumber`.
        send_time_ns: when the message was sent for the first time, in ns since the epoch; 0 if the copy is damaged.
        message: the copy; None if it is damaged.
    """

    number: int
    receiver: str
    error_number: int
    send_time_ns: int
    message: SavedMessage | None


@dataclass(frozen=True, slots=True)
class Confirmed:
    """Messages whose delivery is complete: all numbers of first..last."""

    first: int
    last: int


class Registration(NamedTuple):
    """A receiver that registered or went away.

    Attributes:
        receiver: its name.
        is_connected: whether it is connected now.
        is_expected: whether the messages that are sent from now on are kept until it acknowledges them.
    """

    receiver: str
    is_connected: bool
    is_expected: bool


GmdEvent = GmdFailure | Confirmed | Registration


class Standing(Enum):
    """How far a message is."""

    UNKNOWN = "unknown"
    """No message has this number yet."""
    PENDING = "pending"
    """Acknowledgements are missing."""
    FAILED = "failed"
    """It failed for a receiver, and waits for the application's decision."""
    DONE = "done"
    """It was acknowledged or deleted; its copy is gone."""


@dataclass(frozen=True, slots=True)
class GmdStatus:
    """Which receivers have acknowledged a message. After it is done, the source does not know the names any more.

    Attributes:
        standing: how far the message is.
        succeeded: names of the receivers that acknowledged it.
        failed: names of the receivers for which it failed, each with its error number; the name is empty if no receiver
            was expected.
        pending: names of the receivers whose acknowledgement is missing.
    """

    standing: Standing
    succeeded: tuple[str, ...] = ()
    failed: tuple[tuple[str, int], ...] = ()
    pending: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class GmdSourceStatistics:
    """Figures of a guaranteed source since it was made.

    Attributes:
        pending: messages whose copies are in the GMD area.
        area_bytes: bytes that they take.
        oldest: age in seconds of the oldest of them; None without one.
        acknowledged: messages that were acknowledged, once for each receiver.
        failures: messages that failed, once for each receiver.
        resent: messages that were sent again, once for each receiver.
        refused: registrations and messages of receivers that were refused.
        ignored: messages of unregistered receivers, of other incarnations, or of numbers that were not given.
    """

    pending: int
    area_bytes: int
    oldest: float | None
    acknowledged: int
    failures: int
    resent: int
    refused: int
    ignored: int


@dataclass(frozen=True, slots=True)
class GmdReceiverStatistics:
    """Figures of a named receiver since it was made.

    Attributes:
        resent: messages that it got because their source sent them again.
        duplicates: messages that came again after they were acknowledged, and were dropped.
        failing: why its area cannot record what it acknowledges; empty while it can.
    """

    resent: int
    duplicates: int
    failing: str
