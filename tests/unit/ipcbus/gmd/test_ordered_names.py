"""The short way of acknowledgements changes nothing that can be seen, whatever comes in between."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import pytest

from ipcbus.gmd.delivery_modes import ALL, SOME
from ipcbus.gmd.gmd_events import Confirmed
from ipcbus.gmd.gmd_settings import SenderSettings
from ipcbus.wire.gmd_messages import Ack
from tests.kit.cases import each_of
from tests.kit.gmd_models import SenderDisk
from tests.kit.gmd_pair import SECOND, TOPIC, Receiver, Source

if TYPE_CHECKING:
    from collections.abc import Callable


def settings() -> SenderSettings:
    return SenderSettings(confirms=True)


def connected(names: int = 1) -> tuple[Source, list[Receiver]]:
    """A source and receivers that hold what they get."""
    source = Source(settings=settings())
    receivers = [Receiver(source, f"r{place}", instance=place + 1) for place in range(names)]
    for each in receivers:
        each.holds = True
    source.run()
    return source, receivers


def is_ready(source: Source) -> bool:
    """Whether acknowledgements go the short way."""
    return source.sender.ordered.acks.is_ready


def ack(source: Source, receiver: Receiver, first: int, last: int) -> None:
    """An acknowledgement that the receiver's machine knows nothing of."""
    message = Ack(TOPIC, receiver.machine.instance, source.area.incarnation, [(first, last)])
    source.sender.receive(receiver, message, source.now_ns)


def test_it_is_ready_when_a_turn_has_ended_and_nothing_else_is_open() -> None:
    source, (one,) = connected()
    for _ in range(3):
        source.send()
    ack(source, one, 1, 2)
    assert is_ready(source)
    assert (source.sender.pending, source.sender.lowest, source.sender.oldest) == (1, 3, 3)
    assert source.sender.acknowledgements == 2
    assert source.sender.status(3).pending == ("r0",)
    assert not is_ready(source)
    source.run()
    assert is_ready(source)
    assert [(each.first, each.last) for each in source.take_events() if isinstance(each, Confirmed)] == [(1, 2)]


@each_of(
    "change",
    [
        pytest.param(lambda source, one: source.save(SOME), id="another mode"),
        pytest.param(lambda source, one: ack(source, one, 2, 2), id="a gap in the acknowledgements"),
        pytest.param(lambda source, one: source.sender.delete(2), id="a deleted message"),
        pytest.param(lambda source, one: source.sender.forget("r0", source.now_ns), id="nobody is expected"),
    ],
)
def test_it_is_not_ready_while_something_else_is_open(change: Callable[[Source, Receiver], object]) -> None:
    source, (one,) = connected()
    for _ in range(3):
        source.send()
    change(source, one)
    source.sender.turn(source.now_ns, lambda peer, message, bulk: False)
    assert not is_ready(source)


def test_a_receiver_that_acknowledges_is_not_asked() -> None:
    source, (one,) = connected()
    source.send()
    source.run()
    answers = len(one.answers)
    for number in range(1, 10):
        source.now_ns += SECOND * 9 // 10
        source.send()
        ack(source, one, number, number)
        source.sender.turn(source.now_ns, source._to_receiver)
    assert len(one.answers) == answers
    source.later(2 * SECOND)
    assert len(one.answers) > answers


def play(seed: int, *, in_order: bool) -> list[object]:
    """A course that is drawn from a seed, with or without the short way; returns all that can be seen."""
    random, seen = Random(seed), list[object]()
    source, receivers = connected(random.randint(1, 3))
    if not in_order:
        source.sender.ordered.begin = lambda *_: None  # type: ignore[method-assign]
        source.sender.status(0)
    floors, mode = [0] * len(receivers), random.choice([ALL, ALL, SOME])
    for _ in range(150):
        last = source.area.last_number
        draw, place = random.random(), random.randrange(len(receivers))
        if draw < 0.35:
            source.send(mode)
        elif draw < 0.75 and floors[place] < last:
            to = random.randint(floors[place] + 1, last)
            ack(source, receivers[place], floors[place] + 1, to)
            floors[place] = to
        elif draw < 0.8 and last:
            first = random.randint(1, last)
            ack(source, receivers[place], first, random.randint(first, last))
        elif draw < 0.82 and last:
            source.sender.delete(random.randint(1, last))
        elif draw < 0.84:
            mode = random.choice([ALL, SOME])
        elif draw < 0.86:
            source.disk.notes = source.sender.checkpoint()
        else:
            source.sender.turn(source.now_ns, lambda peer, message, bulk: True)
        if draw > 0.9:
            seen.append([source.sender.status(number) for number in range(1, last + 1)])
        seen.append((source.sender.pending, source.sender.oldest, source.sender.acknowledgements))
        seen.append(sorted(source.disk.saved))
    confirmed = [event for event in iter(source.sender.next_event, None) if isinstance(event, Confirmed)]
    seen.append(sorted(number for event in confirmed for number in range(event.first, event.last + 1)))
    again = Source(disk=SenderDisk(**vars(source.disk)), settings=settings())
    states = [again.sender.status(number) for number in again.disk.saved]
    seen.append((again.sender.pending, again.sender.expected, states))
    return seen


@pytest.mark.parametrize("seeds", [range(20), pytest.param(range(20, 200), marks=pytest.mark.long)])
def test_nothing_changes_by_the_short_way(seeds: range) -> None:
    for seed in seeds:
        assert play(seed, in_order=True) == play(seed, in_order=False), f"seed {seed}"
