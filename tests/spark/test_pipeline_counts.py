"""Throughput and latency against naive calculations; their tables merge."""

from __future__ import annotations

import math
import random
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

import pytest

from ipcbus import ConfigError
from ipcbus.spark.pipelines import latency, throughput
from ipcbus.spark.pipelines.row_columns import interval_ns
from tests.kit.recorded import DATA, Row, drawn, table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

INTERVAL_NS = 50_000_000
SECOND_NS = 1_000_000_000


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    return [row for seed in range(6) for row in drawn(seed)]


@pytest.fixture(scope="module")
def messages(rows: list[Row]) -> list[Row]:
    return [row for row in rows if row["type"] == DATA]


def parts(spark: SparkSession, rows: list[Row], count: int) -> list[DataFrame]:
    """The rows in so many DataFrames, as micro-batches have them."""
    return [spark.createDataFrame(table(rows[n::count])) for n in range(count)]


def merged(spark: SparkSession, rows: list[Row], pipeline: Any) -> dict[str, DataFrame]:  # noqa: ANN401
    """The results of the tables of three micro-batches."""
    (name,) = pipeline.merge
    first, second, third = (pipeline.partials(part)[name] for part in parts(spark, rows, 3))
    merge = pipeline.merge[name]
    results: dict[str, DataFrame] = pipeline.results({name: merge(merge(first.unionByName(second)).unionByName(third))})
    return results


# ---------------------------------------------------------------------------------------- throughput


def test_throughput(spark: SparkSession, rows: list[Row], messages: list[Row]) -> None:
    expected: dict[tuple[int, int, str], list[int]] = defaultdict(lambda: [0, 0])
    for row in messages:
        start = row["receiveTimeNs"] // INTERVAL_NS * INTERVAL_NS
        counted = expected[start, row["session"], row["topic"]]
        counted[0] += 1
        counted[1] += len(row["value"])
    results = merged(spark, rows, throughput.pipeline(INTERVAL_NS))
    lines = results["intervals"].collect()
    keys = [(line["start_ns"], line["session"], line["topic"]) for line in lines]
    assert keys == sorted(expected)
    for key, line in zip(keys, lines, strict=True):
        assert [line["messages"], line["bytes"]] == expected[key]
        assert line["messages_per_second"] == pytest.approx(line["messages"] * SECOND_NS / INTERVAL_NS)
        assert line["bytes_per_second"] == pytest.approx(line["bytes"] * SECOND_NS / INTERVAL_NS)
        assert line["start"].timestamp() == pytest.approx(line["start_ns"] / SECOND_NS)


