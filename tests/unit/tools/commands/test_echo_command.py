from __future__ import annotations

import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from ipcbus import MessageType
from ipcbus.delivery.received_message import Origin, whole_message
from ipcbus.wire.properties import pack
from ipcbus_tools.commands.echo_command import _as_json, _as_line, _event, _hex_rows
from ipcbus_tools.common import clock_time

if TYPE_CHECKING:
    from ipcbus import Message


def test_names_in_events_do_nothing_to_the_terminal() -> None:
    event: Any = SimpleNamespace(
        type=MessageType.BOS, topic="\x1b[2J", source="\x9b1m", first_sequence_number=-1, sequence_number=-1
    )
    assert _event(event) == "-- BOS  \\x1b[2J  \\x9b1m"


def test_hex_rows() -> None:
    first, second = _hex_rows(bytes(range(0x41, 0x41 + 15)) + b"\x00\xffZ")
    assert first == "    000000  41 42 43 44 45 46 47 48 49 4a 4b 4c 4d 4e 4f 00  ABCDEFGHIJKLMNO."
    assert second.split() == ["000010", "ff", "5a", ".Z"]
    assert _hex_rows(b"") == []


def test_clock_of_a_damaged_source() -> None:
    assert clock_time(2**63 - 1).count(":") == 2
    assert clock_time(-(2**63)) == "??:??:??.??????" or clock_time(-(2**63)).count(":") == 2
    assert clock_time(10**30) == "??:??:??.??????"


def headed(headers: dict[str, bytes]) -> Message:
    return whole_message(Origin("t", "LBT-IPC:1:1"), b"value", 3, 3, 0, 0, None, pack(headers) or None)


def test_headers_stand_before_the_payload_and_do_nothing_to_the_terminal() -> None:
    line = _as_line(False)(headed({"key": b"AAPL", "\x1b[2J": b"\xff\x1b"}))
    assert line.endswith(r"  [key=AAPL, \x1b[2J=\xff\x1b]  value")
    assert "[" not in _as_line(False)(headed({}))
    assert "[key=AAPL]  5 bytes\n" in _as_line(True)(headed({"key": b"AAPL"}))


def test_headers_in_json() -> None:
    message = headed({"key": b"AAPL", "trace": b"\xff\x00"})
    shown = json.loads(_as_json(False)(message))
    assert shown["headers"] == [{"key": "key", "data": "AAPL"}, {"key": "trace", "hex": "ff00"}]
    assert (shown["length"], shown["data"]) == (5, "value")
    assert json.loads(_as_json(True)(message))["headers"][0] == {"key": "key", "hex": "4141504c"}
    assert "headers" not in json.loads(_as_json(False)(headed({})))
