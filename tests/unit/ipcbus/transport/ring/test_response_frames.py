"""Responses straight into pipes and out of them: the same bytes as over a control channel, and nothing else taken."""

from __future__ import annotations

import random
import threading
from typing import TYPE_CHECKING

import pytest

from ipcbus.delivery.pump import URGENT, Pump
from ipcbus.recovery.control_channel import ControlChannel
from ipcbus.transport.ring.pipe_link import CALLS
from ipcbus.transport.ring.response_frames import ResponseReader
from ipcbus.wire import control_messages
from ringbuf.doorbell import FRAMES
from tests.kit.bus import GIVE_UP_S
from tests.kit.pipe_stage import QUEUE, PipeStage

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ipcbus.transport.ring.pipe_link import PipeLink, ReceiverPipeLink
    from ipcbus.transport.ring.response_frames import ResponseWriter

LONGEST = QUEUE // 4 - 4 - 24
LAST = (1 << 64) - 1


@pytest.fixture
def stage(domain: str) -> Iterator[PipeStage]:
    made = PipeStage(domain)
    yield made
    made.close()


def channel(link: PipeLink) -> ControlChannel:
    """A control channel over a link."""
    return ControlChannel(link, queue_max=1 << 20, message_max=1 << 20)


def writer(link: ReceiverPipeLink, over: ControlChannel | None = None, pump: Pump | None = None) -> ResponseWriter:
    """The short way over an open link, of a context in sequential mode that no thread drives."""
    made = link.response_writer(over or channel(link), pump or Pump(), sequential=True)
    assert made is not None
    return made


def taken(stage: PipeStage) -> tuple[list[tuple[int, bytes]], bool]:
    """What the source takes in one call, and whether there is more."""
    got: list[tuple[int, bytes]] = []
    more = stage.pipes.take_responses(lambda number, data: got.append((number, bytes(data))))
    return got, more


@pytest.mark.parametrize("data", [b"", b"x", bytes(range(256)), bytes(LONGEST)], ids=len)
@pytest.mark.parametrize("number", [0, 7, LAST])
def test_both_ways_have_the_same_bytes(stage: PipeStage, data: bytes, number: int) -> None:
    _, link, source = stage.open()
    assert writer(link).send(number, data)
    assert channel(source).receive() == control_messages.response(number, data)
    assert channel(link).send_now(control_messages.response(number, data))
    assert taken(stage) == ([(number, data)], False)
    assert stage.words.load64(CALLS) == 0


def test_a_link_without_a_pipe_has_no_short_way(stage: PipeStage) -> None:
    _, link = stage.join()
    assert link.response_writer(channel(link), Pump(), sequential=True) is None


def test_responses_of_several_receivers_come_in_one_call(stage: PipeStage) -> None:
    writers = [writer(stage.open()[1]) for _ in range(3)]
    for number in range(6):
        assert writers[number % 3].send(number, b"%d" % number)
    got, more = taken(stage)
    assert (sorted(got), more) == ([(number, b"%d" % number) for number in range(6)], False)
    assert taken(stage) == ([], False)


def test_one_receiver_can_keep_nobody_busy(stage: PipeStage) -> None:
    _, link, source = stage.open()
    short = writer(link)
    sent = 0
    while short.send(sent, b""):
        sent += 1
    assert sent > 64
    got, more = taken(stage)
    assert (len(got), more, stage.words.load64(CALLS)) == (64, True, 1 << source.slot)
    got += taken(stage)[0]
    assert [number for number, _ in got] == list(range(sent))


def test_other_frames_stay_for_the_channel_and_in_order(stage: PipeStage) -> None:
    _, link, source = stage.open()
    short, asking, own = writer(link), channel(link), channel(source)
    assert short.send(1, b"before")
    assert asking.send_now(control_messages.tsni_request(5))
    assert short.send(2, b"after")
    assert taken(stage) == ([(1, b"before")], True)
    assert stage.pipes.look() == [source]
    assert own.receive() == control_messages.tsni_request(5)
    assert short.send(3, b"last")
    assert taken(stage) == ([(2, b"after"), (3, b"last")], False)


def test_messages_that_wait_in_the_channel_go_first(stage: PipeStage) -> None:
    _, link, source = stage.open()
    over = channel(link)
    short = writer(link, over)
    long = control_messages.response(1, bytes(3 * QUEUE))
    assert over.send(long)
    assert over.flush()
    assert not short.send(2, b"later")
    own = channel(source)
    while (message := own.receive()) is None:
        over.flush()
    assert message == long
    assert short.send(2, b"later")


