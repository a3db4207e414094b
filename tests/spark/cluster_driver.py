"""An application on a cluster, a process of its own: what it is told to do stands in JSON, and so does what it found.

python cluster_driver.py REQUEST ANSWER
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pyarrow as pa
from pyspark import TaskContext
from pyspark.errors import PySparkException

from ipcbus.spark.pipelines import audit, latency, throughput
from ipcbus.spark.pipelines.reading import Selection, read, read_stream
from ipcbus.spark.pipelines.results import write_results
from ipcbus.spark.pipelines.streaming_job import StreamingJob
from ipcbus.spark.session import session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame, SparkSession

PIPELINES = (throughput.pipeline(10**7), latency.pipeline(), audit.pipeline(order=True))
ROWS_PER_BATCH = 20_000


def executor() -> psutil.Process:
    """The JVM whose worker calls."""
    return next(parent for parent in psutil.Process().parents() if "java" in parent.name())


def pipelines(spark: SparkSession, archive: str, out: str) -> dict[str, Any]:
    """Writes the results of all pipelines; tells which executors have read how much."""

    def who(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield pa.RecordBatch.from_pydict({"executor": [executor().pid], "rows": [batch.num_rows]})

    took = {}
    for pipeline in PIPELINES:
        begun = time.monotonic()
        rows = read(spark, Selection(Path(archive)), pipeline.columns, events=pipeline.events)
        write_results(pipeline, pipeline.partials(rows), Path(out, pipeline.name))
        took[pipeline.name] = time.monotonic() - begun
    reads = read_parts(spark, archive).mapInArrow(who, "executor long, rows long").groupBy("executor").sum("rows")
    return {"read": {str(pid): rows for pid, rows in reads.collect()}, "took": took}


def streamed(spark: SparkSession, archive: str, out: str) -> dict[str, Any]:
    """Writes the results of a pipeline as a stream."""
    job = StreamingJob(PIPELINES[0], Path(out, "stream"))
    columns = job.pipeline.columns
    stream = read_stream(spark, Selection(Path(archive)), columns, rows_per_batch=ROWS_PER_BATCH)
    job.start(stream, Path(out, "checkpoint")).awaitTermination()
    job.write_results(spark)
    return {}


def killed(spark: SparkSession, archive: str, out: str) -> dict[str, Any]:
    """Writes the results of audits in which an executor is killed, and an executor with the worker that starts them."""
    pipeline = PIPELINES[-1]
    for kill in ("executor", "worker"):
        gone = Path(out, f"{kill}.killed")

        def die(batches: Iterator[pa.RecordBatch], kill: str = kill, gone: Path = gone) -> Iterator[pa.RecordBatch]:
            context = TaskContext.get()
            for number, batch in enumerate(batches):
                if context is not None and context.partitionId() == 1 and number == 1 and not gone.exists():
                    gone.touch()
                    jvm = executor()
                    for victim in [jvm.parent(), jvm] if kill == "worker" else [jvm]:
                        victim.send_signal(signal.SIGKILL)  # type: ignore[union-attr]
                    os.kill(os.getpid(), signal.SIGKILL)
                yield batch

        rows = read_parts(spark, archive, pipeline.columns, events=True)
        write_results(pipeline, pipeline.partials(rows.mapInArrow(die, rows.schema)), Path(out, kill))
    return {}


def refused(spark: SparkSession, archive: str, out: str) -> dict[str, Any]:
    """Tells the error of a batch and of a stream."""
    rows = read_parts(spark, archive, ("value",))
    stream = read_stream(spark, Selection(Path(archive)), ("value",))
    writer = stream.writeStream.format("noop").option("checkpointLocation", f"{out}/checkpoint")
    return {
        "batch": error_of(rows.count),
        "stream": error_of(lambda: writer.trigger(availableNow=True).start().awaitTermination()),
    }


def read_parts(spark: SparkSession, archive: str, columns: tuple[str, ...] = (), *, events: bool = False) -> DataFrame:
    """The rows in four tasks at least."""
    reader = spark.read.format("ipcbus").options(**Selection(Path(archive)).options(), minPartitions="4")
    rows = reader.option("includeEvents", str(events).lower()).load()
    return rows.select(*columns) if columns else rows


def error_of(act: Callable[[], object]) -> str:
    """The text of the error that has to come."""
    try:
        return f"no error, but {act()}"
    except PySparkException as error:
        return str(error)


if __name__ == "__main__":
    request = json.loads(Path(sys.argv[1]).read_text())
    begun = time.monotonic()
    spark = session("cluster", master=request["master"], confs=request["confs"])
    spark.sparkContext.setLogLevel("ERROR")
    started = time.monotonic() - begun
    do = {"pipelines": pipelines, "streamed": streamed, "killed": killed, "refused": refused}[request["do"]]
    manager = spark.conf.get("spark.sql.streaming.checkpointFileManagerClass", "")
    answer = {**do(spark, request["archive"], request["out"]), "started": started, "manager": manager}
    spark.stop()
    Path(sys.argv[2]).write_text(json.dumps(answer))
