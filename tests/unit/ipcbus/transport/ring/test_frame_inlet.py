"""Frames straight out of pipes: what has a taker goes to it, in order; the rest is left for the control channel."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from ipcbus import MessageFlag
from ipcbus.delivery.pump import Pump
from ipcbus.delivery.received_message import Origin
from ipcbus.delivery.share_gate import ShareGate
from ipcbus.delivery.sink import Sink
from ipcbus.delivery.work_taker import WorkTaker
from ipcbus.transport.ring.frame_inlet import SessionInlet
from ipcbus.transport.ring.pipe_link import CALLS
from ipcbus.wire import control_messages, gmd_messages, share_messages
from ipcbus.wire.control_front import FrameTaker
from tests.kit.pipe_stage import PipeStage, channel, taken, writer

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator

LAST = (1 << 64) - 1
KIND = 77


@pytest.fixture
def stage(domain: str) -> Iterator[PipeStage]:
    made = PipeStage(domain)
    yield made
    made.close()


def message(number: int, rest: bytes = b"") -> bytes:
    """A message of a kind that the control channel does not know."""
    return bytes([KIND, 3, 0, 0]) + (9).to_bytes(4, "little") + number.to_bytes(8, "little") + rest


def test_a_taker_gets_the_messages_of_its_kind_with_their_peers(stage: PipeStage) -> None:
    got: list[tuple[Hashable, bytes]] = []
    stage.pipes.inlet.hand(KIND, FrameTaker(lambda peer, whole: got.append((peer, whole))))
    expected = []
    for number, (_, link, source) in enumerate([stage.open() for _ in range(3)]):
        assert channel(link).send_now(message(number, b"x" * number))
        expected.append((id(source), message(number, b"x" * number)))
    assert stage.pipes.inlet.take_now() == (0, False)
    assert got == expected
    stage.pipes.inlet.hand(KIND, None)
    assert channel(link).send_now(message(5))
    assert stage.pipes.inlet.take_now() == (0, True)
    assert channel(source).receive() == message(5)


def test_the_driver_takes_frames_without_python(stage: PipeStage) -> None:
    got: list[bytes] = []

    def take(_: Hashable, whole: bytes) -> int:
        got.append(whole)
        return 2

    def look() -> int:
        raise AssertionError("a frame that has a taker was left for Python")

    _, link, source = stage.open()
    stage.pipes.inlet.hand(KIND, FrameTaker(take))
    pump = Pump()
    pump.look = look
    pump.watch([], [stage.pipes.inlet])
    pump.set_timer(1 << 60)
    assert pump.turn(0) == 0
    for number in range(3):
        assert channel(link).send_now(message(number))
    assert pump.turn(0) == 6
    assert got == [message(number) for number in range(3)]
    assert (pump.run(0, 0, True), pump.stuck) == (0, False)
    assert channel(link).send_now(control_messages.tsni_request(5))
    assert (pump.run(0, 0, True), pump.stuck) == (0, True)
    assert stage.pipes.look() == [source]


def test_a_call_is_seen_while_its_frames_are_taken(stage: PipeStage) -> None:
    seen: list[bool] = []
    stage.pipes.inlet.hand(KIND, FrameTaker(lambda *_: seen.append(stage.pipes.inlet.changed())))
    _, link, _ = stage.open()
    assert channel(link).send_now(message(1))
    assert stage.pipes.inlet.take_now() == (0, False)
    assert [*seen, stage.pipes.inlet.changed()] == [True, False]


def test_short_messages_and_pieces_are_left_for_the_channel(stage: PipeStage) -> None:
    stage.pipes.inlet.hand(KIND, FrameTaker(lambda *_: 1))
    for whole in (message(1)[:15], message(1, bytes(5000))):
        _, link, source = stage.open()
        over = channel(link)
        assert over.send(whole)
        over.flush()
        assert stage.pipes.inlet.take_now() == (0, True)
        own = channel(source)
        while (found := own.receive()) is None:
            over.flush()
        assert found == whole
        stage.words.and64(CALLS, 0)


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
    assert sent > 8
    got: list[int] = []

    def respond(number: int, _: bytes | memoryview) -> int:
        got.append(number)
        assert short.send(sent + len(got), b"")
        return 1

    stage.take_with(respond)
    assert stage.pipes.inlet.take_now() == (sent, False)
    assert got == list(range(sent))
    assert stage.words.load64(CALLS) == 1 << source.slot


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


def test_a_receiver_that_waits_for_room_is_called(stage: PipeStage) -> None:
    session, link, _ = stage.open()
    short = writer(link)
    while short.send(1, bytes(100)):
        pass
    session.datagram_source.reader.arm(True)
    taken(stage)
    assert stage.hear()[1] != b""


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

    def fail(number: int, data: bytes | memoryview) -> int:
        raise KeyboardInterrupt

    stage.take_with(fail)
    with pytest.raises(KeyboardInterrupt):
        stage.pipes.inlet.take_now()
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
        SessionInlet(stage.words, CALLS, [CALLS] * 65)
    with pytest.raises(IndexError, match="slot 3 of 3"):
        SessionInlet(stage.words, CALLS, [CALLS] * 3).serve(3, None, 0, None)


class Keeper:
    """What a gate of a share reports to."""

    def flush_soon(self) -> None:
        """Nothing acknowledges here."""

    def failed(self, sink: Sink, error: BaseException) -> None:
        """A callback has raised."""
        raise error


def test_work_goes_to_its_member_and_damaged_work_to_python(stage: PipeStage) -> None:
    draw, got, left, kept = random.Random(1), list[bytes](), list[bytes](), list[int]()
    _, link, source = stage.open()
    sink, keeper = Sink(None, 2), Keeper()
    gate = ShareGate(sink, None, keeper, keeper)  # type: ignore[arg-type]  # the session brings nothing
    taker = WorkTaker(lambda _, whole: left.append(whole))
    taker.add(9, 5, gate, Origin("t", "LBT-IPC:1:1", 9), [], lambda _, entries: kept.append(len(entries)))
    takers: list[FrameTaker | None] = [None] * 256
    takers[share_messages.SHARE_WORK] = taker
    inlet, pump = link.inlet(takers, "session"), Pump()
    assert inlet is not None
    pump.watch([], [inlet])
    entries = [gmd_messages.entry(number, 5, 0, 0, b"", b"%d" % number) for number in range(1, 4)]
    work = share_messages.work(9, 5, share_messages.REASSIGNED, 1, 4, entries)
    assert channel(source).send_alone(work)
    assert (pump.run(0, 0, True), pump.stuck, kept, left) == (2, False, [1], [])  # the queue has room for two
    while sink.queue:
        message = sink.queue.popleft()
        assert message.flags == MessageFlag.UMQ_ULB | MessageFlag.UMQ_REASSIGNED
        got.append(message.data)
    assert got == [b"1", b"2"]
    for _ in range(300):
        damaged = bytearray(work)
        damaged[draw.randrange(len(damaged))] ^= 1 << draw.randrange(8)
        damaged = damaged[: draw.randrange(16, len(damaged) + 1)]
        assert channel(source).send_alone(bytes(damaged))
        assert pump.run(0, 0, True) <= 2
        while sink.queue:
            sink.queue.popleft()
        while channel(link).receive() is not None:
            pass
    assert left


def test_a_frame_goes_around_messages_that_wait(stage: PipeStage) -> None:
    _, link, source = stage.open()
    sending = channel(source)
    assert sending.send(b"x" * 100_000)
    assert sending.flush()  # the first message is not whole in the pipe
    assert not sending.send_alone(b"alone")
    while sending.flush():
        assert channel(link).receive() in (None, b"x" * 100_000)
    assert sending.send_alone(b"alone")
