"""Requests as receivers get them, on every transport and in every form of receiving."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from ipcbus import MessageType
from ipcbus.archive import Archive
from ipcbus.archive.recorder import Recorder
from tests.kit.bus import GIVE_UP_S, on_all
from tests.kit.recording import messages, rows_of

if TYPE_CHECKING:
    from pathlib import Path

    from ipcbus import Message
    from tests.kit.bus import Bus

one_mode = pytest.mark.parametrize("mode", ["embedded"])
HEADERS = (("key", b"k"),)


@on_all
@one_mode
def test_they_come_in_order_with_plain_messages(bus: Bus) -> None:
    source = bus.source()
    receiver = bus.receiver()
    bus.joined(source)
    longest = source.message_max if not bus.kind.batches else 3 * source.message_max
    values = [b"", b"ask", bytes(range(200)), bytes(longest - 8)]
    for number, value in enumerate(values):
        source.send(b"plain")
        source._send_request(value, number, headers=HEADERS if number == 1 else None)
    found: list[Message] = []
    while len(found) < 2 * len(values):
        came = receiver.receive_many(10, GIVE_UP_S)
        assert came, f"waited in vain for more than {found}"
        found += [message for message in came if message.type is not MessageType.BOS]
    assert [message.type.name for message in found] == ["DATA", "REQUEST"] * len(values)
    assert [message.data for message in found[1::2]] == values
    assert found[3].headers == HEADERS
    assert receiver.lost == 0


@one_mode
def test_rows_stop_before_a_request(bus: Bus) -> None:
    source = bus.source()
    receiver = bus.receiver()
    bus.joined(source)
    for value in (b"1", b"2"):
        source.send(value)
    source._send_request(b"3", 9)
    source.send(b"4", flush=True)
    rows = np.zeros((8, 1), np.uint8)
    found: list[bytes] = []
    while len(found) < 4:
        count = receiver.receive_into(rows, GIVE_UP_S)
        if count:
            found += [bytes(row) for row in rows[:count]]
            continue
        message = receiver.receive(0)
        assert message is not None
        if message.type is not MessageType.BOS:
            assert (message.type, message.data, len(found)) == (MessageType.REQUEST, b"3", 2)
            found.append(message.data)
    assert found == [b"1", b"2", b"3", b"4"]


@one_mode
def test_a_recorder_writes_their_values(bus: Bus, tmp_path: Path) -> None:
    source = bus.source()
    archive = Archive.create(tmp_path)
    with Recorder(bus.context("recording"), archive, ["t"], flush_seconds=0.001) as recorder:
        bus.joined(source)
        source._send_request(b"ask", 1, headers=HEADERS)
        source.send(b"plain", flush=True)
        bus.until(lambda: recorder.stats.messages == 2, "both to be recorded")
    found = [(row.type, row.value, bool(row.block)) for row in messages(rows_of(archive))]
    assert found == [(MessageType.DATA, b"ask", True), (MessageType.DATA, b"plain", False)]
