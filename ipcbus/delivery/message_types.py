"""The kinds of messages and events that a receiver gets."""

from __future__ import annotations

from enum import Enum, IntEnum
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator


class NamedNumber(IntEnum):
    """A number that is printed by its name, such as `MessageType.DATA`; a format as of numbers still prints it so."""

    __str__ = Enum.__str__

    def __format__(self, spec: str) -> str:
        """Returns the name without a format, and else what the format makes of the number."""
        return format(int(self), spec) if spec else str(self)


class MessageType(NamedNumber):
    """The kind of a message or event; numbered as in Ultra Messaging where it has the kind (lbm.h, LBM_MSG_*).

    Attributes:
        DATA: a message.
        EOS: the session has ended, or the source does not send the topic any more.
        REQUEST: a message that waits for answers (`Message.respond`).
        RESPONSE: an answer to a request.
        UNRECOVERABLE_LOSS: a message is lost for good.
        UNRECOVERABLE_LOSS_BURST: several messages that follow each other are lost for good.
        NO_SOURCE_NOTIFICATION: no source was found for the topic.
        BOS: a session of the topic begins.
        GMD_FAILURE: the source's application has deleted guaranteed messages that this receiver with a `gmd_name` has
            not acknowledged; those of `first_gmd_sequence_number` to `gmd_sequence_number` do not come any more.
    """

    DATA = 0
    EOS = 1
    REQUEST = 2
    RESPONSE = 3
    UNRECOVERABLE_LOSS = 4
    UNRECOVERABLE_LOSS_BURST = 5
    NO_SOURCE_NOTIFICATION = 6
    BOS = 20
    GMD_FAILURE = 100


LOSSES: Final = (MessageType.UNRECOVERABLE_LOSS, MessageType.UNRECOVERABLE_LOSS_BURST)
"""The kinds of losses."""


def loss_events(first: int, last: int, *, burst: bool) -> Iterator[tuple[MessageType, int, int]]:
    """Yields kind, first and last number of each event for a lost range: one for each number, or one for a burst."""
    if burst:
        yield MessageType.UNRECOVERABLE_LOSS_BURST, first, last
    else:
        for number in range(first, last + 1):
            yield MessageType.UNRECOVERABLE_LOSS, number, number


class MessageFlag(IntEnum):
    """The bits of `Message.flags`; Ultra Messaging's numbers where it has the flag (lbm.h, LBM_MSG_FLAG_*).

    `Message.flags` is a word of its own. The eight flags in a message's header on the wire are other ones: 0x8 is topic
    sequence number info there.

    Attributes:
        START_BATCH: the first message of an explicit batch.
        END_BATCH: the last message of an explicit batch.
        LATE_JOIN: the source sent the message before the receiver joined, or while it caught up.
        PROPERTIES: with `ordered_delivery` 0: a fragment of a message with headers.
        REQUEST: with `ordered_delivery` 0: a fragment of a request; in an archive: a request.
        GUARANTEED: with `ordered_delivery` 0: a fragment of a guaranteed message.
        OTR: the message was lost on the transport, and off-transport recovery brought it.
        GMD_RESEND: the source sent the message again under guaranteed delivery.
        UMQ_REASSIGNED: the message of a share was assigned before, to this member or to another one.
        UMQ_ULB: the message was assigned to a member of a share.
    """

    START_BATCH = 0x1
    END_BATCH = 0x2
    LATE_JOIN = 0x8
    PROPERTIES = 0x10
    REQUEST = 0x40
    GUARANTEED = 0x80
    OTR = 0x2000
    GMD_RESEND = 0x10000
    UMQ_REASSIGNED = 0x20000
    UMQ_ULB = 0x40000


class FragmentInfo(NamedTuple):
    """The place of a fragment in its message (Ultra Messaging: lbm_msg_retrieve_fragment_info)."""

    first_sequence_number: int
    offset: int
    total_length: int
