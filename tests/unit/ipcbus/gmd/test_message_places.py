from __future__ import annotations

from ipcbus.gmd import sender_notes
from ipcbus.gmd.delivery_modes import ALL
from ipcbus.gmd.message_places import MessagePlaces
from ipcbus.wire import gmd_messages, topic_places
from ipcbus.wire.control_messages import NUMBER_MAX
from tests.kit.gmd_models import ModelSenderArea, SenderDisk


def recovered(area: ModelSenderArea, notes: list[bytes], opening: int) -> MessagePlaces:
    found = MessagePlaces(area, opening)
    for each in notes:
        note = sender_notes.decode(each)
        assert note is not None
        found.replay(note)
    return found


def shown(places: MessagePlaces, area: ModelSenderArea) -> list[tuple[int, int]]:
    parts, _, _, _ = area.entries(1, 100, 1 << 20, places.run)
    found = gmd_messages.decode(gmd_messages.resent(1, 1, 1, 1, 101, 0, parts))
    assert isinstance(found, gmd_messages.Resent)
    return [(each.opening, each.topic_numbers[0] if each.topic_numbers else 0) for each in found.entries]


def test_each_message_has_its_opening_and_its_place() -> None:
    area = ModelSenderArea(SenderDisk())
    area.save(ALL, topic_places.pack(99, 99), 0, b"", b"of an area without openings")
    one = MessagePlaces(area, 7)
    for place in (10, 11):
        one.begin_sending()
        area.save(ALL, topic_places.pack(place, place), 0, b"", b"")
    one.correct(3, topic_places.pack(15, 15))
    two = recovered(area, area.disk.notes, 8)
    two.begin_sending()
    area.save(ALL, topic_places.pack(20, 20), 0, b"", b"")
    assert shown(two, area) == [(0, 0), (7, 10), (7, 15), (8, 20)]
    three = recovered(area, list(two.notes(1)), 9)
    assert shown(three, area) == shown(two, area)
    assert len(area.disk.notes) == 3
    three.drop_below(4)
    assert len(list(three.notes(4))) == 1
    assert three.run(4) == (8, None, NUMBER_MAX)
    assert two.topic_numbers(area.disk.saved[4]) == (20, 20)
    assert two.topic_numbers(area.disk.saved[3]) is None


def test_numbers_that_are_given_again_belong_to_the_new_opening() -> None:
    area = ModelSenderArea(SenderDisk())
    one = MessagePlaces(area, 7)
    one.begin_sending()
    area.save(ALL, topic_places.pack(10, 10), 0, b"", b"")
    one.correct(1, topic_places.pack(15, 15))
    area.disk.last_number = 0  # an older copy of the area is put back
    two = recovered(area, area.disk.notes, 8)
    two.begin_sending()
    area.save(ALL, topic_places.pack(20, 20), 0, b"", b"")
    assert shown(two, area) == [(8, 20)]
