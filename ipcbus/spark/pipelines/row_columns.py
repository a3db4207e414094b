"""Helpers of all pipelines: columns of the rows of the data source `ipcbus`, and intervals of time."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from ipcbus import ConfigError, MessageType

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import Column, DataFrame

SECOND_NS: Final = 1_000_000_000

_UNITS: Final = {"ns": 1, "us": 10**3, "ms": 10**6, "s": SECOND_NS, "m": 60 * SECOND_NS, "h": 3600 * SECOND_NS}
_INTERVAL = re.compile(r"(\d{1,9})(ns|us|ms|s|m|h)")
_SHORTEST_NS = 1000


def messages(rows: DataFrame) -> DataFrame:
    """Returns the rows that are messages, without events."""
    return rows.where(F.col("type") == int(MessageType.DATA)) if "type" in rows.columns else rows


def each(aggregate: Callable[[str], Column], *names: str) -> list[Column]:
    """Returns an aggregate of each of these columns, under the name of the column."""
    return [aggregate(name).alias(name) for name in names]


def require(rows: DataFrame, *columns: str, cure: str) -> None:
    """Checks that rows have all columns that a pipeline needs.

    Raises:
        ConfigError: a column is missing; the text ends with the cure.
    """
    missing = [name for name in columns if name not in rows.columns]
    if missing:
        raise ConfigError(f"the rows lack column {', '.join(missing)}; {cure}")


def interval_ns(text: str) -> int:
    """Returns the length of an interval such as `100ms`, `1s` or `5m`, in ns.

    Raises:
        ConfigError: the text is not an interval, or is shorter than 1 us, the unit of time stamps of Parquet and Spark.
    """
    match = _INTERVAL.fullmatch(text.strip().replace(" ", ""))
    found = int(match[1]) * _UNITS[match[2]] if match else 0
    if found < _SHORTEST_NS or found % _SHORTEST_NS:
        raise ConfigError(f"{text!r} is not a valid interval; give whole microseconds, for example 100ms, 1s or 5m")
    return found


def start_of_interval(time_ns: Column, length_ns: int) -> Column:
    """Returns the begin of the interval that holds a time, ns since the epoch; intervals begin at the epoch."""
    return time_ns - F.pmod(time_ns, F.lit(length_ns))


def timestamp(time_ns: Column) -> Column:
    """Returns a time in ns as a timestamp of Spark, in whole microseconds."""
    return F.timestamp_micros(F.call_function("div", time_ns, F.lit(1000)))
