"""Numbers in at most six characters, and sparklines."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_BLOCKS = "▁▂▃▄▅▆▇█"
_ASCII = "_.-:=+*#"
NONE = "-"


def count(value: float | None) -> str:
    """Returns a number or a rate: `0`, `0.1`, `12.3`, `999`, `1.23k`, `20.3M`."""
    if value is None:
        return NONE
    if value < 0.05:
        return "0" if value < 0.001 else f"{value:.3f}"
    if value < 99.95:
        return f"{value:.1f}".removesuffix(".0")
    if value < 9999.5:
        return f"{value:.0f}"
    for unit in ("k", "M", "G", "T", "P", "E"):
        value /= 1000
        if value < 999.5:
            return f"{value:.3g}{unit}"
    return f"{value:.0e}"


def whole(value: float | None) -> str:
    """Returns a count of things: exact as long as it is short."""
    return f"{value:.0f}" if value is not None and value < 99999.5 else count(value)


def mebibytes(value: float | None) -> str:
    """Returns bytes in MiB with three digits: `0`, `0.02`, `1.3`, `205`, `1.21k`."""
    if value is None:
        return NONE
    value /= 1 << 20
    if value < 0.005:
        return "0" if value == 0 else "<0.01"
    return f"{value:.2f}" if value < 0.995 else count(value)


def size(value: float | None) -> str:
    """Returns bytes in the unit that fits: `17B`, `4.0KiB`, `64KiB`, `1.2MiB`."""
    if value is None:
        return NONE
    for unit in ("B", "KiB", "MiB", "GiB", "TiB", "PiB"):
        if value < 999.5:
            return f"{value:.1f}{unit}" if unit != "B" and value < 9.95 else f"{value:.0f}{unit}"
        value /= 1024
    return f"{value:.0f}EiB"


def share(value: float | None) -> str:
    """Returns a share of 1 as percent: `0`, `<1`, `42`, `100`."""
    if value is None:
        return NONE
    if 0 < value < 0.01:
        return "<1"
    # 100 means full and nothing less.
    return f"{min(99, round(value * 100)) if value < 1 else 100}"


def time(ns: float | None) -> str:
    """Returns a time: `450ns`, `1.2us`, `35ms`, `2.1s`, `12m`, `3.5h`."""
    if ns is None:
        return NONE
    for unit, step in (("ns", 1000), ("us", 1000), ("ms", 1000)):
        if ns < 999.5:
            return f"{ns:.1f}{unit}" if ns < 9.95 and unit != "ns" else f"{ns:.0f}{unit}"
        ns /= step
    if ns < 119.5:
        return f"{ns:.1f}s" if ns < 9.95 else f"{ns:.0f}s"
    return f"{ns / 60:.0f}m" if ns < 7170 else f"{ns / 3600:.1f}h" if ns < 172800 else f"{ns / 86400:.0f}d"


def program(command: str) -> str:
    """Returns a command line without the directories of interpreter and script."""
    words = command.split(" ")
    return " ".join([word.rpartition("/")[2] or word for word in words[:2]] + words[2:])


def sparkline(values: Sequence[float | None], width: int, *, unicode: bool) -> str:
    """Returns the latest values as a line of bars, scaled to the highest of them; a blank for an unknown value.

    The height of a bar is the square root of its share of the highest, so that a trickle beside a burst is visible.
    """
    marks = _BLOCKS if unicode else _ASCII
    shown = list(values)[-width:] if width > 0 else []
    highest = max((value for value in shown if value is not None), default=0.0)
    return "".join(_bar(value, highest, marks) for value in shown).rjust(max(0, width))


def _bar(value: float | None, highest: float, marks: str) -> str:
    if value is None:
        return " "
    if value <= 0 or highest <= 0:
        return marks[0]
    return marks[max(1, min(len(marks) - 1, math.ceil(math.sqrt(value / highest) * len(marks)) - 1))]


def chart(values: Sequence[float | None], width: int, height: int, *, unicode: bool) -> list[str]:
    """Returns the latest values as bars over several lines, scaled to the highest; a blank for an unknown value."""
    marks = f" {_BLOCKS}" if unicode else " .:|"
    steps = len(marks) - 1
    shown = list(values)[-width:] if width > 0 else []
    highest = max((value for value in shown if value is not None), default=0.0)
    bars = [
        0 if value is None or value <= 0 or highest <= 0 else max(1, round(value / highest * height * steps))
        for value in shown
    ]
    return [
        "".join(marks[min(steps, max(0, bar - line * steps))] for bar in bars).rjust(max(0, width))
        for line in range(height - 1, -1, -1)
    ]
