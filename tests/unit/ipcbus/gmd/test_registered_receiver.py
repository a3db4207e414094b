from __future__ import annotations

from typing import TYPE_CHECKING

from ipcbus.gmd.delivery_modes import ALL
from ipcbus.gmd.expected_names import ExpectedName
from ipcbus.gmd.gmd_settings import SenderSettings
from ipcbus.gmd.message_places import MessagePlaces
from ipcbus.gmd.registered_receiver import RegisteredReceiver, ResentBuilder
from ipcbus.wire import gmd_messages, topic_places
from ipcbus.wire.gmd_messages import ResendRequest, Resent
from tests.kit.gmd_models import ModelSenderArea, SenderDisk

if TYPE_CHECKING:
    from collections.abc import Hashable

SETTINGS = SenderSettings(piece_bytes=192)


class Sent:
    """A channel with room for some messages."""

    def __init__(self, room: int = 1000) -> None:
        self.room = room
        self.messages: list[gmd_messages.GmdMessage | None] = []

    def __call__(self, peer: Hashable, message: bytes, is_bulk: bool) -> bool:
        assert is_bulk
        self.room -= 1
        if self.room >= 0:
            self.messages.append(gmd_messages.decode(message))
        return self.room >= 0


def make(count: int) -> tuple[ModelSenderArea, RegisteredReceiver, ResentBuilder, list[int]]:
    area = ModelSenderArea(SenderDisk())
    places = MessagePlaces(area, 3)
    places.begin_sending()
    for _ in range(count):
        area.save(ALL, 0, 5, b"h", b"x" * 20)
    name = ExpectedName(1, "one", 0)
    name.owed.add(1, count)
    damaged: list[int] = []
    places.correct(2, topic_places.pack(6, 7))
    return (
        area,
        RegisteredReceiver("peer", 5, 9, name, 0),
        ResentBuilder(area, places.run, damaged.append),
        damaged,
    )


def ask(first: int, last: int | None, bytes_max: int = 10_000) -> ResendRequest:
    return ResendRequest(5, 9, 77, first, last, bytes_max)


def drain(area: ModelSenderArea, receiver: RegisteredReceiver, build: ResentBuilder) -> list[tuple[object, ...]]:
    sent = Sent()
    while receiver.has_work:
        assert receiver.step(area, SETTINGS, build, sent) is not None
    return [
        (each.first, each.next, [entry.number for entry in each.entries], each.ends, each.may_come_later)
        for each in sent.messages
        if isinstance(each, Resent)
    ]


def test_pieces_and_credit() -> None:
    area, receiver, build, _ = make(7)
    receiver.name.owed.remove(4, 4)
    receiver.ask(ask(1, None), 7)
    assert drain(area, receiver, build) == [
        (1, 4, [1, 2, 3], False, False),
        (4, 8, [5, 6, 7], True, False),
    ]
    receiver.ask(ask(2, 99, 64), 7)
    assert drain(area, receiver, build) == [(2, 3, [2], True, False)]
    receiver.ask(ask(8, None), 7)
    assert drain(area, receiver, build) == [(8, 8, [], True, False)]
    assert build.messages == 7


def test_failed_messages_may_come_later() -> None:
    area, receiver, build, _ = make(5)
    receiver.name.owed.remove(2, 2)
    receiver.name.failed[518] = receiver.name.owed.__class__([(2, 2)])
    receiver.ask(ask(1, 5), 5)
    assert drain(area, receiver, build) == [
        (1, 2, [1], False, False),
        (2, 3, [], False, True),
        (3, 6, [3, 4, 5], True, False),
    ]


def test_a_channel_without_room() -> None:
    area, receiver, build, _ = make(2)
    receiver.answers.append(gmd_messages.refused(5, 9, 1))
    receiver.deletes.add(9, 9)
    receiver.ask(ask(1, None), 2)
    assert receiver.step(area, SETTINGS, build, Sent(0)) is None
    sent = Sent(2)
    assert receiver.step(area, SETTINGS, build, sent) == 0
    assert receiver.step(area, SETTINGS, build, sent) == 0
    assert receiver.step(area, SETTINGS, build, sent) is None
    sent.room = 1
    assert receiver.step(area, SETTINGS, build, sent) == 128
    assert not receiver.has_work
    assert receiver.step(area, SETTINGS, build, sent) == 0
    assert [type(each).__name__ for each in sent.messages] == ["Registered", "Delete", "Resent"]
    found = sent.messages[-1]
    assert isinstance(found, Resent)
    one, two = found.entries
    assert one == (1, 5, 3, None, b"h", b"x" * 20)
    assert two.topic_numbers == (6, 7)


def test_a_damaged_copy_is_passed_over() -> None:
    area, receiver, build, damaged = make(3)
    area.disk.damaged.add(2)
    del area.disk.saved[3]
    receiver.ask(ask(1, None), 3)
    assert [each[2] for each in drain(area, receiver, build)] == [[1], [], []]
    assert damaged == [2]
