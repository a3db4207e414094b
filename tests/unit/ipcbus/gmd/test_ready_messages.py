"""What is in order at a receiver, until it is delivered; test_receiver_state has the way back to the stream."""

from __future__ import annotations

from ipcbus.gmd.held_messages import GaveUp, LiveMessage, Loss, ResentMessage
from ipcbus.gmd.ready_messages import ReadyMessages
from ipcbus.wire import gmd_messages, topic_places
from ipcbus.wire.number_ranges import NumberRanges
from ipcbus.wire.resent_entries import ResentEntries, checked

OPENING = 3


def run(first: int, last: int) -> ResentEntries:
    """Messages that came again in one piece, each with a value of 10 bytes."""
    packed = [
        gmd_messages.entry(number, 5, OPENING, topic_places.pack(number, number), b"", b"x" * 10)
        for number in range(first, last + 1)
    ]
    found = checked(b"".join(packed), 0, first, last + 1)
    assert found is not None
    return found


def test_a_run_stays_until_all_of_it_is_taken() -> None:
    ready, some = ReadyMessages(), run(1, 2)
    ready.put(some)
    ready.put(Loss(7, 8))
    assert (len(ready), ready.bytes) == (2, 20)
    for _ in range(2):
        assert ready.take() is some
        some.pop()
    assert (ready.take(), ready.bytes, len(ready)) == (Loss(7, 8), 0, 0)
    assert ready.take() is None


def test_what_is_withdrawn_leaves_the_rest_in_order() -> None:
    ready, some, live = ReadyMessages(), run(1, 4), LiveMessage(5, 5, 5, 6, None)
    for item in (some, live, GaveUp(9, 9)):
        ready.put(item)
    some.pop()
    assert ready.withdraw(NumberRanges([(1, 2), (4, 4)]), OPENING + 1) == [2, 4]
    assert len(some) == 0  # whoever delivers them finds the rest where it belongs
    assert ready.bytes == 16
    assert ready.take() == ResentMessage(3, 5, None, b"", b"x" * 10, is_late=False)
    assert (ready.take(), ready.bytes) == (live, 0)
    assert (ready.take(), ready.take()) == (GaveUp(9, 9), None)
