from __future__ import annotations

import dataclasses
import os
import pickle

import pytest
from pyspark.sql.datasource import CaseInsensitiveDict

from ipcbus.errors import ConfigError
from ipcbus.spark.option_parsers import EARLIEST, LATEST, Position
from ipcbus.spark.read_options import READ, Option, ReadOptions, Use
from tests.kit.cases import each_of


def refusal(use: Use | None = "batch", **given: str) -> str:
    """The text of the error that options give."""
    with pytest.raises(ConfigError) as caught:
        ReadOptions.of({"archive": "/a", **given}, use)
    return str(caught.value)


def accepted(use: Use | None = "batch", **given: str) -> ReadOptions:
    return ReadOptions.of({"archive": "/a", **given}, use)


def test_defaults() -> None:
    assert dataclasses.asdict(accepted()) == dataclasses.asdict(
        ReadOptions(
            archive="/a",
            subscribe=None,
            subscribe_pattern=None,
            assign=None,
            starting=Position(everywhere=EARLIEST),
            ending=Position(everywhere=LATEST),
            max_offsets=None,
            max_bytes=None,
            min_offsets=None,
            max_delay_seconds=900.0,
            min_partitions=1,
            fail_on_data_loss=True,
            fail_on_missing_topic=False,
            include_headers=False,
            include_value=True,
            include_events=False,
            batch_rows=65536,
            batch_bytes=32 << 20,
            group_id=None,
            pushdown=False,
        )
    )


def test_a_stream_begins_at_the_latest() -> None:
    assert accepted("stream").starting == Position(everywhere=LATEST)


def test_case_of_names_does_not_matter() -> None:
    spark = CaseInsensitiveDict({"archive": "/a", "includeHEADERS": "TRUE", "MINpartitions": "7"})
    options = ReadOptions.of(spark, "batch")
    assert (options.include_headers, options.min_partitions) == (True, 7)


def test_spark_can_send_them_to_tasks() -> None:
    options = accepted(subscribe="a", startingOffsets='{"a":{"0":5}}')
    assert pickle.loads(pickle.dumps(options)) == options


@each_of(
    ("given", "path"),
    [
        ({"archive": "/a/b"}, "/a/b"),
        ({"archive": "file:///a/b"}, "/a/b"),
        ({"archive": "file:/a/b"}, "/a/b"),
        ({"path": "/c"}, "/c"),
        ({"path": "/c", "archive": "/a"}, "/a"),
        ({"archive": "a"}, os.path.abspath("a")),
    ],
)
def test_archive(given: dict[str, str], path: str) -> None:
    assert ReadOptions.of(given, "batch").archive == path


def test_archive_is_needed() -> None:
    with pytest.raises(ConfigError, match="archive is missing"):
        ReadOptions.of({}, "batch")


def test_other_file_systems_are_refused() -> None:
    with pytest.raises(ConfigError, match="s3a is not supported; mount"):
        ReadOptions.of({"archive": "s3a://bucket/x"}, "batch")


def test_unknown_option_names_the_nearest_and_all() -> None:
    text = refusal(startingOffset="earliest")
    assert "option startingOffset is unknown; did you mean startingOffsets?" in text
    assert all(row.name in text for row in READ)
    assert "did you mean" not in refusal(zzzzzz="1")


@pytest.mark.parametrize(
    "given",
    [
        {"subscribe": "a", "subscribePattern": "b"},
        {"subscribe": "a", "assign": '{"a":[0]}'},
        {"assign": '{"a":[0]}', "subscribePattern": "b"},
    ],
)
def test_topics_are_chosen_in_one_way(given: dict[str, str]) -> None:
    assert "exclude each other" in refusal(**given)


