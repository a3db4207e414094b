"""Live messages that a named receiver did not get, and that its source does not send again: they are told as lost."""

from __future__ import annotations

from ipcbus.wire import gmd_messages
from tests.kit.gmd_pair import Receiver, Source


def test_live_messages_that_the_source_has_released_or_never_had_for_the_receiver_are_lost() -> None:
    source = Source()
    one = Receiver(source)
    source.run()
    one.machine.receive(gmd_messages.Next(5, 1, 77, 3, 6), source.now_ns)  # others have acknowledged 1 and 2
    for number in (1, 2):
        one.live(number, number - 1)
        one.live(number, number - 1)
    assert one.take() == [(0, 0), (1, 1)]  # each once
    nothing = gmd_messages.decode(gmd_messages.resent(5, 1, 77, 3, 5, 0, []))
    assert isinstance(nothing, gmd_messages.Resent)
    one.machine.receive(nothing, source.now_ns)
    one.live(3, 2)
    one.live(5, 4)
    assert one.take() == [(2, 2), 5]
    one.live(5, 4)
    assert one.take() == []
    assert one.machine.duplicates == 3


def test_messages_that_are_held_when_the_source_releases_them_are_lost() -> None:
    source = Source()
    one = Receiver(source)
    source.run()
    one.lost(0, 0)
    one.live(2, 1)
    one.live(0, 2)
    one.machine.receive(gmd_messages.Next(5, 1, 77, 3, 3), source.now_ns)
    one.drain()
    assert one.take() == [(0, 0), (1, 1), 0]


def test_a_deletion_is_told_although_the_source_has_said_before_that_nothing_below_is_left() -> None:
    source = Source()
    one = Receiver(source)
    source.run()
    one.machine.receive(gmd_messages.Next(5, 1, 77, 3, 6), source.now_ns)
    one.machine.receive(gmd_messages.Delete(5, 1, 77, [(2, 2), (4, 4)]), source.now_ns)
    one.drain()
    assert one.take() == ["2-2", "4-4"]
    one.live(2, 1)
    one.live(4, 3)
    assert one.take() == []  # told already
