from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from ipcbus.errors import ConfigError, SinkError
from ipcbus.spark.identity import POSSIBLE_DUPLICATE_HEADER
from ipcbus.spark.sink.outgoing_messages import (
    PLAIN,
    OutgoingMessage,
    OutgoingMessages,
    Stamp,
    check_schema,
    check_sizes,
    plain,
)
from ipcbus.wire.properties import pack
from tests.kit.cases import each_of

HEADERS = PLAIN.field("headers").type


STRING, BINARY = StringType(), BinaryType()
PAIRS = ArrayType(StructType([StructField("key", STRING), StructField("value", BINARY)]))


def schema(**columns: DataType) -> StructType:
    """The schema of a frame."""
    return StructType([StructField(name, kind) for name, kind in columns.items()])


def frame(**columns: list[object]) -> pa.RecordBatch:
    """A batch as Spark gives it."""
    types = {"value": pa.binary(), "topic": pa.string(), "key": pa.binary(), "headers": HEADERS}
    arrays = {name: pa.array(values, types[name]) for name, values in columns.items()}
    return pa.record_batch(list(arrays.values()), names=list(arrays))


@each_of(
    ("columns", "topic"),
    [
        ({"value": BINARY, "topic": STRING}, None),
        ({"value": STRING}, "t"),
        ({"topic": STRING, "value": BINARY, "key": STRING, "headers": PAIRS}, None),
        ({"value": BINARY, "topic": STRING, "key": BINARY}, "t"),
    ],
)
def test_frames_that_are_messages(columns: dict[str, DataType], topic: str | None) -> None:
    check_schema(schema(**columns), topic)


@each_of(
    ("columns", "topic", "told"),
    [
        ({"topic": STRING}, None, "column value is missing"),
        ({}, "t", "column value is missing"),
        ({"value": BINARY}, None, "column topic and option topic are both missing"),
        ({"value": LongType()}, "t", "column value is bigint; cast it to binary or string"),
        ({"value": BINARY, "key": LongType()}, "t", "column key is bigint; cast it to binary or string"),
        ({"value": BINARY, "topic": BINARY}, None, "column topic is binary; cast it to string"),
        (
            {"value": BINARY, "headers": MapType(STRING, BINARY)},
            "t",
            "column headers is map<string,binary>; cast it to array<struct<key:string,value:binary>>",
        ),
        ({"value": BINARY, "partition": LongType()}, "t", "no partitions; remove the column with drop"),
        ({"value": BINARY, "offset": LongType()}, "t", "column offset is not part of a message; select only value, to"),
        ({"value": BINARY, "Topic": STRING}, None, "column Topic is not part of a message"),
    ],
)
def test_frames_that_are_none(columns: dict[str, DataType], topic: str | None, told: str) -> None:
    with pytest.raises(ConfigError) as refused:
        check_schema(schema(**columns), topic)
    assert told in str(refused.value)


def test_a_column_that_is_there_twice() -> None:
    twice = schema(value=BINARY).add("value", BINARY)
    with pytest.raises(ConfigError, match="twice"):
        check_schema(twice, "t")


def test_text_becomes_utf8_and_the_option_wins_over_the_column() -> None:
    batch = pa.record_batch(
        [pa.array(["ä", ""]), pa.array(["k", None]), pa.array(["x", "y"])], ["value", "key", "topic"]
    )
    (first, second) = OutgoingMessages(None).of(plain(batch, "t"))
    assert first == OutgoingMessage("t", "ä".encode(), (("key", b"k"),))
    assert second == OutgoingMessage("t", b"", ())


@pytest.mark.parametrize("large", [pa.large_binary(), pa.large_string()])
def test_large_types_of_arrow_go_too(large: pa.DataType) -> None:
    content = pa.record_batch([pa.array(["v"]).cast(large)], ["value"])
    assert [message.value for message in OutgoingMessages(None).of(plain(content, "t"))] == [b"v"]


