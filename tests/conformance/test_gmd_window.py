"""The window of duplicates: how many messages a receiver has whose acknowledgement its area has not recorded."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

import numpy as np
import pytest

from tests.kit.bus import LBTIPC, Bus
from tests.kit.guaranteed import MEMORY, acknowledged, expected, send, source
from tests.kit.payload import number_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from ipcbus import Context, Message, Receiver

pytestmark = [
    pytest.mark.parametrize("kind", [LBTIPC], ids=["LBT-IPC"]),
    pytest.mark.parametrize("mode", ["sequential"]),  # nothing is recorded but by the calls of the test
]

WINDOW, COUNT = 20, 200
OPTIONS = {"gmd_name": "receiver", "gmd_unrecorded_maximum": WINDOW, **MEMORY}


def recorded(context: Context) -> int:
    """Number of messages that the area of the receiver records."""
    (area, _) = next(iter(context._receiving_sessions.receptions._named.values()))._topics["t"]
    streams = [area.known(*each) for each in area.streams()]
    return sum(each.floor + sum(last - first + 1 for first, last in each.ranges) for each in streams)


def kept_messages(bus: Bus, context: Context) -> tuple[list[Message], Receiver]:
    """Messages of a receiver that acknowledges by hand."""
    kept: list[Message] = []
    receiver = context.receiver(
        "t", lambda m: kept.append(m) if m.gmd_sequence_number else None, ipc_gmd_auto_ack=False, **OPTIONS
    )
    sending = source(bus)
    expected(bus, sending, "receiver")
    send(bus, sending, COUNT)
    bus.until(lambda: len(kept) == COUNT, "messages")
    return kept, receiver


@pytest.mark.parametrize("step", [1, -1, 7], ids=["in order", "backwards", "mixed"])
def test_acknowledgements_of_another_thread(bus: Bus, step: int) -> None:
    context, most = bus.context("receiving"), 0
    kept, _ = kept_messages(bus, context)

    def acknowledge() -> None:
        nonlocal most
        for count in range(COUNT):
            kept[count * step % COUNT if step > 0 else -1 - count].ack()
            most = max(most, count + 1 - recorded(context))

    thread = threading.Thread(target=acknowledge)
    thread.start()
    thread.join()
    assert most == WINDOW


def test_acknowledgements_of_several_threads(bus: Bus) -> None:
    context, most, done, all_at_once = bus.context("receiving"), [0], [0], threading.Barrier(4)
    kept, _ = kept_messages(bus, context)

    def acknowledge(first: int) -> None:
        all_at_once.wait()
        for message in kept[first::4]:
            message.ack()
            done[0] += 1  # too low at times, as the threads change
            most[0] = max(most[0], done[0] - recorded(context))

    threads = [threading.Thread(target=acknowledge, args=(first,)) for first in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most[0] <= WINDOW
    assert recorded(context) >= COUNT - WINDOW


def test_acknowledgements_of_one_callback(bus: Bus) -> None:
    context, most, kept = bus.context("receiving"), [0], list[object]()

    def acknowledge_all(message: Message) -> None:
        if message.gmd_sequence_number:
            kept.append(message)
        if message.gmd_sequence_number == COUNT:
            for count, each in enumerate(kept):
                each.ack()  # type: ignore[attr-defined]
                most[0] = max(most[0], count + 1 - recorded(context))

    context.receiver("t", acknowledge_all, ipc_gmd_auto_ack=False, **OPTIONS)
    sending = source(bus)
    expected(bus, sending, "receiver")
    send(bus, sending, COUNT)
    acknowledged(bus, sending)
    assert most[0] == WINDOW


def _one(receiver: Receiver) -> list[int]:
    message = receiver.receive(0)
    return [] if message is None else [message.gmd_sequence_number]


def _many(receiver: Receiver) -> list[int]:
    return [message.gmd_sequence_number for message in receiver.receive_many(COUNT, 0)]


def _rows(receiver: Receiver) -> list[int]:
    rows = np.zeros((COUNT, 64), np.uint8)
    while receiver._sink.queue and not receiver._sink.queue[0].gmd_sequence_number:
        receiver.receive(0)
    return [number_of(bytes(row)) for row in rows[: receiver.receive_into(rows, 0)]]


@pytest.mark.parametrize("pull", [_one, _many, _rows], ids=["receive", "receive_many", "receive_into"])
@pytest.mark.parametrize("policy", ["first", "last"])
def test_what_is_pulled(bus: Bus, pull: Callable[[Receiver], list[int]], policy: str) -> None:
    context = bus.context("receiving")
    receiver = context.receiver("t", ipc_gmd_auto_ack_policy=policy, **OPTIONS)
    sending, got = source(bus), list[int]()
    expected(bus, sending, "receiver")
    send(bus, sending, COUNT)
    while len(got) < COUNT:
        got += filter(None, pull(receiver))
        assert len(got) - recorded(context) <= WINDOW
        assert pull is not _rows or recorded(context) <= len(got) - 1
        bus.turn()
    assert got == list(range(1, COUNT + 1))
    pull(receiver)
    acknowledged(bus, sending)


def test_acknowledgements_after_the_end_and_in_a_child(bus: Bus) -> None:
    context = bus.context("receiving")
    kept, receiver = kept_messages(bus, context)
    child = os.fork()
    if not child:
        for message in kept:
            message.ack()
        os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    for message in kept[:50]:
        message.ack()
    receiver.close()
    for message in kept[50:100]:
        message.ack()
    context.close()
    for message in kept[100:]:
        message.ack()
