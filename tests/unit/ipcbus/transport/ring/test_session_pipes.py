"""The control channels of a ring session: asked for, made, opened, used and freed, both sides in one thread."""

from __future__ import annotations

import os
import random
from typing import TYPE_CHECKING

import pytest

from ipcbus.resolution.local import object_names, stale_cleanup
from ipcbus.transport.ring.pipe_link import CALLS, CHANNEL, PARKED, channel_word
from ringbuf import segment
from ringbuf.doorbell import CALL, DATA, FRAMES
from ringbuf.layout import CHANNEL_NONE, SLOT_EVICTED
from tests.kit.pipe_stage import QUEUE, PipeStage

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def stage(domain: str) -> Iterator[PipeStage]:
    made = PipeStage(domain)
    yield made
    made.close()
    assert made.names() == []


def test_the_source_may_make_it_first(stage: PipeStage) -> None:
    session, link = stage.join()
    slot = session.datagram_source.index
    source = stage.pipes.open(slot)
    assert source is not None
    assert stage.pipes.open(slot) is source
    assert source.put(b"before the receiver has mapped it")
    assert stage.hear() == (b"", CALL)
    link.request()
    assert link.is_open
    assert link.take() == b"before the receiver has mapped it"
    assert stage.pipes.open(session.datagram_source.index + 1) is None


def test_each_receiver_has_its_own(stage: PipeStage) -> None:
    opened = [stage.open() for _ in range(3)]
    for number, (_, link, source) in enumerate(opened):
        link.put(b"%d" % number)
        source.put(b"to %d" % number)
    assert [each.slot for each in stage.pipes.look()] == [source.slot for _, _, source in opened]
    assert [(link.take(), source.take()) for _, link, source in opened] == [
        (b"to %d" % number, b"%d" % number) for number in range(3)
    ]


def test_a_source_that_sleeps_is_rung_once_for_all_frames(stage: PipeStage) -> None:
    _, link, source = stage.open()
    assert stage.pipes.arm(sleeps=True)
    for _ in range(3):
        link.put(b"x")
    assert stage.hear() == (FRAMES, b"")
    assert not stage.pipes.arm(sleeps=True)
    assert stage.pipes.look() == [source]
    assert stage.pipes.arm(sleeps=True)
    link.put(b"x")
    assert stage.hear() == (FRAMES, b"")


def test_a_source_that_looks_is_not_rung(stage: PipeStage) -> None:
    _, link, source = stage.open()
    word = stage.pipes.inlet
    stage.pipes.arm(sleeps=False)
    assert not word.changed()
    link.put(b"x")
    assert word.changed()
    assert stage.hear() == (b"", b"")
    assert stage.pipes.look() == [source]
    assert source.ready()
    assert not word.changed()


def test_a_receiver_is_rung_only_while_it_sleeps(stage: PipeStage) -> None:
    session, link, source = stage.open()
    word = link.inlet([None] * 256, None)
    assert word is not None
    source.put(b"x")
    assert stage.hear() == (b"", b"")
    assert word.changed()
    session.datagram_source.reader.arm(True)
    source.put(b"x")
    source.put(b"x")
    assert stage.hear() == (b"", DATA)


def test_lost_calls_are_found_at_the_liveness_check(stage: PipeStage) -> None:
    _, link = stage.join()
    link.request()
    stage.words.and64(CALLS, 0)
    assert stage.pipes.look() == []
    assert stage.pipes.check() == []
    assert link.attend()
    stage.words.and64(CALLS, 0)
    assert stage.pipes.check() == []
    assert stage.names() == []


def test_bits_without_a_slot_are_ignored(stage: PipeStage) -> None:
    stage.words.or64(CALLS, (1 << 64) - 1)
    assert stage.pipes.look() == []
    assert stage.words.load64(CALLS) == 0


def test_a_receiver_that_leaves_frees_its_channel(stage: PipeStage) -> None:
    session, link, source = stage.open()
    session.leave()
    assert stage.pipes.link(source.slot) is None
    assert stage.pipes.check() == [source]
    assert source.broken == "the receiver has left the session"
    assert stage.pipes.links == []
    assert link.take() is None
    assert link.broken


