"""When the driver of a context leaves the ACKs to a thread that sends."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from ipcbus.transport.udp.ack_watch import MORE_NS, SENDING_NS, STREAM_BYTES, UNSEEN_NS, AckWatch

if TYPE_CHECKING:
    from ipcbus.transport.udp.datagram_relay import RecordSender

NOW_NS = 10**12


def records(**other: object) -> RecordSender:
    """A thread that sends a stream."""
    usual = {"sent_ns": NOW_NS, "has_ample_room": True, "position": STREAM_BYTES}
    return cast("RecordSender", SimpleNamespace(**(usual | other)))


def looked_at(now_ns: int) -> AckWatch:
    """One that has looked twice at position 0."""
    watch = AckWatch()
    watch.looked(records(position=0), now_ns)
    watch.looked(records(position=0), now_ns)
    return watch


def test_a_stream_takes_its_acks_itself() -> None:
    assert looked_at(NOW_NS).leaves(records(), NOW_NS)
    assert looked_at(NOW_NS - UNSEEN_NS + 1).leaves(records(), NOW_NS)


@pytest.mark.parametrize(
    "other",
    [
        {"sent_ns": NOW_NS - SENDING_NS},  # it has stopped
        {"has_ample_room": False},  # it may wait soon
        {"position": STREAM_BYTES - 1},  # it may have sent a request, whose answer comes soon
    ],
)
def test_a_thread_that_may_not_look_soon_leaves_them_to_the_driver(other: dict[str, Any]) -> None:
    assert not looked_at(NOW_NS).leaves(records(**other), NOW_NS)


def test_after_a_stream_the_answer_to_a_request_is_awaited_again() -> None:
    watch = looked_at(NOW_NS)
    assert watch.leaves(records(), NOW_NS)
    watch.looked(records(), NOW_NS)
    assert watch.leaves(records(), NOW_NS)
    watch.looked(records(), NOW_NS)
    assert not watch.leaves(records(), NOW_NS)


def test_the_driver_looks_where_no_thread_has_looked_lately() -> None:
    assert not AckWatch().leaves(records(), NOW_NS)
    assert not looked_at(NOW_NS - UNSEEN_NS).leaves(records(), NOW_NS)


def test_the_driver_looks_for_a_while_after_something_else_than_an_ack() -> None:
    watch = looked_at(NOW_NS)
    watch.more_came(NOW_NS - MORE_NS + 1)
    assert not watch.leaves(records(), NOW_NS)
    watch.more_came(NOW_NS - MORE_NS)
    assert watch.leaves(records(), NOW_NS)
