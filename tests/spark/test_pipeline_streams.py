"""Pipelines as streams over an archive: as the batch says, also after what a crash leaves; and compaction."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import duckdb
import polars
import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import functions as F

from benchmarks.traffic import Traffic, Truth
from ipcbus import ConfigError
from ipcbus.spark.pipelines import audit, batch_files, latency, rollup, streaming_job, throughput
from ipcbus.spark.pipelines.batch_files import BatchFiles
from ipcbus.spark.pipelines.compact import compact, compact_batch
from ipcbus.spark.pipelines.reading import Selection, read, read_stream
from ipcbus.spark.pipelines.results import write_results
from ipcbus.spark.pipelines.streaming_job import PARTS, StreamingJob, start_compact
from tests.kit.hosts import Host

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from ipcbus.spark.pipelines.pipeline import Pipeline

pytestmark = pytest.mark.spark

ROWS = 30_000
PIPELINES = (throughput.pipeline(10**7), latency.pipeline(), audit.pipeline(order=True), rollup.pipeline())


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Truth]:
    path = tmp_path_factory.mktemp("traffic") / "archive"
    truth = Traffic(ROWS, topics=4, sessions=2, disturbances=300).write(path)
    return path, truth


@pytest.fixture(scope="module", autouse=True)
def warm_polars(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Opens what Polars keeps open from the first file on."""
    file = tmp_path_factory.mktemp("polars") / "file.parquet"
    polars.DataFrame({"n": [1]}).write_parquet(file)
    polars.scan_parquet(file).collect()


def lines(frame: DataFrame) -> list[dict[str, Any]]:
    """The rows, sorted."""
    found = (row.asDict() for row in frame.collect())
    return sorted(found, key=lambda row: json.dumps(row, sort_keys=True, default=str))


def rows_of(spark: SparkSession, pipeline: Pipeline, path: Path, rows_per_batch: int = 12_000) -> DataFrame:
    return read_stream(spark, Selection(path), pipeline.columns, events=pipeline.events, rows_per_batch=rows_per_batch)


def test_truth_of_the_traffic(spark: SparkSession, archive: tuple[Path, Truth]) -> None:
    path, truth = archive
    pipeline = audit.pipeline()
    (line,) = pipeline.run(read(spark, Selection(path), pipeline.columns, events=True))["summary"].collect()
    for name in ("messages", "numbers", "lost_bus", "lost_recorder", "missing", "duplicates"):
        assert line[name] == getattr(truth, name) > 0
    assert (line["absent"], line["contradicted"]) == (0, 0)


