"""What was measured, as a table for people, and as tables in pages of Markdown."""

from __future__ import annotations

import re
import statistics
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from benchmarks.groups import Group
    from benchmarks.rows import Row

_NAME: Final = 33
WIDTH: Final = 80


@dataclass(slots=True)
class Figure:
    """What the runs of a row gave.

    Attributes:
        values: of each run.
        near: whether the processors lay near each other before and after each run.
        seconds: how long each run took, with the start of its processes.
        failure: why a run gave no value; the last one.
        failures: how many runs gave none.
    """

    values: list[float] = field(default_factory=list)
    near: list[bool] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    failure: str = ""
    failures: int = 0

    def counting(self) -> list[float]:
        """Of the runs that met near processors, or of all where there are none."""
        return [value for value, near in zip(self.values, self.near, strict=True) if near] or self.values

    def value(self) -> float | None:
        """The median; None if no run gave a value."""
        values = self.counting()
        return statistics.median(values) if values else None


Figures = dict[str, Figure]
"""By the name of the row."""


@dataclass(frozen=True, slots=True)
class Judged:
    """A row with its figures: what the tables show."""

    value: float | None
    ratio: float | None
    budget: str
    stretch: str
    verdict: str


def judge(row: Row, figures: Figures) -> Judged:
    """Compares a row with its goals."""
    value = _value(row.name, figures)
    limits = [limit for name in (row.beside, row.or_beside) if (limit := _value(name, figures)) is not None]
    limit = (min if row.smaller_is_better else max)(limits, default=None)
    ratio = value / limit if value is not None and limit else None
    if row.budget is None or row.stretch is None or value is None:
        return Judged(value, ratio, "", "", "" if value is not None else "FAILED")
    goals = [row.budget, row.stretch]
    if row.is_ratio and limit is None:
        return Judged(value, ratio, "", "", "")
    texts = [f"{goal:g}x" if row.is_ratio else _goal(goal, row.unit) for goal in goals]
    if row.is_ratio and limit is not None:
        goals = [goal * limit for goal in goals]
    if row.at_least is not None:
        goals = [max(pair) for pair in zip(goals, row.at_least, strict=True)]
        texts = [_goal(goal, row.unit) for goal in goals]
    reached = [value <= goal if row.smaller_is_better else value >= goal for goal in goals]
    if row.also is not None and (other := _value(row.also[0], figures)) is not None:
        enough = other * row.also[1]
        reached[0] = reached[0] and (value <= enough if row.smaller_is_better else value >= enough)
    verdict = "MISSED" if not reached[0] else "stretch" if reached[1] else "must"
    return Judged(value, ratio, texts[0], texts[1], verdict)


def _goal(value: float, unit: str) -> str:
    return brief(value, "" if unit == "msg/s" else unit)


def _value(name: str, figures: Figures) -> float | None:
    return figures[name].value() if name in figures else None


def brief(value: float | None, unit: str) -> str:
    """Three digits and the unit, with k, M and G where they help; bytes by powers of 1024."""
    if value is None:
        return "-"
    if unit.startswith("B"):
        for power, letter in ((30, "Gi"), (20, "Mi"), (10, "Ki")):
            if abs(value) >= 1 << power:
                return f"{_digits(value / (1 << power))} {letter}{unit}"
    elif unit == "ns":
        for size, name in ((1e6, "ms"), (1e4, "us")):
            if abs(value) >= size:
                return f"{_digits(value / (1e6 if name == 'ms' else 1e3))} {name}"
        return f"{value:.0f} ns" if abs(value) >= 100 else f"{_digits(value)} ns"
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{_digits(value / size)} {letter} {unit}".strip()
    return f"{_digits(value)} {unit}".strip()


def _digits(value: float) -> str:
    """Three digits, two below a tenth; without an exponent where there are many."""
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}" if abs(value) >= 0.1 else f"{value:.2g}"


def text(group: Group, figures: Figures) -> Iterator[str]:
    """Yields the lines of a table, each of 80 characters at most."""
    ratio = f" (ratio {group.note})" if group.note else ""
    yield f"{group.title}{ratio}"[:WIDTH]
    head = (*("median", "ratio"), *("must", "stretch"), *("", "s"))
    yield _line("", head)
    for row in group.rows:
        found, figure = judge(row, figures), figures[row.name]
        seconds = f"{statistics.median(figure.seconds):.1f}" if figure.seconds else ""
        ratio = f"{_digits(found.ratio)}x" if found.ratio is not None else ""
        if len(row.name) > _NAME:
            yield row.name[:WIDTH]
        yield _line(
            row.name if len(row.name) <= _NAME else "",
            (brief(found.value, row.unit), ratio, found.budget, found.stretch, found.verdict, seconds),
        )
        if figure.failure:
            yield f"    {figure.failure}"[:WIDTH]


def _line(name: str, cells: tuple[str, ...]) -> str:
    value, ratio, budget, stretch, verdict, seconds = cells
    return (f"{name:<{_NAME}}{value:>12}{ratio:>7}{budget:>8}{stretch:>8} {verdict:<7}{seconds:>4}").rstrip()


def markdown(group: Group, figures: Figures) -> str:
    """Returns the table as Markdown."""
    goals = any(row.budget is not None for row in group.rows)
    heads = [group.title, "median", "least .. most", *(["ratio"] if group.note else [])]
    heads += ["must", "stretch", "reached"] if goals else []
    lines = []
    for row in group.rows:
        found, values = judge(row, figures), figures[row.name].counting()
        cells = [row.name, brief(found.value, row.unit)]
        cells.append(f"{brief(min(values), row.unit)} .. {brief(max(values), row.unit)}" if values else "")
        if group.note:
            cells.append(f"{_digits(found.ratio)}" if found.ratio is not None else "")
        if goals:
            cells += [found.budget, found.stretch, found.verdict.lower()]
        lines.append(cells)
    note = f"\n\nratio {group.note}.".replace("ratio", "The ratio is") if group.note else ""
    return table(heads, lines) + note


def table(heads: list[str], lines: list[list[str]]) -> str:
    """Returns a table of Markdown."""
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (heads, ["---"] * len(heads), *lines))


# ---------------------------------------------------------------------------------------- pages

_MARKED: Final = re.compile(r"(<!-- bench:([a-z-]+) -->\n).*?(<!-- /bench -->)", re.DOTALL)


def fill(page: Path, parts: dict[str, str]) -> list[str]:
    """Replaces what stands between the marks of a page, or writes a page with all parts if there is none.

    Returns:
        The names of the parts that were replaced; marks of parts that were not measured are left alone.
    """
    if not page.exists():
        page.write_text(
            "\n\n".join(f"<!-- bench:{name} -->\n{part}\n<!-- /bench -->" for name, part in parts.items()) + "\n"
        )
        return list(parts)
    replaced = []

    def part(found: re.Match[str]) -> str:
        if found[2] not in parts:
            return found[0]
        replaced.append(found[2])
        return f"{found[1]}{parts[found[2]]}\n{found[3]}"

    page.write_text(_MARKED.sub(part, page.read_text()))
    return replaced
