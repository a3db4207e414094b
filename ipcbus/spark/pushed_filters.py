"""Filters that Spark pushes down: those on topics and numbers are evaluated before rows become Arrow."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from pyspark.sql import datasource as ds

from ipcbus.archive.columns import COLUMNS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    Numbers = NDArray[np.int64]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_COMPARE: Final[dict[type, Callable[[Any, Any], Any]]] = {
    ds.EqualTo: operator.eq,
    ds.EqualNullSafe: operator.eq,
    ds.GreaterThan: operator.gt,
    ds.GreaterThanOrEqual: operator.ge,
    ds.LessThan: operator.lt,
    ds.LessThanOrEqual: operator.le,
}
_OF_TEXTS: Final[dict[type, Callable[[str, str], bool]]] = {
    ds.StringStartsWith: str.startswith,
    ds.StringEndsWith: str.endswith,
    ds.StringContains: str.__contains__,
}

_OPPOSITE: Final[dict[type, type]] = {
    ds.GreaterThan: ds.LessThanOrEqual,
    ds.GreaterThanOrEqual: ds.LessThan,
    ds.LessThan: ds.GreaterThanOrEqual,
    ds.LessThanOrEqual: ds.GreaterThan,
}
_ANY: Final = (-(2**63), 2**63 - 1)


@dataclass(frozen=True, slots=True)
class Condition:
    """A filter that is evaluated here; Spark evaluates those on columns that may be null, so a row passes or fails.

    Attributes:
        column: `topic`, or a column of numbers.
        kind: class of the filter.
        value: the value to compare with; for `timestamp` in us since the epoch.
        negated: whether rows pass that the filter rejects.
    """

    column: str
    kind: type
    value: Any
    negated: bool = False

    def text(self, text: str) -> bool:
        """Returns whether a text passes."""
        if self.kind is ds.In:
            passes = text in self.value
        else:
            passes = bool((_OF_TEXTS.get(self.kind) or _COMPARE[self.kind])(text, self.value))
        return passes is not self.negated

    def numbers(self, numbers: Numbers) -> NDArray[np.bool_]:
        """Returns a mask of the numbers that pass."""
        found = np.isin(numbers, self.value) if self.kind is ds.In else _COMPARE[self.kind](numbers, self.value)
        return np.asarray(~found if self.negated else found, np.bool_)

    def range(self) -> tuple[int, int] | None:
        """Returns the least and the greatest number that can pass; None without limits."""
        kind = _OPPOSITE.get(self.kind) if self.negated else self.kind
        value, (low, high) = self.value, _ANY
        if kind is ds.In:
            return min(value, default=high), max(value, default=low)
        if kind in (ds.EqualTo, ds.EqualNullSafe):
            return value, value
        if kind in (ds.GreaterThan, ds.GreaterThanOrEqual):
            return value + (kind is ds.GreaterThan), high
        if kind in (ds.LessThan, ds.LessThanOrEqual):
            return low, value - (kind is ds.LessThan)
        return None


def condition(given: ds.Filter, *, negated: bool = False) -> Condition | None:
    """Returns a filter of Spark as a condition; None where Spark has to evaluate it."""
    if isinstance(given, ds.Not):
        return condition(given.child, negated=not negated)
    path: tuple[str, ...] = getattr(given, "attribute", ())
    column = path[0] if len(path) == 1 else ""
    known = COLUMNS.get(column)
    if known is None or known.nullable or not hasattr(given, "value"):
        return None
    value = given.value
    if isinstance(given, ds.In):
        values = [_literal(column, each) for each in value]
        return None if None in values else Condition(column, ds.In, tuple(values), negated)
    literal = _literal(column, value)
    right = type(given) in _COMPARE or (column == "topic" and type(given) in _OF_TEXTS)
    return Condition(column, type(given), literal, negated) if right and literal is not None else None


def _literal(column: str, value: object) -> int | str | None:
    """Returns the value in the type of the column; None where the types differ."""
    if column == "topic":
        return value if isinstance(value, str) else None
    if column == "timestamp":
        if not isinstance(value, datetime) or value.tzinfo is None:
            return None
        return (value - _EPOCH) // timedelta(microseconds=1)
    if column == "source" or not isinstance(value, int) or isinstance(value, bool) or not -(2**63) <= value < 2**63:
        return None
    return value


def topics(conditions: Sequence[Condition]) -> Callable[[str], bool] | None:
    """Returns a test of whether the rows of a topic pass; None where all do."""
    mine = [each for each in conditions if each.column == "topic"]
    return (lambda topic: all(each.text(topic) for each in mine)) if mine else None


def numbers(conditions: Sequence[Condition]) -> tuple[tuple[str, Callable[[Numbers], NDArray[np.bool_]]], ...]:
    """Returns the conditions on numbers, each with its column."""
    return tuple((each.column, each.numbers) for each in conditions if each.column != "topic")


def ranges(conditions: Sequence[Condition]) -> dict[str, tuple[int, int]]:
    """Returns, by column of numbers, the least and greatest number that can pass; leaves out columns without limits."""
    found: dict[str, tuple[int, int]] = {}
    for each in conditions:
        if each.column != "topic" and (limits := each.range()) is not None:
            low, high = found.get(each.column, _ANY)
            found[each.column] = max(low, limits[0]), min(high, limits[1])
    return found
