from __future__ import annotations

import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import IntegerType, LongType, StructField, StructType, _parse_datatype_json_string

from ipcbus.archive.arrow import schema as arrow_schema
from ipcbus.archive.columns import COLUMNS
from ipcbus.errors import ConfigError
from ipcbus.spark.read_options import ReadOptions
from ipcbus.spark.row_schema import check, schema
from tests.kit.cases import each_of

FROZEN = {
    "key": "binary",
    "value": "binary",
    "topic": "string not null",
    "partition": "int not null",
    "offset": "bigint not null",
    "timestamp": "timestamp not null",
    "timestampType": "int not null",
    "headers": "array<struct<key:string,value:binary>>",
    "session": "bigint not null",
    "seq": "bigint not null",
    "publishTimeNs": "bigint not null",
    "receiveTimeNs": "bigint not null",
    "flags": "int not null",
    "type": "int not null",
    "numbers": "bigint not null",
    "source": "string not null",
}
ALL = {"includeHeaders": "true", "includeEvents": "true"}


def columns(**options: str) -> StructType:
    return schema(ReadOptions.of({"archive": "/a", **options}))


def test_columns_are_what_they_were() -> None:
    """Queries, checkpoints and files out there depend on them."""
    found = {
        field.name: field.dataType.simpleString() + ("" if field.nullable else " not null")
        for field in columns(**ALL).fields
    }
    assert list(found.items()) == list(FROZEN.items())


@each_of(
    ("options", "left_out"),
    [
        ({}, {"headers", "type", "numbers", "source"}),
        ({"includeHeaders": "true"}, {"type", "numbers", "source"}),
        ({"includeEvents": "true"}, {"headers"}),
        ({"includeValue": "false"}, {"value", "headers", "type", "numbers", "source"}),
    ],
)
def test_options_choose_columns(options: dict[str, str], left_out: set[str]) -> None:
    assert columns(**options).names == [name for name in FROZEN if name not in left_out]


def test_arrow_batches_have_the_schema_that_spark_insists_on() -> None:
    assert arrow_schema(list(FROZEN)).equals(to_arrow_schema(columns(**ALL), timezone="UTC"))


def test_so_do_those_of_columns_that_a_user_names() -> None:
    asked = StructType().add("seq", "long").add("headers", columns(**ALL)["headers"].dataType).add("topic", "string")
    made = arrow_schema(asked.names, [field.nullable for field in asked.fields])
    assert made.equals(to_arrow_schema(asked, timezone="UTC"))


def test_the_wait_in_the_batch_is_there_for_who_names_it() -> None:
    assert set(COLUMNS) - set(FROZEN) == {"batchWaitNs"}
    check(StructType().add("batchWaitNs", "long"))


def test_a_user_may_name_any_of_the_columns() -> None:
    check(StructType().add("seq", "long").add("topic", "string"))
    check(_parse_datatype_json_string(columns(**ALL).json()))


@each_of(
    ("asked", "says"),
    [
        (StructType().add("offsets", "long"), "column offsets is unknown; did you mean offset"),
        (StructType().add("zzz", "long"), "column zzz is unknown. There are: key, value"),
        (StructType().add("seq", IntegerType()), "column seq is declared int, but it is bigint"),
        (StructType([StructField("seq", LongType())] * 2), "comes twice"),
        (StructType().add("key", "binary", nullable=False), "column key may be null"),
    ],
)
def test_what_cannot_be_read(asked: StructType, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        check(asked)
