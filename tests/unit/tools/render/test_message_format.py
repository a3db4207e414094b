"""The formats of `ipcbus echo`."""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING

import pytest

from ipcbus.delivery.received_message import Origin, whole_message
from ipcbus.wire.properties import pack
from ipcbus_tools.common import Misuse, visible
from ipcbus_tools.render.message_format import PLACES, data_of_fields, message_format, pretty
from tests.kit.cases import each_of

if TYPE_CHECKING:
    from ipcbus import Message


def message(data: bytes = b"buy", topic: str = "orders", headers: dict[str, bytes] | None = None) -> Message:
    block = pack(headers) if headers else None
    return whole_message(Origin(topic, "LBT-IPC:1:1"), data, 7, 7, 0, 0, None, block or None)


@each_of(
    ("form", "shown"),
    [
        ("%t %s %d", "orders 7 buy"),
        ("%x|%l|%S|%k|%N", "627579|3|LBT-IPC:1:1|DATA|0"),
        (r"100%%\t%d\n", "100%\tbuy\n"),
        ("", ""),
        ("no place", "no place"),
        ("%h", "key=AAPL"),
    ],
)
def test_a_message_as_its_format_says(form: str, shown: str) -> None:
    assert message_format(form, visible)(message(headers={"key": b"AAPL"})) == shown


def test_every_place_has_a_meaning_and_is_shown() -> None:
    for place in PLACES:
        assert message_format(f"%{place}", visible)(message(headers={"key": b"AAPL"})), place


def test_names_and_data_do_nothing_to_the_terminal() -> None:
    assert message_format("%t %d", visible)(message(b"\x1b[2J", "\x1b[2J")) == r"\x1b[2J \x1b[2J"


@pytest.mark.parametrize(("form", "text"), [("%q", "'%q'; give one of: %t topic"), ("%", "'%'; give"), (r"\q", "n, ")])
def test_a_format_with_something_else_is_refused(form: str, text: str) -> None:
    with pytest.raises(Misuse, match=text):
        message_format(form, visible)


def test_json_has_a_line_for_each_value_and_other_data_is_text() -> None:
    assert pretty('{"a": [1], "b": "ä"}'.encode()) == '{\n  "a": [\n    1\n  ],\n  "b": "ä"\n}'
    assert pretty(b"\xff no json") == r"\xff no json"
    assert pretty(b"[" * 100_000).startswith("[[")


def test_json_does_nothing_to_the_terminal_and_stays_json() -> None:
    odd = "\x9b31m\u202e\ud800\U000e0001"
    shown = pretty(json.dumps([odd]).encode())
    assert shown.replace("\n", "").isprintable()
    assert json.loads(shown) == [odd]


def test_fields_of_a_payload() -> None:
    show = data_of_fields("price:d, count:I,venue:4s")
    assert show(struct.pack("<dI4s", 191.25, 7, b"NY\x1b")) == r"price=191.25 count=7 venue=NY\x1b"
    assert show(b"short") == "(5 bytes, and --fields has 16) 73686f7274"


@each_of("text", ["", "price", "price:z", "price:d,", ":d", "price d", "price:dd"])
def test_what_is_no_field_is_refused(text: str) -> None:
    with pytest.raises(Misuse, match=r"write NAME:LETTER"):
        data_of_fields(text)


def test_a_field_that_is_too_long_is_refused() -> None:
    with pytest.raises(Misuse, match="give fewer bytes"):
        data_of_fields("a:99999999999999999999s")