@pytest.mark.parametrize(
    "pipeline",
    [
        # The others merge sums, as rollup does.
        pytest.param(each, id=each.name, marks=() if each.name in ("audit", "rollup") else pytest.mark.long)
        for each in PIPELINES
    ],
)
def test_stream_says_what_the_batch_says(
    spark: SparkSession,
    archive: tuple[Path, Truth],
    tmp_path: Path,
    pipeline: Pipeline,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path, truth = archive
    monkeypatch.setattr(batch_files, "MERGE_AT", 1)
    rows = read(spark, Selection(path), pipeline.columns, events=pipeline.events)
    expected = write_results(pipeline, pipeline.partials(rows), tmp_path / "batch")
    job = StreamingJob(pipeline, tmp_path / "stream")
    assert job.write_results(spark) == {}
    job.start(rows_of(spark, pipeline, path), tmp_path / "checkpoint").awaitTermination()
    found = job.write_results(spark)
    assert found.keys() == expected.keys()
    for name, written in found.items():
        assert lines(spark.read.parquet(str(written))) == lines(spark.read.parquet(str(expected[name])))
    if pipeline.name == "audit":
        (line,) = spark.read.parquet(str(found["summary"])).collect()
        assert all(line[name] == getattr(truth, name) for name in ("missing", "duplicates", "late", "lost_bus"))


def test_stream_that_fails_between_writing_and_commit_counts_nothing_twice(
    spark: SparkSession, archive: tuple[Path, Truth], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, truth = archive
    pipeline = throughput.pipeline()
    job, checkpoint = StreamingJob(pipeline, tmp_path / "out"), tmp_path / "checkpoint"
    with monkeypatch.context() as patched:

        def fail(parts: BatchFiles, *_: object) -> None:
            if (parts.path / "batch_id=1").exists():
                raise OSError("power cut")

        patched.setattr(BatchFiles, "merge", fail)
        with pytest.raises(StreamingQueryException, match="power cut"):
            job.start(rows_of(spark, pipeline, path), checkpoint).awaitTermination()
    next((tmp_path / "out" / PARTS / "batch_id=1" / "counts").glob("*.parquet")).write_bytes(b"cut off")
    job.start(rows_of(spark, pipeline, path), checkpoint).awaitTermination()
    found = job.write_results(spark)
    (total,) = spark.read.parquet(str(found["totals"])).where("topic IS NULL").collect()
    assert (total["messages"], total["bytes"]) == (truth.messages, truth.bytes)
    # Nothing is new, so nothing changes.
    job.start(rows_of(spark, pipeline, path), checkpoint).awaitTermination()
    assert lines(job.tables(spark)["counts"]) == lines(merged_counts(spark, path))
    with pytest.raises(StreamingQueryException, match="holds files of another stream"):
        job.start(rows_of(spark, pipeline, path), tmp_path / "another").awaitTermination()


def merged_counts(spark: SparkSession, path: Path) -> DataFrame:
    pipeline = throughput.pipeline()
    return pipeline.partials(read(spark, Selection(path), pipeline.columns))["counts"]


def test_stream_that_goes_on_writes_results_now_and_then(
    spark: SparkSession, tmp_path: Path, archive: tuple[Path, Truth]
) -> None:
    path, truth = archive
    pipeline = latency.pipeline()
    job = StreamingJob(pipeline, tmp_path / "out", refresh_seconds=0)
    query = job.start(rows_of(spark, pipeline, path), tmp_path / "checkpoint", every_seconds=0.01)
    query.processAllAvailable()
    query.stop()
    (line,) = spark.read.parquet(str(tmp_path / "out" / "percentiles")).where("topic IS NULL").collect()
    counted = line["messages"], line["unstamped"], line["negative"]
    assert sum(counted) == truth.messages
    assert counted[1:] == (truth.unstamped, truth.negative)


# ------------------------------------------------------------------------------- directories of batches


@pytest.fixture
def some(spark: SparkSession) -> Callable[[int], dict[str, DataFrame]]:
    """A table with one number."""
    return lambda value: {"n": spark.createDataFrame([(value,)], "n long")}


def total(frame: DataFrame) -> DataFrame:
    """Merges them."""
    return frame.groupBy().agg({"n": "sum"}).toDF("n")


def test_batches(spark: SparkSession, tmp_path: Path, some: Callable[[int], dict[str, DataFrame]]) -> None:
    parts = BatchFiles(tmp_path / "parts")
    assert parts.tables(spark, {"n": total}) == {}
    parts.claim("stream 1", 0, "sums")

    def sums(expected: int) -> None:
        assert lines(parts.tables(spark, {"n": total})["n"]) == [{"n": expected}]

    for batch in range(3):
        parts.write(batch, some(10**batch))
    parts.write(2, some(200))
    sums(211)
    # What a crash left of the last one does not count.
    parts.write(3, some(5000))
    (parts.path / "batch_id=3" / "n" / "_SUCCESS").unlink()
    sums(211)
    parts.write(3, some(4000))
    sums(4211)
    # A crash after merging, before what was merged is removed.
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(shutil, "rmtree", lambda *_, **__: None)
        parts.merge(spark, {"n": total}, at=2)
    assert {"batch_id=0", "batch_id=2", "batch_id=3", "merged=2"} <= {path.name for path in parts.path.iterdir()}
    sums(4211)
    parts.merge(spark, {"n": total}, at=2)
    assert {path.name for path in parts.path.iterdir()} == {"_stream", "batch_id=3", "merged=2"}
    sums(4211)
    for batch in (4, 5):
        parts.write(batch, some(10**batch))
        parts.merge(spark, {"n": total}, at=2)
    sums(114211)
    assert {path.name for path in parts.path.iterdir()} == {"_stream", "batch_id=5", "merged=4"}
    with pytest.raises(ConfigError, match="all micro-batches up to 4, but number 4 comes again"):
        parts.write(4, some(1))


# ------------------------------------------------------------------------------------------- compaction


def test_one_checkpoint_is_of_one_pipeline_with_one_interval(spark: SparkSession, tmp_path: Path) -> None:
    host = Host(tmp_path / "archive")
    counts, late = throughput.pipeline(10**9), latency.pipeline()
    job, checkpoint = StreamingJob(counts, tmp_path / "throughput"), tmp_path / "checkpoint"

    def go(job: StreamingJob) -> int:
        job.start(rows_of(spark, job.pipeline, host.path), checkpoint).awaitTermination()
        found = job.write_results(spark)
        (line,) = spark.read.parquet(str(found["totals"])).where("topic IS NULL").collect()
        return int(line["messages"])

    # The first micro-batch has no rows, and is one all the same.
    job.start(rows_of(spark, counts, host.path), checkpoint).awaitTermination()
    host.record(100)
    assert go(job) == 100
    host.record(10)
    with pytest.raises(StreamingQueryException, match="is new, but the checkpoint has reached micro-batch 2"):
        go(StreamingJob(late, tmp_path / "latency"))
    with pytest.raises(
        ConfigError, match="holds throughput in intervals of 1000000000 ns, but this stream makes .* 1000 "
    ):
        go(StreamingJob(throughput.pipeline(1000), tmp_path / "throughput"))
    assert go(job) == 110


def test_compact(spark: SparkSession, archive: tuple[Path, Truth], tmp_path: Path) -> None:
    path, truth = archive
    out = tmp_path / "compact"
    for _ in range(2):
        compact(read(spark, Selection(path)), out)
    assert [folder.name for folder in out.iterdir() if folder.is_dir()] == ["date=2024-08-08"]
    assert len(list(out.glob("*/*.parquet"))) == 1
    check_parquet(spark, path, f"{out}/*/*.parquet", truth)
    kinds = sql(f"DESCRIBE SELECT * FROM '{out}/*/*.parquet'")
    assert ("timestamp", "TIMESTAMP WITH TIME ZONE") in [kind[:2] for kind in kinds]
    # Pipelines run on it too.
    (line,) = throughput.pipeline().run(spark.read.parquet(str(out)))["totals"].where("topic IS NULL").collect()
    assert (line["messages"], line["bytes"]) == (truth.messages, truth.bytes)


def test_compact_that_fails_leaves_what_was_there(spark: SparkSession, tmp_path: Path) -> None:
    out = tmp_path / "compact"
    rows = spark.range(10).selectExpr("'t' AS topic", "0 AS partition", "id AS offset", "id AS receiveTimeNs")
    compact(rows, out)
    with pytest.raises(PySparkException, match="disk on fire"):
        compact(rows.withColumn("seq", F.raise_error(F.lit("disk on fire"))), out)
    assert spark.read.parquet(str(out)).count() == 10


def test_compact_stream(
    spark: SparkSession, archive: tuple[Path, Truth], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, truth = archive
    out = tmp_path / "compact"

    def go() -> None:
        rows = read_stream(spark, Selection(path), rows_per_batch=12_000)
        start_compact(rows, tmp_path / "checkpoint", out).awaitTermination()

    with monkeypatch.context() as patched:

        def fail(rows: DataFrame, folder: Path) -> None:
            compact_batch(rows, folder)
            if folder.name == "batch_id=1":
                raise OSError("power cut")

        patched.setattr(streaming_job, "compact_batch", fail)
        with pytest.raises(StreamingQueryException, match="power cut"):
            go()
    next(out.glob("batch_id=1/*.parquet")).write_bytes(b"cut off")
    go()
    check_parquet(spark, path, f"{out}/*/*.parquet", truth)


def check_parquet(spark: SparkSession, archive: Path, files: str, truth: Truth) -> None:
    """Each message is there once, as Spark, DuckDB and Polars read it."""
    expected = read(spark, Selection(archive)).count()
    assert expected == truth.messages
    for count, distinct in (
        sql(f"SELECT count(*), count(DISTINCT (partition, \"offset\")) FROM '{files}'")[0],
        polars.scan_parquet(files)
        .select(polars.len(), polars.struct("partition", "offset").n_unique())
        .collect()
        .row(0),
        spark.read.parquet(files).selectExpr("count(*)", "count(DISTINCT partition, offset)").collect()[0],
    ):
        assert (count, distinct) == (truth.messages, truth.messages)
    assert sql(f"SELECT sum(octet_length(value)) FROM '{files}'") == [(truth.bytes,)]


def sql(query: str) -> list[Any]:
    """What DuckDB answers."""
    with duckdb.connect() as connection:
        return connection.execute(query).fetchall()


def test_compact_replaces_nothing_else(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(ConfigError, match=r"holds 'thesis.txt', and all of it would be replaced"):
        compact(spark.range(1), tmp_path)
    assert (tmp_path / "thesis.txt").exists()


def test_compact_as_a_stream_adds_nothing_to_what_compact_wrote(spark: SparkSession, tmp_path: Path) -> None:
    host = Host(tmp_path / "archive")
    host.record(10)
    compact(read(spark, Selection(host.path)), tmp_path / "out")
    rows = read_stream(spark, Selection(host.path))
    with pytest.raises(ConfigError, match=r"holds 'date=.*', which would be read together with"):
        start_compact(rows, tmp_path / "checkpoint", tmp_path / "out")
