"""The data source in a Spark session: what only a JVM can show."""

from __future__ import annotations

import json
import shutil
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException
from pyspark.errors.exceptions.captured import StreamingQueryException

from ipcbus.archive import Archive
from tests.kit.hosts import Host
from tests.kit.records import Record, append, as_rows, counted

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = pytest.mark.spark


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path / "a")


def read(spark: SparkSession, host: Host, **options: object) -> DataFrame:
    return spark.read.format("ipcbus").options(archive=str(host.path), **options).load()


class Streamed:
    """A query that collects its micro-batches; started again it goes on from its checkpoint."""

    def __init__(self, spark: SparkSession, host: Host, checkpoint: Path) -> None:
        self.batches: dict[int, list[int]] = {}
        self._spark, self._host, self._checkpoint = spark, host, checkpoint

    def run(self, **options: object) -> StreamingQuery:
        """Reads what there is now."""
        given = {"archive": str(self._host.path), "startingOffsets": "earliest", **options}
        rows = self._spark.readStream.format("ipcbus").options(**given).load()
        writer = rows.select("seq").writeStream.foreachBatch(self._collect)
        query = writer.option("checkpointLocation", str(self._checkpoint)).trigger(availableNow=True).start()
        query.awaitTermination()
        return query

    def _collect(self, rows: DataFrame, batch: int) -> None:
        self.batches[batch] = sorted(row.seq for row in rows.collect())


def test_rows(spark: SparkSession, host: Host) -> None:
    records = [
        Record(type=20, numbers=0),
        Record(b"1", headers=(("key", b"k"), ("n", b""))),
        *counted(3),
        Record(topic="", source="", type=255, numbers=7),
    ]
    with host.archive.writer("host") as writer:
        append(writer, records)
    frame = read(spark, host, includeEvents="true", includeHeaders="true")
    found = [row.asDict(recursive=True) for row in frame.orderBy("offset").collect()]
    for row in found:
        row["timestamp"] = row["timestamp"].astimezone(UTC)
        row["value"] = None if row["value"] is None else bytes(row["value"])
    assert found == as_rows(records)
    assert read(spark, host).count() == 4


def test_columns_of_a_user_and_topics(spark: SparkSession, host: Host) -> None:
    with host.archive.writer("host") as writer:
        append(writer, [Record(topic=f"quotes.{n % 3}", seq=n, receive_ns=n * 10**9) for n in range(30)])
    frame = spark.read.format("ipcbus").schema("seq long, topic string").option("subscribePattern", r"quotes\.[12]")
    found = frame.load(str(host.path)).groupBy("topic").sum("seq").orderBy("topic").collect()
    assert [tuple(row) for row in found] == [("quotes.1", 145), ("quotes.2", 155)]
    late = read(
        spark, host, startingTimestamp="10000", endingTimestamp="20000", subscribe="quotes.0", minPartitions="3"
    )
    assert [row.seq for row in late.orderBy("seq").collect()] == [12, 15, 18]
    assert late.rdd.getNumPartitions() == 3


def test_filters_are_taken_over(spark: SparkSession, host: Host) -> None:
    with host.archive.writer("host") as writer:
        append(writer, [Record(topic="ab"[n % 2], seq=n, receive_ns=n * 10**9) for n in range(20)])
    frame = read(spark, host, pushdown="true").where("topic = 'a' and seq > 3 and timestamp < timestamp_seconds(10)")
    assert [row.seq for row in frame.collect()] == [4, 6, 8]
    plan = frame._jdf.queryExecution().executedPlan().toString()
    assert "Filter (" not in plan


def test_from_sql(spark: SparkSession, host: Host) -> None:
    host.record(10)
    with pytest.raises(PySparkException, match="CREATE TABLE does not work"):
        spark.sql(f"CREATE TABLE kept USING ipcbus OPTIONS (archive '{host.path}')")
    spark.sql(f"CREATE TEMPORARY VIEW recorded USING ipcbus OPTIONS (archive '{host.path}', minPartitions '2')")
    try:
        assert spark.sql("SELECT sum(seq) FROM recorded").collect()[0][0] == 45
    finally:
        spark.catalog.dropTempView("recorded")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"archiv": "x"}, "option archiv is unknown; did you mean archive?"),
        ({"subscribe": "a", "assign": '{"a":[0]}'}, "subscribe and assign exclude each other"),
        ({"maxOffsetsPerTrigger": "5"}, "maxOffsetsPerTrigger is for a stream, not for a batch"),
    ],
)
def test_wrong_options_fail_at_planning(spark: SparkSession, host: Host, options: dict[str, str], says: str) -> None:
    host.record(1)
    with pytest.raises(PySparkException) as caught:
        read(spark, host, **options).collect()
    assert says in str(caught.value)


