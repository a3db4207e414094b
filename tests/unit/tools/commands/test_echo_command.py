from __future__ import annotations

import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from ipcbus import MessageType
from ipcbus.delivery.received_message import Origin, whole_message
from ipcbus.wire.properties import pack
from ipcbus_tools.commands.echo_command import (
    SOON_S,
    _as_json,
    _as_line,
    _event,
    _hex_rows,
    _print_all,
    _say_that_nothing_comes,
)
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


class Silent:
    """A receiver to which nothing comes before some calls."""

    topic = "t\x1b"
    sessions: tuple[str, ...] = ()

    def __init__(self, silent: int) -> None:
        self.silent = silent
        self.timeouts: list[float | None] = []

    def receive_many(self, limit: int, timeout: float | None) -> list[Message]:
        self.timeouts.append(timeout)
        return [headed({})] * min(limit, 1) if len(self.timeouts) > self.silent else []


@pytest.mark.parametrize(("timeout", "rest"), [(None, None), (5.0, 5.0 - SOON_S)])
def test_nothing_comes_and_it_says_so_once(
    timeout: float | None, rest: float | None, capsys: pytest.CaptureFixture[str]
) -> None:
    receiver: Any = Silent(1)
    assert _print_all(receiver, lambda _: "x", 2, timeout, _say_that_nothing_comes("d")) == 2
    assert receiver.timeouts == [SOON_S, rest, timeout]
    assert capsys.readouterr() == (
        "x\nx\n",
        "listening on topic 't\\x1b' in domain 'd': there is no source yet; 'ipcbus list' shows what is there\n",
    )


def test_sources_that_are_silent_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    receiver: Any = Silent(1)
    receiver.sessions = ("LBT-IPC:1:1",)
    _print_all(receiver, lambda _: "x", 1, None, _say_that_nothing_comes("d"))
    assert "in domain 'd': its sources have sent no message yet; " in capsys.readouterr().err


@pytest.mark.parametrize(("silent", "timeout", "says"), [(0, None, True), (1, 0.5, True), (1, 5.0, False)])
def test_it_says_nothing_where_messages_come_or_programs_read(
    silent: int, timeout: float | None, says: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    receiver: Any = Silent(silent)
    _print_all(receiver, lambda _: "x", 1, timeout, _say_that_nothing_comes("d") if says else None)
    assert len(receiver.timeouts) == 1
    assert capsys.readouterr().err == ""
