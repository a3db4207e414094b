"""What a request puts into datagrams."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ipcbus.wire.properties import pack
from ipcbus.wire.wire_layout import FLAG_FRAGMENT, FLAG_PROPERTIES, FLAG_REQUEST
from tests.kit.datagrams import Item
from tests.rings import channels
from tests.unit.ipcbus.topic.test_batch import LONGEST, Stand

if TYPE_CHECKING:
    from collections.abc import Iterator

NUMBER = 0xFEDCBA9876543210
HEADER = NUMBER.to_bytes(8, "little")
BLOCK = pack({"key": b"k"})


@pytest.fixture
def stand(domain: str) -> Iterator[Stand]:
    with channels.owned(domain) as channel:
        reading = channels.join(domain)
        yield Stand(channel, reading, 1 << 20)
        reading.leave()


@pytest.mark.parametrize("data", [b"", b"value", bytearray(b"value"), memoryview(b"value")])
def test_its_number_stands_before_the_value_and_its_batch_is_published(stand: Stand, data: bytes) -> None:
    stand.one.send(b"before")
    stand.one._send_request(data, NUMBER)
    assert stand.datagrams() == [[Item(0, 0, b"before"), Item(0, 1, HEADER + bytes(data), FLAG_REQUEST)]]


def test_its_headers_stand_behind_its_number(stand: Stand) -> None:
    stand.one._send_request(b"value", NUMBER, headers={"key": b"k"})
    stand.one._send_request(b"value", NUMBER, headers={})
    flags = FLAG_REQUEST | FLAG_PROPERTIES
    assert stand.datagrams() == [
        [Item(0, 0, HEADER + BLOCK + b"value", flags)],
        [Item(0, 1, HEADER + b"value", FLAG_REQUEST)],
    ]


def test_a_long_one_is_sent_in_fragments_that_all_say_so(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stand.policy, "begin_fragments", lambda need, block, source: False, raising=False)
    value = bytes(3 * LONGEST)
    stand.one._send_request(value, NUMBER)
    items = [item for datagram in stand.datagrams() for item in datagram]
    assert {item.flags for item in items} == {FLAG_REQUEST | FLAG_FRAGMENT}
    assert b"".join(item.payload[16:] for item in items) == HEADER + value


def test_a_value_that_just_fits_leaves_no_room_for_its_number(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stand.policy, "begin_fragments", lambda need, block, source: False, raising=False)
    stand.one._send_request(bytes(LONGEST - 8), NUMBER)
    stand.one._send_request(bytes(LONGEST - 7), NUMBER)
    assert [item.flags for each in stand.datagrams() for item in each] == [FLAG_REQUEST] + 2 * [
        FLAG_REQUEST | FLAG_FRAGMENT
    ]


@pytest.mark.parametrize("number", [-1, 1 << 64])
def test_a_number_that_does_not_fit_takes_no_sequence_number(stand: Stand, number: int) -> None:
    with pytest.raises(OverflowError):
        stand.one._send_request(b"value", number)
    assert stand.one.sequence_number == -1
