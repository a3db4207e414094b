"""Two processes that sleep whenever they can talk over a control channel. A lost wake-up hangs the test."""

from __future__ import annotations

import random
import select
from typing import TYPE_CHECKING

import pytest

from ipcbus.recovery.control_channel import ControlChannel
from ringbuf import wake
from tests.kit.pipe_stage import PipeStage
from tests.rings.children import Children

if TYPE_CHECKING:
    from collections.abc import Callable

    from ringbuf.doorbell import Doorbell

pytestmark = pytest.mark.stress

QUESTIONS = 10_000
SIZES = (1, 100, 900, 5000)
LONG = 1 << 18


def messages(seed: int) -> list[bytes]:
    """What one side sends: some of them fill the queue several times over."""
    draw = random.Random(seed)
    return [bytes([n & 255]) * draw.choice(SIZES) for n in range(QUESTIONS)] + [bytes(LONG)] * 4


def talk(channel: ControlChannel, seed: int, sleep: Callable[[], None]) -> list[bytes]:
    """Sends all messages and receives as many; sleeps when there is nothing to do."""
    waiting = messages(seed)
    expected = len(waiting)
    found: list[bytes] = []
    more = False
    while waiting or more or len(found) < expected:
        while waiting and channel.send(waiting[0]):
            waiting.pop(0)
        more = channel.flush()
        before = len(found)
        while (message := channel.receive()) is not None:
            found.append(message)
        assert not channel.broken
        idle = len(found) == before and not channel.behind
        if idle and (more or (not waiting and len(found) < expected)):
            sleep()
    return found


def wait_for(bell: Doorbell, epoll: select.epoll) -> None:
    epoll.poll()
    bell.drain()


@pytest.mark.timeout(120)
def test_no_wake_up_is_lost(domain: str) -> None:
    stage = PipeStage(domain)
    session, link, source = stage.open()
    reader = session.datagram_source.reader
    limits = {"queue_max": 10_000, "message_max": 1 << 20}

    def receiver() -> bool:
        with select.epoll() as epoll:
            epoll.register(stage.bell_of_receiver.fd, select.EPOLLIN)

            def sleep() -> None:
                reader.arm(True)
                wake.barrier()  # SYNC park
                if not link.ready():
                    wait_for(stage.bell_of_receiver, epoll)
                reader.arm(False)

            return talk(ControlChannel(link, **limits), 2, sleep) == messages(1)

    with Children() as children, select.epoll() as epoll:
        child = children.run(receiver)
        epoll.register(stage.bell_of_source.fd, select.EPOLLIN)

        def sleep() -> None:
            if stage.pipes.arm(sleeps=True):
                wait_for(stage.bell_of_source, epoll)
            stage.pipes.arm(sleeps=False)
            stage.pipes.look()

        assert talk(ControlChannel(source, **limits), 1, sleep) == messages(2)
        assert child.result()
    stage.close()
