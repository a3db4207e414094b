"""Reading an archive with Spark: batches, micro-batches, and how long a message takes from `send` into a query."""

from __future__ import annotations

import multiprocessing
import secrets
import statistics
import time
from typing import TYPE_CHECKING, Any

import numpy as np

import ipcbus
from benchmarks.spark_figures import Figure, Setting, rate
from ipcbus.archive import Archive
from ipcbus.archive.archive_layout import ROW
from ipcbus.archive.recorder import Recorder

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame

_ROWS = 10_000_000
_BLOCK = 50_000
_TOPICS = 50
_VALUE = 64
_NUMBERS = "offset long, session long, seq long, publishTimeNs long, receiveTimeNs long"
_MICRO_BATCH = 2_000_000
_PACE = 1_000
_SECONDS = 30


def figures(setting: Setting) -> Iterator[Figure]:
    """The suite."""
    rows = int(_ROWS * setting.factor) // _BLOCK * _BLOCK
    path = setting.directory / "archive"
    _fill(path, rows)
    yield from _batches(setting, path, rows)
    yield Figure("availableNow, 2 M rows a micro-batch, into noop", "rows/s", _micro_batches(setting, path))
    yield from _latencies(setting)


def _fill(path: Path, rows: int) -> None:
    """Messages of some topics in turn, in blocks as a busy recorder writes them."""
    chances = np.random.default_rng(1)
    block = np.zeros(_BLOCK, ROW)
    block["length"] = _VALUE
    block["position"] = np.arange(_BLOCK) * _VALUE
    block["numbers"] = 1
    data = chances.integers(0, 256, _BLOCK * _VALUE, np.uint8).tobytes()
    with Archive.create(path).writer("host") as writer:
        topics = [writer.topic(f"quotes.SYM{number:02d}") for number in range(_TOPICS)]
        block["session"] = writer.session("LBT-IPC:6481f8d4:20001")
        for begin in range(0, rows, _BLOCK):
            block["topic"] = chances.choice(topics, _BLOCK)
            block["sequence"] = np.arange(begin, begin + _BLOCK)
            block["receive_ns"] = 1_700_000_000_000_000_000 + block["sequence"] * 500
            block["send_ns"] = block["receive_ns"] - 2000
            writer.append(block, data)


def _batches(setting: Setting, path: Path, rows: int) -> Iterator[Figure]:
    def read(schema: str | None = None, **options: str) -> DataFrame:
        reader = setting.spark.read.format("ipcbus").options(archive=str(path), **options)
        return (reader if schema is None else reader.schema(schema)).load()

    def noop(frame: DataFrame) -> None:
        frame.write.format("noop").mode("overwrite").save()

    cases: list[tuple[str, Any, float | None]] = [
        ("batch, 5 columns of numbers, count", lambda: read(_NUMBERS).count(), 5e6),
        ("batch, all columns, values of 64 B, count", lambda: read().count(), None),
        ("batch, all columns, into noop", lambda: noop(read()), None),
        ("batch, messages by topic", lambda: read("topic string").groupBy("topic").count().collect(), None),
        ("batch, 1 topic of 50", lambda: read(subscribe="quotes.SYM07").count(), None),
        (
            "batch, 1 topic of 50 by a filter that is taken over",
            lambda: read(pushdown="true").where("topic = 'quotes.SYM07'").count(),
            None,
        ),
    ]
    for name, work, aim in cases:
        yield Figure(name, "rows/s", rate(rows, setting.runs, work), aim)


def _micro_batches(setting: Setting, path: Path) -> tuple[float, ...]:
    """Rows a second of each micro-batch but the first."""
    options = {"archive": str(path), "startingOffsets": "earliest", "maxOffsetsPerTrigger": str(_MICRO_BATCH)}
    rows = setting.spark.readStream.format("ipcbus").options(**options).load()
    writer = rows.writeStream.format("noop").option("checkpointLocation", str(setting.directory / "throughput"))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    progress = [each for each in query.recentProgress if each["numInputRows"] == _MICRO_BATCH]
    return tuple(1000 * each["numInputRows"] / each["batchDuration"] for each in progress[1:] or progress)


def _latencies(setting: Setting) -> Iterator[Figure]:
    """From `send` through the bus and a recorder to where a query has the row, at 1,000 messages a second."""
    domain = "bench" + secrets.token_hex(4)
    archive = Archive.create(setting.directory / "live")
    ages: list[float] = []

    def see(frame: DataFrame, _batch: int) -> None:
        sent = [row.publishTimeNs for row in frame.collect()]
        now = time.time_ns()
        ages.extend((now - at) / 1e6 for at in sent)

    rows = setting.spark.readStream.format("ipcbus").schema("publishTimeNs long").load(str(archive.path))
    seconds = max(5, int(_SECONDS * setting.factor))
    publisher = multiprocessing.get_context("spawn").Process(target=_publish, args=(domain, seconds))
    with ipcbus.Context(domain=domain) as context, Recorder(context, archive, ["bench"]):
        query = rows.writeStream.foreachBatch(see).option("checkpointLocation", str(setting.directory / "l")).start()
        publisher.start()
        publisher.join()
        query.processAllAvailable()
        cycles = [each["durationMs"]["triggerExecution"] for each in query.recentProgress if each["numInputRows"]]
        query.stop()
    settled = ages[len(ages) // 5 :]
    name = "1,000 msg/s, from send into a query"
    yield Figure(f"{name}: mean", "ms", (statistics.fmean(settled),), smaller_is_better=True)
    for percent in (50, 99):
        yield Figure(f"{name}: p{percent}", "ms", (float(np.percentile(settled, percent)),), smaller_is_better=True)
    yield Figure("1,000 msg/s, micro-batch", "ms", (statistics.median(cycles),), smaller_is_better=True)


def _publish(domain: str, seconds: int) -> None:
    """Sends at an even pace."""
    payload = b"x" * _VALUE
    with ipcbus.Context(domain=domain) as context:
        source = context.source("bench")
        source.wait_for_receivers(1, 30)
        begin = time.monotonic()
        for number in range(seconds * _PACE):
            source.send(payload, flush=True)
            time.sleep(max(0.0, begin + number / _PACE - time.monotonic()))
