"""The link of a receiver: asks for a pipe, opens, is used, and breaks."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from ipcbus.recovery.control_channel import ControlChannel
from ipcbus.transport.ring.pipe_link import CALLS, CHANNEL, FRAME_MAX_LEAST, channel_word
from ringbuf.doorbell import CALL, DATA, FRAMES
from ringbuf.layout import CHANNEL_OPEN, CHANNEL_READY, CHANNEL_REFUSED, CHANNEL_WANTED
from ringbuf.ring_errors import SegmentFull
from tests.kit.pipe_stage import PipeStage

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def stage(domain: str) -> Iterator[PipeStage]:
    made = PipeStage(domain)
    yield made
    made.close()
    assert made.names() == []


def test_a_receiver_asks_and_gets_a_link(stage: PipeStage) -> None:
    session, link = stage.join()
    slot = session.datagram_source.index
    assert [link.is_open, link.broken, link.put(b"x"), link.take(), link.ready()] == [False, "", False, None, False]
    assert link.frame_max == FRAME_MAX_LEAST
    assert link.inlet([None] * 256, None) is None
    assert stage.pipes.look() == []
    link.request()
    assert (stage.state(slot), stage.hear()) == (CHANNEL_WANTED, (FRAMES, b""))
    assert not link.attend()
    assert [each.slot for each in stage.pipes.look()] == [slot]
    assert (stage.state(slot), stage.hear()) == (CHANNEL_READY, (b"", CALL))
    assert len(stage.names()) == 1
    assert link.attend()
    assert link.attend()
    assert (stage.state(slot), stage.hear()) == (CHANNEL_OPEN, (FRAMES, b""))
    stage.pipes.look()
    assert stage.names() == []
    source = stage.pipes.link(slot)
    assert source is not None
    assert source.put(b"down")
    assert link.put(b"up")
    assert (link.take(), source.take()) == (b"down", b"up")


def test_asking_twice_is_asking_once(stage: PipeStage) -> None:
    _, link = stage.join()
    link.request()
    link.request()
    stage.pipes.look()
    link.request()
    assert link.is_open
    assert len(stage.pipes.links) == 1


def test_a_channel_queues_while_the_link_opens(stage: PipeStage) -> None:
    session, link = stage.join()
    receiver = ControlChannel(link, queue_max=1 << 20, message_max=1 << 20)
    receiver.send(bytes(5000))
    assert receiver.flush()
    link.request()
    (source,) = stage.pipes.look()
    sender = ControlChannel(source, queue_max=1 << 20, message_max=1 << 20)
    link.attend()
    found = None
    while found is None:
        receiver.flush()
        found = sender.receive()
    assert found == bytes(5000)
    assert session.datagram_source.index == source.slot


def test_who_waits_for_room_is_called_when_there_is_some(stage: PipeStage) -> None:
    session, link, source = stage.open()
    for writer, reader in ((link, source), (source, link)):
        while writer.put(bytes(500)):
            pass
        stage.pipes.look()
        stage.pipes.arm(sleeps=True)
        session.datagram_source.reader.arm(True)
        stage.hear()
        while reader.take() is not None:
            pass
        assert stage.hear() == ((b"", DATA) if writer is link else (FRAMES, b""))
        assert writer.put(bytes(500))
        reader.take()


def test_a_pipe_that_was_made_for_the_one_before_is_not_mapped(stage: PipeStage) -> None:
    session, link = stage.join()
    link.request()
    stage.pipes.look()
    session.leave()
    _, later = stage.join()
    assert not later.attend()
    assert later.broken == ""
    later.request()
    stage.pipes.look()
    assert later.attend()
    assert len(stage.pipes.links) == 1


def test_a_closed_link_is_freed_and_may_be_asked_for_again(stage: PipeStage) -> None:
    session, link, source = stage.open()
    link.close()
    assert stage.pipes.look() == [source]
    assert source.take() is None
    assert source.broken
    again = stage.link_of(session)
    again.request()
    stage.pipes.look()
    assert again.attend()
    new = stage.pipes.link(source.slot)
    assert new is not None
    assert new is not source
    new.put(b"new")
    assert again.take() == b"new"
    assert stage.pipes.links == [new]


def test_a_source_without_memory_refuses_and_the_receiver_may_ask_again(
    stage: PipeStage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    session, link = stage.join()
    with monkeypatch.context() as patch:

        def full(*_: object, **__: object) -> None:
            raise SegmentFull("no room; make some")

        patch.setattr("ipcbus.transport.ring.session_pipes.create_pipe", full)
        link.request()
        assert stage.pipes.look() == []
    assert stage.state(session.datagram_source.index) == CHANNEL_REFUSED
    assert "no room; make some" in caplog.text
    assert stage.hear() == (FRAMES, CALL)
    assert not link.attend()
    assert "refused" in link.broken
    again = stage.link_of(session)
    again.request()
    stage.pipes.look()
    assert again.attend()


@pytest.mark.parametrize("state", [CHANNEL_READY, CHANNEL_OPEN, CHANNEL_REFUSED, 77])
def test_a_word_of_another_generation_is_not_believed(stage: PipeStage, state: int) -> None:
    session, link = stage.join()
    slot = session.datagram_source.index
    at = stage.pair.sending.channel.slots.offset(slot) + CHANNEL
    stage.words.store64(at, channel_word(77, state, 5))
    stage.words.or64(CALLS, 1 << slot)
    assert not link.attend()
    assert link.broken
    assert stage.pipes.look() == []
    assert stage.pipes.links == []


def test_a_pipe_without_a_name_breaks_the_link(stage: PipeStage) -> None:
    session, link = stage.join()
    slot = session.datagram_source.index
    at = stage.pair.sending.channel.slots.offset(slot) + CHANNEL
    generation = stage.pair.sending.channel.slots.generation(slot)
    stage.words.store64(at, channel_word(generation, CHANNEL_READY, 5))
    assert not link.attend()
    assert "cannot be used" in link.broken


def test_a_child_after_a_fork_disturbs_neither_side(stage: PipeStage) -> None:
    _, link, source = stage.open()
    pid = os.fork()
    if pid == 0:
        link.abandon()
        stage.pipes.abandon()
        os._exit(0 if link.broken and source.broken and not stage.pipes.links else 1)
    assert os.waitpid(pid, 0)[1] == 0
    assert source.put(b"x")
    assert [link.take(), link.broken, source.broken] == [b"x", "", ""]
