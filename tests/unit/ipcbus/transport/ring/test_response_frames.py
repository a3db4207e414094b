"""Responses straight into pipes: the same bytes as over a control channel."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from ipcbus.delivery.pump import URGENT, Pump
from ipcbus.recovery.control_channel import ControlChannel
from ipcbus.transport.ring.pipe_link import CALLS
from ipcbus.wire import control_messages
from ringbuf.doorbell import FRAMES
from tests.kit.bus import GIVE_UP_S
from tests.kit.pipe_stage import QUEUE, PipeStage, channel, taken, writer

if TYPE_CHECKING:
    from collections.abc import Iterator


LONGEST = QUEUE // 4 - 4 - 24
LAST = (1 << 64) - 1


@pytest.fixture
def stage(domain: str) -> Iterator[PipeStage]:
    made = PipeStage(domain)
    yield made
    made.close()


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
    assert link.response_writer(channel(link), Pump()) is None


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


def test_a_message_above_the_limit_of_the_channel_is_left_to_it(stage: PipeStage) -> None:
    _, link, _ = stage.open()
    over = ControlChannel(link, queue_max=1 << 20, message_max=control_messages.RESPONSE_HEADER + 10)
    short = writer(link, over)
    assert not short.send(1, bytes(11))
    assert short.send(1, bytes(10))
    assert not over.send_now(control_messages.response(1, bytes(11)))
    assert over.send_now(control_messages.response(1, bytes(10)))


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


def test_only_the_thread_that_drives_sends(stage: PipeStage) -> None:
    _, link, _ = stage.open()
    pump = Pump()
    short = writer(link, pump=pump)
    assert short.send(1, b"")
    assert pump.owner == 0
    pump.want(URGENT)
    assert not short.send(1, b"")
    pump.unwant(URGENT)
    other = threading.Thread(target=pump.take)
    other.start()
    other.join(GIVE_UP_S)
    assert not short.send(1, b"")
    pump.give_back()
    assert pump.take()
    assert short.send(1, b"")
    assert pump.owner == threading.get_ident()
