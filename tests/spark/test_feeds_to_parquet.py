"""The captured feeds from the bus through the recorder and Spark into Parquet: every message, byte for byte."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow.dataset
import pytest
from pyspark.sql import functions as F

from ipcbus.spark.pipelines import audit
from ipcbus.spark.pipelines.exchange_feed import chains
from tests.kit.recording import RecorderProcess
from tests.system.test_feeds import DATA, FEEDS, MESSAGES, Chain, expected
from tests.system.test_recording_feeds import replay

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(
        not all((DATA / feed).exists() for feed in FEEDS), reason=f"the captured feeds are not in {DATA}"
    ),
]


def written(path: Path) -> dict[tuple[str, int], Chain]:
    """The messages of each topic of each session in Parquet files, in the order of their offsets; without Spark."""
    table = pyarrow.dataset.dataset(path).to_table(["topic", "session", "offset", "value"]).sort_by("offset")
    found: dict[tuple[str, int], Chain] = {}
    columns = (table[name].to_pylist() for name in ("topic", "session", "value"))
    for topic, session, value in zip(*columns, strict=True):
        found.setdefault((topic, session), Chain()).add(value)
    return found


def test_feeds_arrive_in_parquet_whole_and_in_order(spark: SparkSession, domain: str, tmp_path: Path) -> None:
    directory, out = tmp_path / "archive", tmp_path / "out"

    def write(frame: DataFrame, batch: int) -> None:
        frame.write.mode("overwrite").parquet(str(out / f"batch_id={batch}"))

    def stream() -> None:
        rows = spark.readStream.format("ipcbus").options(
            archive=str(directory), startingOffsets="earliest", maxOffsetsPerTrigger=30_000
        )
        query = rows.load().writeStream.foreachBatch(write).option("checkpointLocation", str(tmp_path / "checkpoint"))
        query.trigger(availableNow=True).start().awaitTermination()

    with RecorderProcess(domain, directory, ".*", "--pattern", "--lossless") as recorder:
        sessions = {}
        for feed in FEEDS:
            report = replay(DATA / feed, domain, "--transport", "lbtipc")
            sessions[feed] = {int(source.split(":")[1], 16) for source in report["sessions"]}
            stream()  # while the recorder runs: what it has published so far
        assert recorder.end()["messages"] == MESSAGES
    stream()

    parquet = written(out)
    assert sum(chain.messages for chain in parquet.values()) == MESSAGES
    for feed in FEEDS:
        mine = {topic: chain.facts() for (topic, session), chain in parquet.items() if session in sessions[feed]}
        assert mine == expected(feed)

    rows = spark.read.format("ipcbus").options(archive=str(directory), includeEvents="true").load()
    links = chains(rows.where(F.col("type") == 0)).collect()
    assert links
    assert not [row for row in links if row.broken]
    (account,) = audit.pipeline(order=True).run(rows)["summary"].collect()
    assert (account.verdict, account.messages, account.late) == ("complete", MESSAGES, 0)
