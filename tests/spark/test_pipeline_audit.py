"""The audit against a calculation number by number, over streams in which everything is planted that can go wrong."""

from __future__ import annotations

import random
from functools import reduce
from typing import TYPE_CHECKING, Any

import pytest

from ipcbus import ConfigError
from ipcbus.spark.pipelines import audit
from ipcbus.spark.pipelines.audit import verdicts
from ipcbus.spark.pipelines.sequence_runs import KEY, merge, sequence_runs
from tests.kit.recorded import BOS, BURST, DATA, LOSS, Log, Row, account, drawn, table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tests.kit.recorded import Key

    Account = dict[Key, dict[str, Any]]

pytestmark = pytest.mark.spark

SEEDS = range(40)

# Each of these leaves the count, and some the sum too, as if nothing were wrong.
CANCELLING = {
    1000: [0, 1, 2, 2, 4],
    1001: [0, 1, 1, 4, 4, 5],
    1002: [0, 0, 3, 3, 4, 5, 6],
    1003: [0, 2, 2, 3, 3, 5],
    1004: [4096, 4097, 4097, 4099, 8192, *range(4100, 8192)],
}
JOINED_LATE, NOTHING_CAME, LAST_NUMBERS = 2000, 2001, 2002


def scenarios() -> list[Row]:
    """Logs that were thought of, not drawn."""
    logs = {number: Log(number, random.Random(0)) for number in (*CANCELLING, JOINED_LATE, NOTHING_CAME, LAST_NUMBERS)}
    for partition, numbers in CANCELLING.items():
        for number in numbers:
            logs[partition].add("s", "t", DATA, number)
    for kind, number, count in (
        *((BOS, 0, 1), (DATA, 100, 1), (BURST, 110, 10), (DATA, 111, 1)),
        *((BOS, 0, 1), (LOSS, 300, 1), (DATA, 301, 1)),
    ):
        logs[JOINED_LATE].add("s", "t", kind, number, count)
    logs[NOTHING_CAME].add("s", "t", BOS, 0)
    for number in (2**63 - 3, 2**63 - 2, 2**63 - 1):
        logs[LAST_NUMBERS].add("s", "t", DATA, number)
    return [row for log in logs.values() for row in log.rows]


def found(result: DataFrame) -> Account:
    """The result by key."""
    lines = [row.asDict() for row in result.collect()]
    return {tuple(line.pop(name) for name in KEY): line for line in lines}  # type: ignore[misc]


def known(result: Account, expected: Account) -> Account:
    """What is expected, but for what the result says was not looked at."""
    return {key: line | ({"late": None} if result[key]["late"] is None else {}) for key, line in expected.items()}


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    return [row for seed in SEEDS for row in drawn(seed)] + scenarios()


@pytest.fixture(scope="module")
def expected(rows: list[Row]) -> Account:
    return account(rows)


@pytest.fixture(scope="module")
def cheap(spark: SparkSession, rows: list[Row]) -> Account:
    """The account by way of the cheap aggregate however much is disturbed, of rows in no order."""
    shuffled = rows.copy()
    random.Random(1).shuffle(shuffled)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ipcbus.spark.pipelines.sequence_runs.SORT_ALL", 1)
        return found(audit.pipeline().run(spark.createDataFrame(table(shuffled)))["audit"])


def test_seeds_have_everything_that_can_happen(expected: Account) -> None:
    names = ("lost_bus", "lost_recorder", "lost_repair", "missing", "damaged", "absent", "gaps", "duplicates", "late")
    assert all(sum(line[name] > 0 for line in expected.values()) > 2 for name in (*names, "contradicted"))
    assert {line["verdict"] for line in expected.values()} == {"missing", "lost", "absent", "duplicates", "complete"}


def test_all_rows_in_order(spark: SparkSession, rows: list[Row], expected: Account) -> None:
    results = audit.pipeline(order=True).run(spark.createDataFrame(table(rows)))
    kept = results["audit"].persist()
    assert found(kept) == expected
    (line,) = results["summary"].collect()
    kept.unpersist()
    assert (line["lines"], line["verdict"]) == (len(expected), "missing")
    for name in ("messages", "lost_bus", "missing", "absent", "late", "contradicted"):
        assert line[name] == sum(each[name] for each in expected.values())


def test_cheap_aggregate_finds_the_same_but_for_late_ones(cheap: Account, expected: Account) -> None:
    assert cheap == known(cheap, expected)
    assert {expected[key]["verdict"] for key, line in cheap.items() if line["late"] is None} == {"complete"}


def test_where_most_is_disturbed_all_is_looked_at(spark: SparkSession, rows: list[Row], expected: Account) -> None:
    assert found(audit.pipeline().run(spark.createDataFrame(table(rows)))["audit"]) == expected


@pytest.mark.parametrize("partition", CANCELLING)
def test_twice_and_missing_do_not_cancel_out(cheap: Account, partition: int) -> None:
    line = cheap[partition, "s", 116, "t"]
    assert line["missing"] == line["duplicates"] > 0
    assert line["verdict"] == "missing"


def test_recorder_that_joins_late_and_comes_again(cheap: Account) -> None:
    assert cheap[JOINED_LATE, "s", 116, "t"] == {
        **{"first": 100, "last": 301, "messages": 3, "numbers": 3, "lost_bus": 11, "lost_recorder": 0},
        **{"lost_repair": 0, "missing": 0, "damaged": 0, "absent": 300 - 111 - 1, "gaps": 1, "duplicates": 0},
        **{"late": 0, "contradicted": 0, "begins": 2, "verdict": "lost"},
    }


def test_topic_of_which_nothing_came_is_there(cheap: Account) -> None:
    line = cheap[NOTHING_CAME, "s", 116, "t"]
    assert (line["first"], line["messages"], line["begins"], line["verdict"]) == (None, 0, 1, "complete")


def test_numbers_at_the_end_of_64_bits(cheap: Account) -> None:
    line = cheap[LAST_NUMBERS, "s", 116, "t"]
    assert (line["first"], line["messages"], line["verdict"]) == (2**63 - 3, 3, "complete")


def test_stretches_of_micro_batches_merge(spark: SparkSession, rows: list[Row], expected: Account) -> None:
    dice = random.Random(2)
    cuts = {row["partition"]: sorted(dice.randrange(300) for _ in range(2)) for row in rows}
    batches: list[list[Row]] = [[], [], []]
    for row in rows:
        batches[sum(row["offset"] >= cut for cut in cuts[row["partition"]])].append(row)
    parts = [sequence_runs(spark.createDataFrame(table(batch)), order=bool(n % 2)) for n, batch in enumerate(batches)]
    merged = reduce(lambda some, more: merge(some.unionByName(more)), parts)
    result = found(verdicts(merged))
    assert result == known(result, expected)
    assert sum(line["late"] is None for line in result.values()) < len(result) / 2


def test_nothing_at_all(spark: SparkSession) -> None:
    results = audit.pipeline().run(spark.createDataFrame(table([])))
    assert results["audit"].collect() == []
    (line,) = results["summary"].collect()
    assert (line["lines"], line["messages"], line["verdict"]) == (0, 0, "complete")


def test_rows_without_events_are_refused(spark: SparkSession) -> None:
    rows = spark.createDataFrame(table([])).drop("type", "numbers")
    with pytest.raises(ConfigError, match=r"lack column type, numbers; .*includeEvents=true"):
        audit.pipeline().run(rows)