def test_no_archive_there(spark: SparkSession, host: Host) -> None:
    shutil.rmtree(host.path)
    with pytest.raises(PySparkException, match="ArchiveMissing"):
        read(spark, host).count()


# ------------------------------------------------------------------------------------------ streams


def test_admission_and_restart_while_the_archive_grows(spark: SparkSession, host: Host, tmp_path: Path) -> None:
    host.record(100)
    streamed = Streamed(spark, host, tmp_path / "c")
    query = streamed.run(maxOffsetsPerTrigger="30")
    assert streamed.batches == {0: [*range(30)], 1: [*range(30, 60)], 2: [*range(60, 90)], 3: [*range(90, 100)]}
    progress = query.lastProgress
    assert progress is not None
    source = progress["sources"][0]
    assert source["endOffset"] == source["latestOffset"]
    assert json.loads(source["endOffset"]) == {"archive": host.archive.id, "o": {"host/0": 100}, "v": 1}
    streamed.run()
    assert len(streamed.batches) == 4
    host.record(20)
    host.record(5, "other")
    streamed.run(groupId="tests")
    assert streamed.batches[4] == sorted([*range(100, 120), *range(5)])
    host.record(1)
    streamed.run(groupId="tests")
    assert host.archive.cursors.all()["tests"].offsets == {"host/0": 120, "other/1": 5}


def test_retention_under_a_stopped_query(spark: SparkSession, host: Host, tmp_path: Path) -> None:
    host.record(100)
    streamed = Streamed(spark, host, tmp_path / "c")
    streamed.run()
    for _ in range(3):
        host.record(100, retain_seconds=0.0)
    assert host.archive.log("host/0").bounds() == (300, 400)
    with pytest.raises(StreamingQueryException) as caught:
        streamed.run()
    assert "kept from 300 on: offsets 100 to 299 (200 rows) were requested" in str(caught.value)
    streamed.run(failOnDataLoss="false")
    assert streamed.batches[1] == [*range(300, 400)]


def test_another_archive_under_a_stopped_query(spark: SparkSession, host: Host, tmp_path: Path) -> None:
    host.record(10)
    streamed = Streamed(spark, host, tmp_path / "c")
    streamed.run()
    shutil.rmtree(host.path)
    Archive.create(host.path)
    with pytest.raises(StreamingQueryException, match="a new checkpoint for this one"):
        streamed.run(failOnDataLoss="false")


def test_aggregates_of_a_stream_in_memory(spark: SparkSession, host: Host, tmp_path: Path) -> None:
    host.record(1000)
    host.record(500, "other", topic="u")
    rows = spark.readStream.format("ipcbus").options(archive=str(host.path), startingOffsets="earliest").load()
    writer = rows.groupBy("topic").count().writeStream.format("memory").queryName("counts").outputMode("complete")
    writer.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True).start().awaitTermination()
    found = {row.topic: row["count"] for row in spark.table("counts").collect()}
    assert found == {"t": 1000, "u": 500}


def test_into_nothing(spark: SparkSession, host: Host, tmp_path: Path) -> None:
    host.record(1000)
    rows = spark.readStream.format("ipcbus").options(archive=str(host.path), startingOffsets="earliest").load()
    writer = rows.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "c"))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    assert query.lastProgress is not None
    assert query.lastProgress["numInputRows"] == 1000


def test_a_query_that_runs_sees_what_is_recorded(spark: SparkSession, host: Host, tmp_path: Path) -> None:
    host.record(10)
    rows = spark.readStream.format("ipcbus").options(archive=str(host.path)).load()
    seen: list[Any] = []
    writer = rows.writeStream.foreachBatch(lambda frame, _: seen.extend(row.seq for row in frame.collect()))
    query = writer.option("checkpointLocation", str(tmp_path / "c")).trigger(processingTime="0 seconds").start()
    try:
        while query.status["message"] != "Waiting for data to arrive":
            query.awaitTermination(1)
        host.record(5)
        query.processAllAvailable()
        host.record(5)
        query.processAllAvailable()
    finally:
        query.stop()
    assert seen == list(range(10, 20))


def test_times_are_right(spark: SparkSession, host: Host) -> None:
    at = datetime(2026, 2, 3, 4, 5, 6, 789012, tzinfo=UTC)
    with host.archive.writer("host") as writer:
        append(writer, [Record(b"", receive_ns=int(at.timestamp()) * 10**9 + 789012345, send_ns=17)])
    (row,) = (
        read(spark, host)
        .selectExpr("date_format(timestamp, 'yyyy-MM-dd HH:mm:ss.SSSSSS') AS t", "publishTimeNs")
        .collect()
    )
    assert tuple(row) == ("2026-02-03 04:05:06.789012", 17)