@pytest.mark.parametrize("name", ["value", "topic"])
def test_null_is_no_message(name: str) -> None:
    columns: dict[str, list[object]] = {"value": [b"a", b"b", b"c"], "topic": ["t"] * 3}
    columns[name] = [columns[name][0], None, None]
    with pytest.raises(SinkError, match=f"{name} is null in 2 of 3 rows.*where\\('{name} is not null'\\)"):
        plain(frame(**columns), None)


def test_rows_are_counted_by_topic_over_all_batches() -> None:
    messages = OutgoingMessages(Stamp("q", 7, 3))
    sent = []
    for topics in (["a", "b", "a"], ["b", "a", "c"]):
        sent += list(messages.of(plain(frame(value=[b""] * 3, topic=topics), None)))
    rows = [(message.topic, dict(message.headers)["ipcbus.row"]) for message in sent]
    assert rows == [("a", b"0"), ("b", b"0"), ("a", b"1"), ("b", b"1"), ("a", b"2"), ("c", b"0")]
    assert sent[0].headers == (
        ("ipcbus.query", b"q"),
        ("ipcbus.batch", b"7"),
        ("ipcbus.partition", b"3"),
        ("ipcbus.row", b"0"),
    )


def test_headers_go_with_their_message_but_for_those_of_the_sink() -> None:
    given = [
        {"key": "a", "value": b"1"},
        {"key": "ipcbus.row", "value": b"99"},
        {"key": "key", "value": b"old"},
        {"key": "a", "value": b""},
        {"key": "key", "value": b"older"},
    ]
    batch = plain(frame(value=[b"", b"", b""], headers=[given, given, None], key=[b"new", None, None]), "t")
    with_key, without_key, without_any = OutgoingMessages(None).of(batch)
    assert with_key.headers == (("a", b"1"), ("key", b"new"), ("a", b""), ("key", b"older"))
    assert without_key.headers == (("a", b"1"), ("key", b"old"), ("a", b""), ("key", b"older"))
    assert without_any.headers == ()


@pytest.mark.parametrize("header", [None, {"key": None, "value": b""}, {"key": "a", "value": None}])
def test_a_header_has_a_name_and_a_value(header: object) -> None:
    with pytest.raises(SinkError, match="give each header a name and a value"):
        list(OutgoingMessages(None).of(plain(frame(value=[b""], headers=[[header]]), "t")))


@pytest.mark.parametrize("topic", ["", "t" * 256, "a\0b"])
def test_a_topic_has_to_be_one(topic: str) -> None:
    with pytest.raises(ConfigError, match="is not a valid name"):
        list(OutgoingMessages(None).of(plain(frame(value=[b""], topic=[topic]), None)))


def test_sizes_are_checked_with_the_headers_that_a_message_has_after_a_crash() -> None:
    room = len(pack((POSSIBLE_DUPLICATE_HEADER,)))
    check_sizes([OutgoingMessage("t", b"x" * (100 - room), ())], lambda _: 100)
    check_sizes([OutgoingMessage("t", b"x" * 10**6, ()), OutgoingMessage("u", b"", ())], {"t": None, "u": room}.get)
    with pytest.raises(SinkError, match="topic 't': a message of 101 bytes.*exceeds 100"):
        check_sizes([OutgoingMessage("t", b"x" * (101 - room), ())], lambda _: 100)
    with pytest.raises(SinkError, match="exceeds 100"):
        check_sizes([OutgoingMessage("t", b"x" * (100 - room), (("a", b"b"),))], lambda _: 100)
    nearly = (("a", b"x" * (65536 - room)),)
    assert pack(nearly)
    with pytest.raises(SinkError, match="change the column headers"):
        check_sizes([OutgoingMessage("t", b"", nearly)], lambda _: None)


@pytest.mark.parametrize("header", [("", b""), ("x" * 256, b""), ("x", b"y" * 65536)])
def test_headers_that_cannot_be_are_found_before(header: tuple[str, bytes]) -> None:
    with pytest.raises(SinkError, match="change the column headers"):
        check_sizes([OutgoingMessage("t", b"", (header,))], lambda _: None)