@pytest.mark.parametrize(
    ("peak_ns", "span_ns"), [(1, INTERVAL_NS), (120_000_000, 3 * INTERVAL_NS), (SECOND_NS, SECOND_NS)]
)
def test_peak_over_more_than_an_interval(
    spark: SparkSession, rows: list[Row], messages: list[Row], peak_ns: int, span_ns: int
) -> None:
    results = merged(spark, rows, throughput.pipeline(INTERVAL_NS, peak_ns))["totals"].collect()
    for line in results:
        times = [row["receiveTimeNs"] for row in messages if line["topic"] in (None, row["topic"])]
        busiest = max(Counter(time // span_ns for time in times).values())
        assert line["peak_messages_per_second"] == pytest.approx(busiest * SECOND_NS / span_ns)


def test_totals(spark: SparkSession, rows: list[Row], messages: list[Row]) -> None:
    found = {line["topic"]: line for line in merged(spark, rows, throughput.pipeline(INTERVAL_NS))["totals"].collect()}
    assert set(found) == {None, *(row["topic"] for row in messages)}
    for topic, line in found.items():
        mine = [row for row in messages if topic in (None, row["topic"])]
        times = [row["receiveTimeNs"] for row in mine]
        busiest = max(Counter(time // INTERVAL_NS for time in times).values())
        seconds = (max(times) - min(times)) / SECOND_NS
        assert line["messages"] == len(mine)
        assert line["bytes"] == sum(len(row["value"]) for row in mine)
        assert line["sessions"] == len({row["session"] for row in mine})
        assert (line["first_ns"], line["last_ns"]) == (min(times), max(times))
        assert line["seconds"] == pytest.approx(seconds)
        assert line["messages_per_second"] == pytest.approx(len(mine) / seconds)
        assert line["peak_messages_per_second"] == pytest.approx(busiest * SECOND_NS / INTERVAL_NS)


@pytest.mark.parametrize(
    ("text", "ns"), [("1s", SECOND_NS), ("100ms", 10**8), ("5 m", 300 * SECOND_NS), ("1us", 1000), ("2h", 7200 * 10**9)]
)
def test_interval(text: str, ns: int) -> None:
    assert interval_ns(text) == ns


@pytest.mark.parametrize("text", ["", "s", "1", "0s", "10ns", "1500ns", "-1s", "1d", "9999999999s"])
def test_no_interval(text: str) -> None:
    with pytest.raises(ConfigError, match="is not a valid interval; give"):
        interval_ns(text)


# ------------------------------------------------------------------------------------------- latency


def place(values: list[int], per_mille: int) -> int:
    """The value at the place of a percentile."""
    return sorted(values)[math.ceil(len(values) * per_mille / 1000) - 1]


def test_latency(spark: SparkSession, rows: list[Row], messages: list[Row]) -> None:
    found = {line["topic"]: line for line in merged(spark, rows, latency.pipeline())["percentiles"].collect()}
    assert set(found) == {None, *(row["topic"] for row in messages)}
    for topic, line in found.items():
        mine = [row for row in messages if topic in (None, row["topic"])]
        every = [row["receiveTimeNs"] - row["publishTimeNs"] for row in mine if row["publishTimeNs"]]
        known = [value for value in every if value >= 0]
        assert line["messages"] == len(known)
        assert line["negative"] == len(every) - len(known) > 0
        assert line["unstamped"] == len(mine) - len(every) > 0
        assert (line["min_ns"], line["max_ns"]) == (min(known), max(known))
        for name, per_mille in latency.PERCENTILES.items():
            assert line[name] == pytest.approx(place(known, per_mille), rel=0.0051, abs=0.5)


def test_waits_in_the_batch_stand_beside_the_latencies(
    spark: SparkSession, rows: list[Row], messages: list[Row]
) -> None:
    found = {line["topic"]: line for line in merged(spark, rows, latency.pipeline())["percentiles"].collect()}
    for topic, line in found.items():
        mine = [row["batchWaitNs"] for row in messages if topic in (None, row["topic"])]
        known = [wait for wait in mine if wait is not None]
        assert 0 < line["waits"] == len(known) < len(mine)
        assert line["wait_mean_ns"] == pytest.approx(sum(known) / len(known))
        assert line["wait_max_ns"] == max(known)
        for name, per_mille in latency.WAITS.items():
            assert line[name] == pytest.approx(place(known, per_mille), rel=0.0051, abs=0.5)


def test_rows_that_tell_no_wait_have_latencies(spark: SparkSession, messages: list[Row]) -> None:
    """Those of an older recorder, and of a reader who has not named the column."""
    silent = spark.createDataFrame(table([row | {"batchWaitNs": None} for row in messages]))
    for frame in (silent, silent.drop("batchWaitNs")):
        line = latency.pipeline().run(frame)["percentiles"].where("topic IS NULL").collect()[0]
        assert line["messages"] > 0
        assert (line["waits"], *(line[f"wait_{name}_ns"] for name in ("mean", "p50", "p99", "max"))) == (0, *[None] * 4)


def test_latency_of_any_size_that_is_alone_in_its_bucket_is_exact(spark: SparkSession) -> None:
    dice = random.Random(3)
    exact = [0, 1, 2, 3, 99, 100, 101, 2**62] + [round(10 ** dice.uniform(0, 18)) for _ in range(200)]
    message = next(row for row in drawn(1) if row["type"] == DATA) | {"receiveTimeNs": 2**62 + 5}
    some = [message | {"topic": f"t{n}", "publishTimeNs": 2**62 + 5 - value} for n, value in enumerate(exact)]
    lines = latency.pipeline().run(spark.createDataFrame(table(some)))["percentiles"].where("topic IS NOT NULL")
    found = {line["topic"]: line for line in lines.collect()}
    for number, value in enumerate(exact):
        line = found[f"t{number}"]
        assert line["p50_ns"] == line["p999_ns"] == line["max_ns"] == value


def test_latency_of_nothing_and_of_unknown(spark: SparkSession, messages: list[Row]) -> None:
    assert latency.pipeline().run(spark.createDataFrame(table([])))["percentiles"].collect() == []
    unknown = [row | {"publishTimeNs": 0} for row in messages[:3]]
    line = latency.pipeline().run(spark.createDataFrame(table(unknown)))["percentiles"].collect()[0]
    assert (line["messages"], line["unstamped"], line["p50_ns"], line["max_ns"]) == (0, 3, None, None)
