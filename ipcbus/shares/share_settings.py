"""The terms of the shares of a source, and what it reports."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

FOREVER_NS = 1 << 62
"""A time that does not come."""


class ShareLoss(StrEnum):
    """Why a message of a share is given up."""

    DELIVERIES = "it was assigned umq_ulb_message_max_reassignments times"
    LIFETIME = "it is older than umq_ulb_message_lifetime"
    NO_MEMBER = "the share has no member, and more than umq_ulb_flight_size messages wait"
    TOO_LONG = "it is longer than control_channel_message_maximum"
    NOT_KEPT = "retransmit_retention_size_limit has no room for it"
    CLOSED = "the source was closed"


@dataclass(frozen=True, slots=True)
class ShareSettings:
    """The options of a source for its shares.

    Attributes:
        flight_max: messages that may wait or be in flight in one share (umq_ulb_flight_size).
        reassign_ns: a message that is not acknowledged after this time is assigned again; 0: never.
        deliveries_max: how often a message is assigned; 0 for no limit.
        lifetime_ns: a message that waits is given up after this time; 0: never.
        entry_max: bytes of the longest entry that a control channel takes.
    """

    flight_max: int = 1000
    reassign_ns: int = 0
    deliveries_max: int = 0
    lifetime_ns: int = 0
    entry_max: int = 1 << 62


@dataclass(frozen=True, slots=True)
class LostWork:
    """A report of messages that are given up.

    Attributes:
        share: the name of the share.
        first: the first topic number.
        last: the last topic number.
        reason: why.
        deliveries: how often they were assigned.
        entry: one message as an entry of a SHARE_WORK; empty when the share does not have it.
    """

    share: str
    first: int
    last: int
    reason: ShareLoss
    deliveries: int = 0
    entry: bytes = b""


@dataclass(frozen=True, slots=True)
class ShareStatistics:
    """Figures of one share of a source. What was sent since the share began is `pending + consumed + lost`.

    Attributes:
        members: members that are registered now.
        pending: messages that are not acknowledged; they wait, or members have them.
        in_flight: those of them that members have.
        consumed: messages that were acknowledged.
        reassigned: assignments of messages that were assigned before.
        lost: messages that were given up; each is reported.
        dead_letters: those of them that were assigned `umq_ulb_message_max_reassignments` times.
    """

    members: int
    pending: int
    in_flight: int
    consumed: int
    reassigned: int
    lost: int
    dead_letters: int
