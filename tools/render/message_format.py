"""Messages as the lines that `ipcbus echo` prints with --format, --fields and --pretty."""

from __future__ import annotations

import json
import re
import struct
from typing import TYPE_CHECKING, Final

from ipcbus_tools.common import Misuse, clock_time, safe, visible

if TYPE_CHECKING:
    from collections.abc import Callable

    from ipcbus import Message

    ShowData = Callable[[bytes], str]
    """Shows a payload."""

PLACES: Final = {
    "t": "topic",
    "s": "sequence number",
    "d": "data, as text or as --hex, --pretty or --fields show it",
    "x": "data in hexadecimal",
    "l": "length of the data in bytes",
    "T": "time of sending",
    "N": "time of sending in ns since the epoch",
    "S": "source string of the session",
    "k": "type, DATA or REQUEST",
    "h": "headers, as NAME=VALUE with commas",
    "%": "a percent sign",
}
"""What stands behind a percent sign in a format, with its meaning."""

_PLACE = re.compile(r"%(.?)|\\(.?)", re.DOTALL)
_ESCAPES: Final = {"n": "\n", "t": "\t", "\\": "\\", "0": "\0"}
_FIELD = re.compile(r"(\w+):([?bBhHiIqQefd]|\d+s)", re.ASCII)


def headers(message: Message) -> str:
    """Returns the headers of a message on one line, safe for a terminal."""
    return ", ".join(f"{safe(key).plain}={visible(value)}" for key, value in message.headers)


def message_format(text: str, show_data: ShowData) -> Callable[[Message], str]:
    """Returns the function that shows a message as a format says.

    Args:
        text: the format; `PLACES` names what stands behind a percent sign, and \\n, \\t and \\0 are as in printf.
        show_data: shows the payload, for %d.

    Raises:
        Misuse: the format has something else behind a percent sign or a backslash.
    """
    shows: dict[str, Callable[[Message], str]] = {
        "t": lambda message: safe(message.topic).plain,
        "s": lambda message: str(message.sequence_number),
        "d": lambda message: show_data(message.data),
        "x": lambda message: message.data.hex(),
        "l": lambda message: str(len(message)),
        "T": lambda message: clock_time(message.send_time_ns),
        "N": lambda message: str(message.send_time_ns),
        "S": lambda message: message.source,
        "k": lambda message: message.type.name,
        "h": headers,
        "%": lambda _message: "%",
    }
    parts: list[Callable[[Message], str]] = []
    end = 0
    for found in _PLACE.finditer(text):
        place: str | None = found[1]
        escape: str | None = found[2]
        if place is not None and place not in shows:
            known = ", ".join(f"%{name} {meaning}" for name, meaning in PLACES.items())
            raise Misuse(f"--format {text!r} has '%{place}'; give one of: {known}")
        if escape is not None and escape not in _ESCAPES:
            raise Misuse(f"--format {text!r} has '\\{escape}'; give one of \\n, \\t, \\0 and \\\\")
        parts.append(_fixed(text[end : found.start()]))
        if place is not None:
            parts.append(shows[place])
        elif escape is not None:
            parts.append(_fixed(_ESCAPES[escape]))
        end = found.end()
    parts.append(_fixed(text[end:]))
    return lambda message: "".join(part(message) for part in parts)


def _fixed(text: str) -> Callable[[Message], str]:
    return lambda _message: text


def pretty(data: bytes) -> str:
    """Returns JSON with a line for each value, safe for a terminal; other data as text."""
    try:
        text = json.dumps(json.loads(data), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return visible(data)
    # Still JSON: such characters stand only in strings.
    return "".join(each if each.isprintable() or each == "\n" else json.dumps(each)[1:-1] for each in text)


def data_of_fields(text: str) -> ShowData:
    """Returns the function that shows a payload of fields.

    Args:
        text: `NAME:LETTER,...`, with the letters of Python's struct; the fields lie one behind the other, without gaps,
            with the low byte first.

    Raises:
        Misuse: the text is of another form.
    """
    found = [_FIELD.fullmatch(part.strip()) for part in text.split(",")]
    fields = [each.groups() for each in found if each is not None]
    if len(fields) < len(found):
        raise Misuse(
            f"--fields {text!r}: write NAME:LETTER with commas between, such as 'price:d,count:I,venue:4s', with the "
            "letters ? b B h H i I q Q e f d and Ns of Python's struct"
        )
    try:
        layout = struct.Struct("<" + "".join(letter for _name, letter in fields))
    except struct.error as error:
        raise Misuse(f"--fields {text!r}: {error}; give fewer bytes") from error

    def show(data: bytes) -> str:
        if len(data) != layout.size:
            return f"({len(data)} bytes, and --fields has {layout.size}) {data.hex()}"
        values = zip(fields, layout.unpack(data), strict=True)
        return " ".join(f"{name}={_value(value)}" for (name, _letter), value in values)

    return show


def _value(value: object) -> str:
    return visible(value.rstrip(b"\0")) if isinstance(value, bytes) else str(value)
