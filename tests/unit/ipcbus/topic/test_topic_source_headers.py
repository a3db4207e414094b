"""What a send with headers puts into datagrams."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import ipcbus
from ipcbus.wire.properties import pack
from ipcbus.wire.wire_layout import FLAG_END_BATCH, FLAG_FRAGMENT, FLAG_PROPERTIES, FLAG_START_BATCH
from tests.kit.datagrams import Item
from tests.rings import channels
from tests.unit.ipcbus.topic.test_batch import LONGEST, Stand

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ipcbus.wire.properties import Headers

HEADERS = {"key": b"k", "trace": bytes(20)}
BLOCK = pack(HEADERS)
PIECE = LONGEST - 16


@pytest.fixture
def stand(domain: str) -> Iterator[Stand]:
    with channels.owned(domain) as channel:
        reading = channels.join(domain)
        yield Stand(channel, reading, 1 << 20)
        reading.leave()


@pytest.mark.parametrize("data", [b"value", bytearray(b"value"), memoryview(b"value")])
def test_the_block_stands_before_the_value(stand: Stand, data: bytes) -> None:
    stand.one.send(data)
    stand.one.send(data, headers=HEADERS)
    stand.one.send(b"", headers=tuple(HEADERS.items()))
    stand.one.flush()
    headed = [Item(0, 1, BLOCK + b"value", FLAG_PROPERTIES), Item(0, 2, BLOCK, FLAG_PROPERTIES)]
    assert stand.datagrams() == [[Item(0, 0, b"value"), *headed]]
    assert stand.line(0)["bytes_sent"] == 2 * 5 + 2 * len(BLOCK)


@pytest.mark.parametrize("none", [None, {}, (), iter([])])
def test_without_headers_nothing_is_added(stand: Stand, none: Headers | None) -> None:
    stand.one.send(b"value", headers=none, flush=True)
    stand.one.send(bytearray(b"value"), headers=none, start_batch=True, end_batch=True, flush=True)
    assert stand.datagrams() == [[Item(0, 0, b"value")], [Item(0, 1, b"value", FLAG_START_BATCH | FLAG_END_BATCH)]]


def test_flags_of_batches_go_with_them(stand: Stand) -> None:
    stand.one.send(b"1", headers=HEADERS, start_batch=True)
    stand.one.send(b"2", headers=HEADERS, end_batch=True, flush=True)
    (datagram,) = stand.datagrams()
    assert [item.flags for item in datagram] == [FLAG_PROPERTIES | FLAG_START_BATCH, FLAG_PROPERTIES | FLAG_END_BATCH]


def test_headers_that_cannot_be_sent_take_no_number_and_begin_no_batch(stand: Stand) -> None:
    with pytest.raises(TypeError, match="not bytes-like"):
        stand.one.send(b"value", headers={"a": "text"}, start_batch=True)  # type: ignore[dict-item]
    with pytest.raises(ipcbus.MessageTooLarge, match="message itself"):
        stand.one.send(b"value", headers={"a": bytes(65535)})
    with pytest.raises(TypeError):
        stand.one.send("text", headers=HEADERS)
    assert (stand.one.sequence_number, stand.batch.explicit_batches) == (-1, 0)
    stand.one.send(b"next", flush=True)
    assert stand.datagrams() == [[Item(0, 0, b"next")]]


def test_a_datagram_that_they_just_fill_and_one_that_they_exceed(stand: Stand) -> None:
    value = bytes(LONGEST - len(BLOCK))
    stand.one.send(value, headers=HEADERS, flush=True)
    assert stand.datagrams() == [[Item(0, 0, BLOCK + value, FLAG_PROPERTIES)]]


@pytest.mark.parametrize(
    ("header", "value"),
    [(0, 2000), (2000, 0), (1300, 1300), (983, 0), (983, 10), (984, 0), (1975, 0), (1976, 1)],
)
def test_fragments_carry_both_one_after_the_other(
    stand: Stand, monkeypatch: pytest.MonkeyPatch, header: int, value: int
) -> None:
    monkeypatch.setattr(stand.policy, "begin_fragments", lambda need, block, source: False, raising=False)
    headers, data = {"name": (bytes(range(1, 256)) * 8)[:header]}, (bytes(range(255, 0, -1)) * 8)[:value]
    sent = pack(headers) + data
    stand.one.send(data, headers=headers, flush=True)
    items = [item for datagram in stand.datagrams() for item in datagram]
    in_one = len(sent) <= LONGEST
    assert len(items) == (1 if in_one else -(-len(sent) // PIECE))
    assert {item.flags for item in items} == {FLAG_PROPERTIES | (0 if in_one else FLAG_FRAGMENT)}
    assert b"".join(item.payload[0 if in_one else 16 :] for item in items) == sent
    assert stand.line(0)["bytes_sent"] == len(sent)


def test_names_may_be_made_by_code_that_sends_on_the_same_source(stand: Stand) -> None:
    def pairs() -> Iterator[tuple[str, bytes]]:
        stand.one.send(b"in between")
        yield "name", b"value"

    stand.one.send(b"value", headers=pairs(), flush=True)
    assert stand.datagrams() == [
        [Item(0, 0, b"in between"), Item(0, 1, pack({"name": b"value"}) + b"value", FLAG_PROPERTIES)]
    ]
