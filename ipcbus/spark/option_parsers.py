"""Parsers of option texts: each returns the value of a text, or raises ValueError."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ipcbus.embedding import is_name

if TYPE_CHECKING:
    from collections.abc import Callable

EARLIEST: Final = -2
LATEST: Final = -1
"""Numbers that stand for the first offset that is kept, and for the one after the last, as in Kafka."""

PerTopic = dict[str, dict[int, int]]
"""Topic -> partition -> offset, or time in ms."""

_OFFSET_MAX: Final = 2**63 - 1
_DURATION: Final = re.compile(r"([0-9]{1,9})\s*(ms|s|m|min|h|d)")
_SECONDS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


@dataclass(frozen=True, slots=True)
class Position:
    """Where reading begins or ends; exactly one of the first five is set.

    Attributes:
        everywhere: EARLIEST or LATEST, for all topics.
        offsets: offsets by topic and partition, EARLIEST and LATEST among them.
        checkpoint: offsets of whole logs, as the checkpoint of a query holds them.
        time_ms: the first row received at this time or later, for all topics; ms since the epoch.
        times_ms: such times by topic and partition.
        or_latest: use the latest offset where no row was received at that time or later; else that is an error.
    """

    everywhere: int | None = None
    offsets: PerTopic | None = None
    checkpoint: dict[str, Any] | None = None
    time_ms: int | None = None
    times_ms: PerTopic | None = None
    or_latest: bool = False


def name(text: str) -> str:
    """Returns the text; it must not be empty."""
    if not text.strip():
        raise ValueError("it is empty")
    return text.strip()


def group(text: str) -> str:
    """Returns the name of a cursor, which becomes the name of a file."""
    if not is_name(text):
        raise ValueError
    return text


def topics(text: str) -> tuple[str, ...]:
    """Returns the names in a text with commas."""
    names = tuple(dict.fromkeys(part.strip() for part in text.split(",")))
    if not all(names):
        raise ValueError("a name is empty")
    return names


def pattern(text: str) -> str:
    """Returns the text of a regular expression of Python."""
    try:
        re.compile(name(text))
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"not a regular expression: {error}") from None
    return text


def truth(text: str) -> bool:
    """Returns whether the text is `true`; it must be `true` or `false`."""
    if text.lower() not in ("true", "false"):
        raise ValueError
    return text.lower() == "true"


def number(least: int, most: int = _OFFSET_MAX) -> Callable[[str], int]:
    """Returns a parser of whole numbers within limits."""

    def read(text: str) -> int:
        if not re.fullmatch(r"[0-9]{1,19}", text.strip()) or not least <= int(text) <= most:
            raise ValueError
        return int(text)

    return read


def duration(text: str) -> float:
    """Returns a time in seconds; the text is a number with its unit."""
    found = _DURATION.fullmatch(text.strip())
    if found is None:
        raise ValueError
    return int(found[1]) * _SECONDS[found[2]]


def choice(*choices: str) -> Callable[[str], str]:
    """Returns a parser that accepts some words."""

    def read(text: str) -> str:
        if text.lower() not in choices:
            raise ValueError
        return text.lower()

    return read


def times(text: str) -> PerTopic:
    """Returns the times of a JSON text: topic -> partition -> ms since the epoch."""
    return _per_topic(_json(text), 0)


def assigned(text: str) -> dict[str, tuple[int, ...]]:
    """Returns the partitions of a JSON text: topic -> list of partitions."""
    found = {}
    for topic, partitions in _json(text).items():
        if not isinstance(partitions, list) or not partitions:
            raise ValueError(f"topic {topic!r} lacks a list of partitions")
        found[topic] = tuple(sorted({whole(partition, 0) for partition in partitions}))
    return found


def position(text: str) -> Position:
    """Returns the position of `earliest`, `latest`, JSON topic -> partition -> offset, or a checkpoint's offsets."""
    if text.lower() in ("earliest", "latest"):
        return Position(everywhere=EARLIEST if text.lower() == "earliest" else LATEST)
    found = _json(text)
    if {"archive", "o", "v"} <= set(found):
        return Position(checkpoint=found)
    return Position(offsets=_per_topic(found, EARLIEST))


def whole(value: object, least: int) -> int:
    """Returns a whole number from `least` on that fits into 64 bits; refuses booleans.

    Raises:
        ValueError: the value is another one.
    """
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= _OFFSET_MAX:
        raise ValueError(f"{value!r} is out of range")
    return value


def _json(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not JSON: {error}") from None
    if not isinstance(found, dict) or not found:
        raise ValueError("not a JSON object, or an empty one")
    return found


def _per_topic(found: dict[str, Any], least: int) -> PerTopic:
    values: PerTopic = {}
    for topic, partitions in found.items():
        if not isinstance(partitions, dict) or not partitions:
            raise ValueError(f"topic {topic!r} lacks partitions")
        values[topic] = {_partition(key): whole(value, least) for key, value in partitions.items()}
    return values


def _partition(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,9}", text):
        raise ValueError(f"{text!r} is not a partition")
    return int(text)
