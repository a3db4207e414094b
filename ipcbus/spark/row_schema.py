"""The columns of the data source as Spark types, and checks of the schemas that users give."""

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
    """Returns the columns that a reader gets by default."""
    names = default_columns(headers=options.include_headers, value=options.include_value, events=options.include_events)
    return of_columns(names)


def of_columns(names: Iterable[str]) -> StructType:
    """Returns some of the columns as a Spark schema."""
    return StructType([StructField(name, TYPES[COLUMNS[name].kind], COLUMNS[name].nullable) for name in names])


def check(asked: StructType) -> None:
    """Checks that a schema can be read: some of the columns, in any order, each of its own type.

    Raises:
        ConfigError: a column is unknown, comes twice, or has another type.
    """
    if len(set(asked.names)) < len(asked.names):
        raise ConfigError(f"data source ipcbus: a column of schema {asked.simpleString()} comes twice; name it once")
    for column in asked.fields:
        known = COLUMNS.get(column.name)
        if known is None:
            close = difflib.get_close_matches(column.name, COLUMNS, n=1)
            meant = f"; did you mean {close[0]}?" if close else "."
            raise ConfigError(
                f"data source ipcbus: column {column.name} is unknown{meant} There are: {', '.join(COLUMNS)}"
            )
        right = TYPES[known.kind]
        if column.dataType != right:
            raise ConfigError(
                f"data source ipcbus: column {column.name} is declared {column.dataType.simpleString()}, "
                f"but it is {right.simpleString()}; declare it so, and cast it after reading"
            )
        if known.nullable and not column.nullable:
            raise ConfigError(f"data source ipcbus: column {column.name} may be null; remove NOT NULL")
