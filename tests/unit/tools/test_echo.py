from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from ipcbus import MessageType
from ipcbus_tools.echo import _clock, _event, _hex_rows


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
    assert _clock(2**63 - 1).count(":") == 2
    assert _clock(-(2**63)) == "??:??:??.??????" or _clock(-(2**63)).count(":") == 2
    assert _clock(10**30) == "??:??:??.??????"
