from __future__ import annotations

from ipcbus.gmd.gmd_settings import FOREVER_NS, ReceiverSettings
from ipcbus.gmd.received_stream import ReceivedStream, ReceivedStreams
from ipcbus.gmd.receiver_area import Acknowledged
from tests.kit.gmd_models import ModelReceiverArea
from tests.kit.gmd_pair import Receiver, Source

KEY = ("gateway", 7)


def stream_of(area: ModelReceiverArea, **settings: int) -> ReceivedStream:
    return ReceivedStreams(area, ReceiverSettings(**settings)).of(*KEY)


def test_acknowledgements_in_any_order_are_recorded() -> None:
    area = ModelReceiverArea()
    stream = stream_of(area, unrecorded_max=3)
    stream.next_number = 11
    stream.acknowledge(5, 6)
    assert area.records == 0
    stream.acknowledge(5, 20)
    assert area.recorded[KEY] == Acknowledged(0, [(5, 10)])
    stream.acknowledge(1, 2)
    stream.acknowledge(1, 2)
    assert area.records == 1
    assert stream.record()
    assert area.recorded[KEY] == Acknowledged(2, [(5, 10)])
    assert stream.record()
    assert area.records == 2
    assert list(stream.to_acknowledge) == [(1, 2), (5, 10)]
    later = stream_of(area)
    assert later.next_number == 3
    later.drop_below(5)
    assert later.next_number == 11


def test_a_refused_message_comes_again_later_each_time() -> None:
    stream = stream_of(ModelReceiverArea(), deliveries_max=3, backoff_ns=10, backoff_max_ns=15)
    stream.next_number = 5
    assert stream.refuse(9, 0, 0)
    assert stream.refuse(2, 0, 0)
    assert stream.refuse(2, 0, 0)
    assert stream.retry_ns == 10
    assert list(stream.wanted_holes()) == []
    assert list(stream.take_retries(9)) == []
    assert list(stream.take_retries(10)) == [2]
    assert list(stream.wanted_holes()) == [(2, 2)]
    stream.holes.remove(2, 2)
    assert stream.refuse(2, 30, 10)
    assert stream.retry_ns == 40
    stream.holes.remove(2, 2)
    assert list(stream.take_retries(40)) == []
    assert not stream.refuse(2, 0, 50)
    assert stream.to_refuse == [2]
    stream.settle(1, 2)
    assert not stream.holes


def test_an_area_that_fails_stops_acknowledgements() -> None:
    area = ModelReceiverArea()
    stream = stream_of(area, unrecorded_max=1)
    stream.next_number = 5
    area.fails = True
    stream.acknowledge(1, 1)
    assert stream.failing == "the disk is full"
    assert not stream.record()
    area.fails = False
    assert stream.record()
    assert stream.failing == ""


def test_numbers_that_are_given_again_are_forgotten() -> None:
    area = ModelReceiverArea({KEY: Acknowledged(20, [])})
    stream = stream_of(area)
    stream.begin_again_at(15)
    assert stream.next_number == 15
    assert list(stream.done) == [(0, 14)]
    assert stream.record()
    assert area.recorded[KEY] == Acknowledged(14, [])


def test_numbers_that_are_passed_over_are_holes() -> None:
    stream = stream_of(ModelReceiverArea({KEY: Acknowledged(2, [(5, 6)])}))
    stream.pass_over(8)
    assert list(stream.holes) == [(3, 4), (7, 7)]
    assert stream.next_number == 8
    stream.go_back(4)
    assert stream.next_number == 4
    assert list(stream.holes) == [(3, 3)]


def test_what_is_settled_is_asked_for_again_and_not_recorded() -> None:
    area = ModelReceiverArea()
    stream = stream_of(area)
    stream.next_number = 4
    stream.pass_over(6)
    stream.settle(1, 8)
    assert list(stream.settled) == [(4, 8)]
    assert stream.next_number == 9
    stream.acknowledge(2, 2)
    assert stream.record()
    assert area.recorded[KEY] == Acknowledged(0, [(2, 2)])
    stream.unsettle(0, 8)
    assert list(stream.holes) == [(4, 8)]
    stream.drop_below(6)
    assert list(stream.holes) == [(6, 8)]
    assert stream.record()
    assert area.recorded[KEY] == Acknowledged(5, [])


def test_streams_record_together() -> None:
    area = ModelReceiverArea()
    streams = ReceivedStreams(area, ReceiverSettings())
    one = streams.of("one", 1)
    assert streams.of("one", 1) is one
    one.next_number = 3
    one.acknowledge(1, 2)
    assert streams.record()
    assert area.recorded["one", 1] == Acknowledged(2, [])


def test_what_comes_again_was_not_lost_in_a_session_whose_source_died_before_it_registered_the_receiver() -> None:
    source = Source()
    before = Receiver(source)
    source.run()
    before.end()
    source.open()
    one = Receiver(source, streams=before.streams)
    source.send(to=())
    source.send_plain()
    source.send(to=())
    one.lost(0, 2)
    one.end()
    assert one.take() == []
    source.open()
    two = Receiver(source, streams=one.streams)
    source.send()
    source.run()
    assert two.take() == [-1, -2, -3]
    assert one.take() == [(1, 1)]
    assert not one.machine.withholds
    assert one.streams.unregistered == []


def test_losses_of_a_session_whose_source_never_registered_the_receiver_are_reported_when_none_returns() -> None:
    source = Source()
    one = Receiver(source)
    source.send(to=())
    one.lost(0, 0)
    one.end()
    due_ns = one.machine.turn(source.now_ns, lambda message: True)
    assert one.take() == []
    assert one.machine.turn(due_ns, lambda message: True) == FOREVER_NS
    assert one.take() == [(0, 0)]
    assert one.streams.unregistered == []


def test_a_session_that_never_registered_and_ends_after_messages_came_again_has_not_lost_them() -> None:
    source = Source()
    one = Receiver(source)
    source.send(to=())
    source.send_plain()
    source.open()
    two = Receiver(source, streams=one.streams)
    source.run()
    assert two.take() == [-1]
    one.lost(0, 1)
    one.end()
    assert one.take() == []
    source.send()
    source.run()
    assert (one.take(), two.take()) == ([(1, 1)], [2])
    assert one.streams.unregistered == []


def test_topic_numbers_of_few_openings_and_few_ranges_are_remembered() -> None:
    stream = stream_of(ModelReceiverArea())
    for opening in range(1, 100):
        stream.cover(opening, 5, 6)
    assert list(stream.came_again) == list(range(84, 100))
    for number in range(0, 20_000, 2):
        stream.cover(99, number, number)
    assert len(stream.came_again[99]) == 4096
    assert stream.came_again[99].highest == 19_998