def test_topics() -> None:
    assert accepted(subscribe="a, b,a").subscribe == ("a", "b")
    assert accepted(subscribePattern=r"a\..*").subscribe_pattern == r"a\..*"
    assert accepted(assign='{"a":[1,0,1],"b":[2]}').assign == {"a": (0, 1), "b": (2,)}


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("subscribe", "a,,b", "a name is empty"),
        ("subscribePattern", "(", "not a regular expression"),
        ("assign", "[]", "not a JSON object"),
        ("assign", "{", "not JSON"),
        ("assign", '{"a":[]}', "lacks a list of partitions"),
        ("assign", '{"a":[-1]}', "-1 is out of range"),
        ("assign", '{"a":[true]}', "True is out of range"),
        ("startingOffsets", "newest", "not JSON"),
        ("startingOffsets", "{}", "not a JSON object, or an empty one"),
        ("startingOffsets", '{"a":{}}', "topic 'a' lacks partitions"),
        ("startingOffsets", '{"a":{"0":-3}}', "-3 is out of range"),
        ("startingOffsets", '{"a":{"0":9223372036854775808}}', "out of range"),
        ("startingOffsets", '{"a":{"0":1.5}}', "1.5 is out of range"),
        ("startingOffsets", '{"a":{"x":1}}', "'x' is not a partition"),
        ("startingOffsets", "[" * 100_000, "not JSON"),
        ("startingTimestamp", "-1", "it takes ms since the epoch"),
        ("startingTimestamp", "yesterday", "it takes ms since the epoch"),
        ("startingOffsetsByTimestamp", '{"a":{"0":-1}}', "-1 is out of range"),
        ("startingOffsetsByTimestampStrategy", "skip", "it takes `error`, `latest`"),
        ("minPartitions", "0", "it takes a number from 1"),
        ("minPartitions", "1e3", "it takes a number from 1"),
        ("batchRows", "1048577", "it takes a number to 1048576"),
        ("batchBytes", "0", "it takes a number from 1"),
        ("failOnDataLoss", "yes", "it takes `true`, `false`"),
        ("includeHeaders", "", "it takes `true`, `false`"),
        ("endingOffsets", "soon", "not JSON"),
    ],
)
def test_what_is_no_value(name: str, text: str, says: str) -> None:
    found = refusal(**{name: text})
    assert f"option {name} is " in found
    assert says in found


@each_of("text", ["", "a/b", ".a", "a b", "a" * 101])
def test_what_is_no_group(text: str) -> None:
    assert "it takes 1 to 100 letters" in refusal("stream", groupId=text)


@each_of("text", ["15", "15 minutes", "-1s", "m"])
def test_what_is_no_time(text: str) -> None:
    assert "it takes a time such as" in refusal("stream", maxTriggerDelay=text)


@each_of(("text", "seconds"), [("500ms", 0.5), ("30s", 30), ("2m", 120), ("1 h", 3600), ("1d", 86400)])
def test_times(text: str, seconds: float) -> None:
    assert accepted("stream", maxTriggerDelay=text).max_delay_seconds == seconds


def test_positions() -> None:
    assert accepted(startingOffsets="EARLIEST").starting == Position(everywhere=EARLIEST)
    assert accepted("stream", startingOffsets="latest").starting == Position(everywhere=LATEST)
    offsets = accepted(startingOffsets='{"a":{"0":5,"1":-2}}').starting
    assert offsets == Position(offsets={"a": {0: 5, 1: EARLIEST}})
    checkpoint = {"archive": "x", "o": {"h/0": 5}, "v": 1}
    assert accepted(startingOffsets='{"archive":"x","o":{"h/0":5},"v":1}').starting == Position(checkpoint=checkpoint)
    assert accepted(startingTimestamp="17", startingOffsets="earliest").starting == Position(time_ms=17)
    by_time = accepted(startingOffsetsByTimestamp='{"a":{"0":5}}', startingOffsetsByTimestampStrategy="latest").starting
    assert by_time == Position(times_ms={"a": {0: 5}}, or_latest=True)
    assert accepted(endingTimestamp="17").ending == Position(time_ms=17, or_latest=True)
    assert accepted(endingOffsetsByTimestamp='{"a":{"0":5}}').ending == Position(times_ms={"a": {0: 5}}, or_latest=True)


@pytest.mark.parametrize("text", ["latest", '{"a":{"0":-1}}'])
def test_a_batch_does_not_begin_at_the_latest(text: str) -> None:
    assert "is latest, so a batch would read nothing" in refusal(startingOffsets=text)


@pytest.mark.parametrize("text", ["earliest", '{"a":{"0":-2}}'])
def test_a_batch_does_not_end_at_the_earliest(text: str) -> None:
    assert "is earliest, so a batch would read nothing" in refusal(endingOffsets=text)


@each_of("row", [row for row in READ if row.use is not None], ids=lambda row: row.name)
def test_options_of_the_other_use_are_refused(row: Option) -> None:
    other: Use = "stream" if row.use == "batch" else "batch"
    assert f"{row.name} is for a {row.use}, not for a {other}; leave it out" in refusal(other, **{row.name: "1"})


def test_a_table_in_a_catalog_is_refused() -> None:
    """What Spark adds to the options of a table gives it away."""
    text = refusal(None, owner="me", provider="ipcbus", **{"option.archive": "/a"})
    assert "CREATE TABLE does not work" in text
    assert "CREATE TEMPORARY VIEW" in text


def test_where_the_use_is_not_known_options_of_both_pass() -> None:
    options = accepted(None, maxOffsetsPerTrigger="5", endingOffsets="latest")
    assert options.max_offsets == 5


def test_least_is_below_most() -> None:
    assert "give at most that" in refusal("stream", minOffsetsPerTrigger="6", maxOffsetsPerTrigger="5")
