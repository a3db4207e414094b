"""Guaranteed messages: saved, then sent; what a send that raises leaves behind."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import numpy as np
import pytest

import ipcbus
from ipcbus.topic.message_saver import MessageSaver
from ipcbus.wire import topic_places
from ipcbus.wire.properties import pack
from ipcbus.wire.wire_layout import (
    FLAG_END_BATCH,
    FLAG_FRAGMENT,
    FLAG_GUARANTEED,
    FLAG_PROPERTIES,
    FLAG_REQUEST,
    FLAG_START_BATCH,
)
from tests.kit.bus import GIVE_UP_S
from tests.kit.datagrams import Item
from tests.rings import channels
from tests.unit.ipcbus.topic.test_batch import LONGEST, Stand

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

BLOCK = pack({"key": b"k"})


class Area(MessageSaver):
    """A GMD area that keeps everything it is told."""

    def __init__(self, first: int = 1) -> None:
        super().__init__(self._save, threading.Lock())
        self.next = first
        self.saved: dict[int, tuple[int, int, bytes, bytes]] = {}
        self.times: list[int] = []
        self.terms: list[tuple[int, int]] = []
        self.after = 0
        self.full = False
        self.meanwhile: Callable[[], object] = lambda: None
        self.places: dict[int, int] = {}
        self.corrected: set[int] = set()

    def _save(self, mode: int, place: int, send_time_ns: int, block: bytes, data: bytes) -> int:
        if self.full:
            raise ipcbus.GmdAreaFull("as in the test")
        self.meanwhile()
        number, self.next = self.next, self.next + 1
        self.saved[number] = mode, self.terms[-1][1], block, data
        self.places[number] = place
        self.times.append(send_time_ns)
        return number

    def _unsave(self, number: int) -> None:
        assert number == self.next - 1
        assert self.sends
        self.sends = False
        del self.saved[number]
        self.next = number

    def _change_terms(self, mode: int, timeout_ns: int) -> None:
        self.terms.append((mode, timeout_ns))

    def _correct_place(self, number: int, place: int) -> None:
        self.places[number] = place
        self.corrected.add(number)

    def _after_send(self) -> None:
        assert not self.sends
        self.after += 1

    @property
    def numbers(self) -> dict[int, tuple[int, int] | None]:
        """The sequence numbers of each message."""
        return {number: topic_places.unpack(self.places[number]) for number in self.saved}


@pytest.fixture
def stand(domain: str) -> Iterator[Stand]:
    with channels.owned(domain) as channel:
        reading = channels.join(domain)
        yield Stand(channel, reading, 1 << 20)
        reading.leave()


@pytest.fixture
def area(stand: Stand) -> Area:
    made = Area()
    stand.one._guarantee(made, 0, 0)
    return made


def guaranteed(sequence: int, number: int, value: bytes, flags: int = 0) -> Item:
    """A guaranteed message in a datagram."""
    return Item(0, sequence, number.to_bytes(8, "little") + value, flags | FLAG_GUARANTEED)


@pytest.mark.parametrize("data", [b"", b"value", bytearray(b"value"), memoryview(b"value")])
@pytest.mark.parametrize(("mode", "number"), [("some", 1), ("all", 2)])
def test_its_number_stands_before_the_value(stand: Stand, area: Area, data: bytes, mode: str, number: int) -> None:
    before = time.time_ns()
    stand.one.send(b"before")
    stand.one.send(data, delivery_mode=mode, delivery_timeout=1.5)
    stand.one.send(data, delivery_mode=mode)
    stand.one.send(b"after", flush=True)
    assert stand.datagrams() == [
        [Item(0, 0, b"before"), guaranteed(1, 1, bytes(data)), guaranteed(2, 2, bytes(data)), Item(0, 3, b"after")]
    ]
    assert area.saved == {1: (number, 1_500_000_000, b"", bytes(data)), 2: (number, 0, b"", bytes(data))}
    assert area.numbers == {1: (1, 1), 2: (2, 2)}
    assert all(before - 10**9 < at < time.time_ns() + 10**9 for at in area.times)


def test_a_source_has_a_mode_for_messages_that_give_none(stand: Stand) -> None:
    area = Area(7)
    stand.one._guarantee(area, 2, 5_000_000_000)
    stand.one.send(b"a")
    stand.one.send(b"b", delivery_mode="best_effort")
    stand.one.send(b"c", delivery_mode="some", delivery_timeout=0)
    stand.one.send(b"d", delivery_mode="ordered")
    stand.one._send_request(b"e", 3)
    items = [item for each in stand.datagrams() for item in each]
    assert [item.flags for item in items] == [FLAG_GUARANTEED, 0, FLAG_GUARANTEED, 0, FLAG_REQUEST]
    assert area.saved == {7: (2, 5_000_000_000, b"", b"a"), 8: (1, 0, b"", b"c")}
    assert area.numbers == {7: (0, 0), 8: (2, 2)}


def test_headers_and_batch_flags_go_with_it(stand: Stand, area: Area) -> None:
    stand.one.send(b"v", headers={"key": b"k"}, delivery_mode="all", start_batch=True)
    stand.one.send(b"w", delivery_mode="all", end_batch=True, flush=True)
    assert stand.datagrams() == [
        [
            guaranteed(0, 1, BLOCK + b"v", FLAG_PROPERTIES | FLAG_START_BATCH),
            guaranteed(1, 2, b"w", FLAG_END_BATCH),
        ]
    ]
    assert area.saved[1] == (2, 0, BLOCK, b"v")


def test_fragments_share_one_number(stand: Stand, area: Area, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stand.policy, "begin_fragments", lambda need, block, source: False, raising=False)
    value = bytes(range(256)) * 5
    stand.one.send(bytes(LONGEST - 8), delivery_mode="all")
    stand.one.send(value, delivery_mode="all")
    stand.one.send(b"next", delivery_mode="all", flush=True)
    whole, *items, last = [item for each in stand.datagrams() for item in each]
    assert (whole.flags, last.flags) == (FLAG_GUARANTEED, FLAG_GUARANTEED)
    assert {item.flags for item in items} == {FLAG_GUARANTEED | FLAG_FRAGMENT}
    assert b"".join(item.payload[16:] for item in items) == (2).to_bytes(8, "little") + value
    assert area.numbers == {1: (0, 0), 2: (1, len(items)), 3: (len(items) + 1, len(items) + 1)}


def test_many_in_one_call(stand: Stand, area: Area) -> None:
    assert stand.one.send_many([b"a", b"b"], delivery_mode="all") == 2
    rows = np.arange(6, dtype=np.uint8).reshape(3, 2)
    assert stand.one.send_many(rows, delivery_mode="some", delivery_timeout=1) == 3
    assert [each[3] for each in area.saved.values()] == [b"a", b"b", b"\0\1", b"\2\3", b"\4\5"]
    stand.one.flush()
    assert [item for each in stand.datagrams() for item in each] == [
        guaranteed(number - 1, number, each[3]) for number, each in area.saved.items()
    ]


def test_in_place(stand: Stand, area: Area) -> None:
    with stand.one.acquire(5, delivery_mode="all") as buf:
        buf[:] = b"value"
        assert area.saved == {}
    assert stand.datagrams() == [[guaranteed(0, 1, b"value")]]
    assert (area.saved, area.numbers) == ({1: (2, 0, b"", b"value")}, {1: (0, 0)})
    with pytest.raises(KeyError), stand.one.acquire(5, delivery_mode="all"):
        raise KeyError
    with pytest.raises(ipcbus.MessageTooLarge):
        stand.one.acquire(LONGEST - 7, delivery_mode="all").__enter__()
    stand.one.send(b"x", delivery_mode="all")
    assert list(area.saved) == [1, 2]


@pytest.mark.parametrize("form", ["send", "send_many", "rows", "acquire"])
def test_a_full_area_lets_nothing_through(stand: Stand, area: Area, form: str) -> None:
    area.full = True

    def send() -> None:
        if form == "send":
            stand.one.send(b"x", delivery_mode="all")
        elif form == "send_many":
            stand.one.send_many([b"x"], delivery_mode="all")
        elif form == "rows":
            stand.one.send_many(np.zeros((2, 3), np.uint8), delivery_mode="all")
        else:
            with stand.one.acquire(3, delivery_mode="all") as buf:
                buf[:] = b"abc"

    with pytest.raises(ipcbus.GmdAreaFull):
        send()
    assert (stand.one.sequence_number, stand.one._is_guaranteeing()) == (-1, False)
    area.full = False
    send()
    stand.one.flush()
    assert next(iter(area.saved)) == 1
    assert stand.datagrams()[0][0].sequence == 0


def test_another_thread_waits_until_a_guaranteed_message_is_sent(
    stand: Stand, area: Area, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[bool] = []
    waits, released = threading.Event(), threading.Event()

    def wait(_block: bool, is_shut: Callable[[], bool]) -> None:
        asked.append(is_shut())
        waits.set()
        released.wait(GIVE_UP_S)

    monkeypatch.setattr(stand.policy, "wait_for_release", wait)
    monkeypatch.setattr(stand.policy, "released", released.set)
    others: list[threading.Thread] = []

    def begin() -> None:
        if not others:
            others.append(threading.Thread(target=lambda: stand.one.send(b"other", delivery_mode="all", flush=True)))
            others[0].start()
            assert waits.wait(GIVE_UP_S)

    area.meanwhile = begin
    stand.one.send(b"first", delivery_mode="all", flush=True)
    others[0].join()
    assert asked[0]
    assert [item.payload[8:] for each in stand.datagrams() for item in each] == [b"first", b"other"]


def test_a_send_without_room_saves_nothing(stand: Stand, area: Area) -> None:
    with pytest.raises(ipcbus.WouldBlock):
        while True:
            stand.one.send(bytes(500), delivery_mode="all", block=False)
    stand.datagrams()
    count = stand.one.sequence_number + 1
    assert list(area.saved) == list(range(1, count + 1))
    stand.one.send(b"x", delivery_mode="all", block=False)
    assert area.numbers[count + 1] == (count, count)


def test_a_message_that_is_in_the_ring_stays_saved(stand: Stand, area: Area) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    stand.reading.reader.arm(True)
    stand.policy.when_parked.append(interrupt)
    with pytest.raises(KeyboardInterrupt):
        stand.one.send(b"x", delivery_mode="all", flush=True)
    assert (list(area.saved), area.numbers) == ([1], {1: (0, 0)})
    stand.one.send(b"y", delivery_mode="all", flush=True)
    assert list(area.saved) == [1, 2]


def test_one_thread_cannot_send_another_inside(stand: Stand, area: Area) -> None:
    with stand.one.acquire(1, delivery_mode="all"), pytest.raises(ipcbus.ReservationError):
        stand.one.send(b"x", delivery_mode="all")
    assert list(area.saved) == [1]


def test_a_closed_source_saves_nothing(stand: Stand, area: Area) -> None:
    stand.one._refuse_sends()
    with pytest.raises(ipcbus.ClosedError):
        stand.one.send(b"x", delivery_mode="all")
    assert area.saved == {}


def test_what_is_wrong_is_refused(stand: Stand, area: Area) -> None:
    with pytest.raises(ipcbus.ConfigError, match="one of best_effort, ordered, some, all"):
        stand.one.send(b"x", delivery_mode="each")
    with pytest.raises(ipcbus.ConfigError, match="needs a source with a gmd_name"):
        stand.two.send(b"x", delivery_mode="all")
    with pytest.raises(ipcbus.ConfigError, match="delivery_timeout"):
        stand.two.send(b"x", delivery_timeout=1)
    with pytest.raises(ValueError, match="0 to"):
        stand.one.send(b"x", delivery_mode="all", delivery_timeout=-1)
    with pytest.raises(TypeError, match="not bytes-like"):
        stand.one.send("text", delivery_mode="all")
    stand.two.send(b"x", delivery_mode="ordered")
    assert (area.saved, stand.one.sequence_number, stand.two.sequence_number) == ({}, -1, 0)


def test_the_saver_is_told_of_changes_only(stand: Stand, area: Area) -> None:
    area.watches = True
    for timeout in (0, 0, 1, 1, 0):
        stand.one.send(b"x", delivery_mode="all", delivery_timeout=timeout)
    assert (area.terms, area.after) == ([(2, 0), (2, 10**9), (2, 0)], 0)
    area.watches = False
    stand.one.send(b"x", delivery_mode="some")
    assert (area.terms[-1], area.after) == ((1, 0), 1)