def test_what_does_not_fit_is_left_to_the_channel(stage: PipeStage) -> None:
    _, link, source = stage.open()
    short = writer(link)
    assert not short.send(1, bytes(LONGEST + 1))
    while short.send(2, bytes(500)):
        pass
    stage.words.and64(CALLS, 0)
    own = channel(source)
    while own.receive() is not None:
        pass
    assert short.send(3, b"")
    source.close()
    assert not short.send(4, b"")


def test_a_source_that_sleeps_is_rung_once(stage: PipeStage) -> None:
    _, link, _ = stage.open()
    short = writer(link)
    stage.pipes.arm(sleeps=False)
    assert short.send(1, b"")
    assert stage.hear() == (b"", b"")
    assert taken(stage)[0] == [(1, b"")]
    assert stage.pipes.arm(sleeps=True)
    assert short.send(2, b"")
    assert short.send(3, b"")
    assert stage.hear() == (FRAMES, b"")


def test_a_receiver_that_waits_for_room_is_called(stage: PipeStage) -> None:
    session, link, _ = stage.open()
    short = writer(link)
    while short.send(1, bytes(100)):
        pass
    session.datagram_source.reader.arm(True)
    taken(stage)
    assert stage.hear()[1] != b""


def test_only_the_thread_that_drives_sends(stage: PipeStage) -> None:
    _, link, _ = stage.open()
    pump = Pump()
    sequential = writer(link, pump=pump)
    embedded = link.response_writer(channel(link), pump, sequential=False)
    assert embedded is not None
    assert [sequential.send(1, b""), embedded.send(1, b"")] == [True, False]
    assert pump.owner == 0
    pump.want(URGENT)
    assert not sequential.send(1, b"")
    pump.unwant(URGENT)
    other = threading.Thread(target=pump.take)
    other.start()
    other.join(GIVE_UP_S)
    assert [sequential.send(1, b""), embedded.send(1, b"")] == [False, False]
    pump.give_back()
    assert pump.take()
    assert [sequential.send(1, b""), embedded.send(1, b"")] == [True, True]
    assert pump.owner == threading.get_ident()


def test_a_receiver_that_has_gone_is_left_to_the_check(stage: PipeStage) -> None:
    session, link, source = stage.open()
    assert writer(link).send(1, b"x")
    session.leave()
    got, _ = taken(stage)
    assert got in ([], [(1, b"x")])
    assert stage.pipes.check() == [source]
    stage.words.or64(CALLS, 1 << source.slot)
    assert taken(stage) == ([], True)


def test_what_a_callback_raises_loses_no_call(stage: PipeStage) -> None:
    opened = [stage.open() for _ in range(2)]
    for number, (_, link, _) in enumerate(opened):
        assert writer(link).send(number, b"")
        assert writer(link).send(number + 10, b"")

    def fail(number: int, data: bytes | memoryview) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stage.pipes.take_responses(fail)
    assert [number for number, _ in taken(stage)[0]] == [10, 1, 11]


def test_random_frames_break_nothing(stage: PipeStage) -> None:
    """Random changes of a response are either a response too, or left to the channel, which counts them."""
    _, link, source = stage.open()
    own, draw = channel(source), random.Random(5)
    for _ in range(2000):
        data = draw.randbytes(draw.randrange(40))
        frame = bytearray(bytes([0, 1, 0, 0]) + (len(data) + 16).to_bytes(4, "little"))
        frame += control_messages.response(draw.randrange(LAST), data)
        is_whole = draw.random() < 0.3
        if not is_whole:
            frame[draw.randrange(16)] = draw.randrange(256)
            frame = frame[: draw.choice([len(frame), draw.randrange(1, len(frame) + 1)])]
        whole = bytes(frame)
        assert link.put(whole)
        got, more = taken(stage)
        assert (len(got) == 1) != more
        if more:
            assert not is_whole
            stage.pipes.look()
            own.receive()
        else:
            assert control_messages.response(*got[0]) == whole[8:]


def test_a_pipe_of_too_many_slots_is_refused(stage: PipeStage) -> None:
    with pytest.raises(ValueError, match="65 slots"):
        ResponseReader(stage.words, CALLS, [CALLS] * 65)
    with pytest.raises(IndexError, match="slot 3 of 3"):
        ResponseReader(stage.words, CALLS, [CALLS] * 3).serve(3, None, 0, None)