@pytest.mark.parametrize("found_by", ["its call", "the next receiver", "the liveness check"])
def test_the_last_frames_of_a_receiver_that_left_can_still_be_taken(stage: PipeStage, found_by: str) -> None:
    session, link, source = stage.open()
    taken: list[bytes | None] = []
    stage.pipes.on_leave = lambda left: taken.append(left.take())
    link.put(b"last")
    session.leave()
    link.close()
    if found_by == "its call":
        assert stage.pipes.look() == [source]
        assert source.take() == b"last"
        return
    if found_by == "the next receiver":
        stage.open()
    else:
        assert stage.pipes.check() == [source]
    assert taken == [b"last"]
    assert source.broken


def test_a_receiver_that_leaves_before_it_has_mapped_leaves_no_name(stage: PipeStage) -> None:
    session, link = stage.join()
    link.request()
    stage.pipes.look()
    session.leave()
    assert len(stage.names()) == 1
    stage.pipes.check()
    assert stage.names() == []
    assert not link.attend()


def test_the_next_receiver_of_the_slot_never_sees_the_frames_of_the_one_before(stage: PipeStage) -> None:
    session, _, source = stage.open()
    source.put(b"secret")
    session.leave()
    later, link, other = stage.open()
    assert later.datagram_source.index == source.slot
    assert other.generation == source.generation + 1
    assert source.broken
    assert not source.put(b"more")
    assert link.take() is None
    other.put(b"its own")
    assert link.take() == b"its own"


def test_an_evicted_receiver_keeps_its_channel(stage: PipeStage) -> None:
    _, link, source = stage.open()
    slots = stage.pair.sending.channel.slots
    assert slots.evict(source.slot, source.generation)
    assert stage.words.load32(slots.offset(source.slot)) == SLOT_EVICTED
    assert stage.pipes.check() == []
    source.put(b"x")
    assert link.take() == b"x"


def test_the_end_of_the_session_ends_the_links(stage: PipeStage) -> None:
    _, link, source = stage.open()
    source.put(b"last")
    stage.pipes.close()
    assert source.broken
    assert [link.take(), link.take()] == [b"last", None]
    assert link.broken == "the other side has closed the pipe"
    assert not link.put(b"x")


def test_a_name_that_is_taken_is_not_used(stage: PipeStage) -> None:
    session, link = stage.join()
    for number in range(3):
        name = object_names.pipe(stage.domain, 7, session.datagram_source.index + number)
        os.close(segment.create(name, QUEUE))
    link.request()
    stage.pipes.look()
    assert link.attend()
    link.put(b"x")
    assert stage.pipes.look()[0].take() == b"x"
    for name in stage.names():
        segment.remove(name)


def test_what_a_dead_context_left_is_removed_with_its_other_objects(
    domain: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stale_cleanup, "ORPHAN_AGE_S", 0.0)
    name = object_names.pipe(domain, 7, 0x1234)
    os.close(segment.create(name, QUEUE))
    assert object_names.parse(name) == (domain, 7, "p1234")
    assert stale_cleanup.sweep(domain) == [name]


def test_slots_begin_without_a_channel(stage: PipeStage) -> None:
    session, _ = stage.join()
    assert stage.state(session.datagram_source.index) == CHANNEL_NONE
    assert stage.words.load32(PARKED) == 1


def test_random_channel_words_cost_one_pipe_a_slot_and_leave_no_name(stage: PipeStage) -> None:
    opened = [stage.open() for _ in range(3)]
    slots = stage.pair.sending.channel.slots
    seed = random.randrange(1 << 32)
    print("seed", seed)
    draw = random.Random(seed)
    for _ in range(400):
        slot = draw.randrange(slots.slots_max)
        generation = draw.choice([slots.generation(slot), draw.randrange(4), draw.getrandbits(32)])
        word = draw.choice([channel_word(generation, draw.randrange(7), draw.getrandbits(16)), draw.getrandbits(64)])
        stage.words.store64(slots.offset(slot) + CHANNEL, word)
        stage.words.or64(CALLS, draw.getrandbits(64))
        for link in stage.pipes.look() if draw.random() < 0.8 else stage.pipes.check():
            link.put(b"x")
            link.take()
        assert len({link.slot for link in stage.pipes.links}) == len(stage.pipes.links) <= len(opened)
        assert len(stage.names()) <= len(opened)
        for _, receiver, _ in opened:
            receiver.attend()
            assert receiver.take() in (None, b"x")
