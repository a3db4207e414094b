"""A topic's recovery from request to receiver, over a source that answers at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ipcbus.delivery.sink import Sink
from ipcbus.recovery.recovery_settings import RecoverySettings
from ipcbus.topic.message_retention import Retention
from ipcbus.transport.topic_catch_up import TopicCatchUp
from ipcbus.wire import control_messages
from ipcbus.wire.control_messages import NUMBER_MAX, Info, InfoRequest, RangeRequest, Retransmission
from tests.kit.desk import Desk, data, whole
from tests.kit.older_messages import OlderMessage, piece_of
from tests.kit.retaining import message

if TYPE_CHECKING:
    from ipcbus.recovery.older_messages import OlderPiece


class Source:
    """Answers requests for topic 1 into a list."""

    def __init__(self, count: int) -> None:
        self.retention = Retention(0, 0, 1 << 20)
        for number in range(count):
            self.retention.put(7, message(number, str(number).encode()))
        self.answers: list[Info | Retransmission] = []

    def send(self, request: bytes) -> bool:
        """Takes a request."""
        found = control_messages.decode(request)
        if isinstance(found, InfoRequest):
            self.answers.append(Info(1, *self.retention.info(found.history, found.before), found.request))
        elif isinstance(found, RangeRequest):
            _, following, entries = self.retention.read(found.first, found.last, 10_000)
            self.answers.append(Retransmission(1, found.first, following - 1, memoryview(entries)))
        return True


def run(catch_up: TopicCatchUp, source: Source, turns: int = 1000) -> None:
    """Lets both talk until nothing is said any more."""
    for now_ns in range(turns):
        catch_up.work(now_ns, source.send)
        answers, source.answers = source.answers, []
        for each in answers:
            if isinstance(each, Info):
                catch_up.info(each, now_ns)
            else:
                catch_up.retransmission(each, now_ns)


def catch_up_of(desk: Desk, **options: int) -> TopicCatchUp:
    """The recovery of topic 1."""
    return TopicCatchUp(desk.demux, desk.topic, RecoverySettings(), asks_at_once=True, **options)


def test_a_late_join_brings_what_was_sent() -> None:
    desk, source = Desk(floor=50), Source(50)
    catch_up = catch_up_of(desk)
    catch_up.begin_late_join(0)
    run(catch_up, source)
    assert desk._since(0) == data(*range(50))
    assert catch_up.due_ns is None
    assert desk.feed(whole(50)) == data(50)


def test_what_is_gone_beyond_the_question_is_lost_in_one_event() -> None:
    """On a ring, which brings no message again; over UDP the transport may still bring what was not asked for."""
    for at_once in (True, False):
        desk = Desk(floor=0)
        catch_up = TopicCatchUp(desk.demux, desk.topic, RecoverySettings(), asks_at_once=at_once)
        catch_up.begin_otr()
        desk.feed(*(whole(number) for number in range(10)), whole(4000))
        catch_up.work(0, lambda message: True)
        catch_up.retransmission(Retransmission(1, 10, 3998, memoryview(b"")), 1)
        catch_up.work(1, lambda message: True)
        assert desk._since(0) == data(*range(10)) + ([("burst", 10, 3998)] if at_once else [])


def test_a_lost_message_is_asked_for() -> None:
    desk, source = Desk(floor=0), Source(50)
    catch_up = catch_up_of(desk)
    catch_up.begin_otr()
    desk.feed(*(whole(number) for number in range(10)), whole(40))
    assert desk.demux.attention
    assert catch_up.due_ns == 0
    run(catch_up, source)
    assert desk._since(0) == data(*range(41))


def test_a_receiver_without_room_holds_its_messages_back() -> None:
    desk, source = Desk(floor=50), Source(50)
    desk.feed()
    pulled = Sink(None, 3)
    desk.topic.set_sinks([pulled])
    catch_up = catch_up_of(desk, waiting_bytes_max=0)
    catch_up.begin_late_join(0)
    got = []
    for turn in range(200):
        run(catch_up, source, 3)
        assert len(pulled.queue) <= 3
        catch_up.recovery.channel_ready(turn)  # asked again, also for what was dropped
        while pulled.queue:
            got.append(pulled.queue.popleft().sequence_number)
    assert got == list(range(50))
    assert not catch_up.busy


def test_a_later_receiver_of_the_topic_gets_its_own_history() -> None:
    desk, source = Desk(), Source(50)
    desk.feed(*(whole(number) for number in range(50)))
    later: list[int] = []
    history = desk.session.receive_later(1, Sink(lambda message: later.append(message.sequence_number), 1), 0)
    assert history is not None
    catch_up = TopicCatchUp(
        desk.demux, history.controller, RecoverySettings(history=20), asks_at_once=True, waiting_bytes_max=0
    )
    desk.session.begin_topic(1)
    catch_up.begin_own_history(0)
    run(catch_up, source)
    assert history.advance(2000)
    desk.feed(whole(50))
    assert later == [-1, *range(30, 51)]
    assert desk._since(0) == data(*range(51))


def test_without_a_way_to_the_source_losses_are_reported() -> None:
    desk = Desk(floor=0)
    catch_up = catch_up_of(desk)
    catch_up.begin_otr()
    assert desk.feed(whole(0), whole(3)) == data(0)
    before = len(desk.seen)
    catch_up.end(5)
    assert desk._since(before) == [("lost", 1), ("lost", 2), *data(3)]
    assert desk.feed(whole(5)) == [("lost", 4), *data(5)]


class Recorded:
    """A recording of the first messages of topic 1."""

    faults = 0

    def __init__(self, count: int) -> None:
        self._messages = [OlderMessage(number, number, 0, False, b"%d" % number, 7) for number in range(count)]

    def begin(self, next_sequence: int, wanted: int) -> int | None:
        """The first number."""
        del next_sequence, wanted
        return 0 if self._messages else NUMBER_MAX

    def read(self, first: int, last: int) -> OlderPiece | None:
        """The next messages."""
        return piece_of(1, self._messages, first, last, 10)


@pytest.mark.parametrize("promised", [False, True])
def test_a_source_that_answers_nothing_costs_nothing_that_a_recording_has(promised: bool) -> None:
    desk = Desk(floor=50)
    catch_up = TopicCatchUp(desk.demux, desk.topic, RecoverySettings(), asks_at_once=True, number=3, older=Recorded(30))
    catch_up.begin_late_join(0)
    if promised:
        catch_up.info(Info(1, 20, 50, 3), 0)
    for turn in range(1000):
        catch_up.work(turn * 100_000_000, lambda message: True)
    assert desk._since(0)[:30] == data(*range(30))
    assert len(desk._since(0)) > 30  # the rest is lost
    assert catch_up.due_ns is None
    assert not catch_up.busy


def test_a_turn_takes_four_steps_of_a_recording_at_most() -> None:
    desk, steps, recording = Desk(floor=200), [0], Recorded(200)

    def read(first: int, last: int) -> OlderPiece | None:
        steps[-1] += 1
        return Recorded.read(recording, first, last)

    recording.read = read  # type: ignore[method-assign]
    catch_up = TopicCatchUp(desk.demux, desk.topic, RecoverySettings(), asks_at_once=True, number=3, older=recording)
    catch_up.begin_late_join(0)
    catch_up.info(Info(1, 200, 200, 3), 0)
    for turn in range(10):
        steps.append(0)
        catch_up.work(turn, lambda message: True)
    assert desk._since(0) == data(*range(200))
    assert max(steps) == 4


@pytest.mark.parametrize("retains", [False, True])
def test_a_source_that_has_published_nothing_promises_its_open_batch(retains: bool) -> None:
    desk = Desk(floor=5)
    catch_up = TopicCatchUp(
        desk.demux, desk.topic, RecoverySettings(), asks_at_once=True, number=3, older=Recorded(0), retains=retains
    )
    catch_up.begin_late_join(0)
    catch_up.info(Info(1, 0, 0, 3), 0)  # a source that retains nothing answers the same
    assert desk.topic.is_promised
    assert desk.topic.floor == (0 if retains else 5)
