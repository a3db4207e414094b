"""The columns of the data source as Spark types, and what a user may name of them himself."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from ipcbus.archive.columns import COLUMNS, default_columns
from ipcbus.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ipcbus.spark.read_options import ReadOptions

TYPES: Final[dict[str, DataType]] = {
    "binary": BinaryType(),
    "string": StringType(),
    "int": IntegerType(),
    "long": LongType(),
    "timestamp": TimestampType(),
    "headers": ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())])),
}
"""Kind of a column -> Spark type."""


def schema(options: ReadOptions) -> StructType:
    """Returns the columns of a reader who does not name them."""
    names = default_columns(headers=options.include_headers, value=options.include_value, events=options.include_events)
    return of_columns(names)


def of_columns(names: Iterable[str]) -> StructType:
    """Some of our columns, as a schema that may be asked for."""
    return StructType([StructField(name, TYPES[COLUMNS[name].kind], COLUMNS[name].nullable) for name in names])


def check(asked: StructType) -> None:
    """Makes sure that a schema can be read: some of our columns, in any order, each of its own type.

    Raises:
        ConfigError: a column is unknown, comes twice, or is of another type.
    """
    if len(set(asked.names)) < len(asked.names):
        raise ConfigError(f"data source ipcbus: a column of schema {asked.simpleString()} comes twice; name it once")
    for column in asked.fields:
        known = COLUMNS.get(column.name)
        if known is None:
            close = difflib.get_close_matches(column.name, COLUMNS, n=1)
            meant = f"; did you mean {close[0]}?" if close else "."
            raise ConfigError(f"data source ipcbus: it has no column {column.name}{meant} It has {', '.join(COLUMNS)}")
        right = TYPES[known.kind]
        if column.dataType != right:
            raise ConfigError(
                f"data source ipcbus: column {column.name} is asked for as {column.dataType.simpleString()}, "
                f"and it is {right.simpleString()}; name it so, and cast what was read"
            )
        if known.nullable and not column.nullable:
            raise ConfigError(f"data source ipcbus: column {column.name} may be null; leave NOT NULL out")
