"""A streaming query in a process of its own that kills itself, Spark's JVM or a worker at a named step.

`python -m tests.spark.crashing PLAN`, PLAN being the JSON of a `Plan`. What is killed is killed once: who runs the
query again on the same directory gets through.
"""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from ipcbus.spark.batch_reader import TaskReader
from ipcbus.spark.data_source import IpcbusDataSource
from ipcbus.spark.session import session
from ipcbus.spark.stream_reader import StreamReader

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.datasource import InputPartition
    from pyspark.sql.types import StructType

    from ipcbus.spark.partitions import Part

OFFSETS_LOGGED = "offsets are logged"
LAST_BATCH_COMMITTED = "the batch before is committed to the source"
READING = "in read"
FILES_WRITTEN = "the sink has written its files"
SINK_DONE = "the sink is done, the commit log is not written"

DRIVER, JVM, WORKER = "driver", "jvm", "worker"

_PLAN = "IPCBUS_TEST_CRASH"


@dataclasses.dataclass(frozen=True)
class Plan:
    """What to do, and what to kill when.

    Attributes:
        archive: what is read.
        work: directory with the results and the checkpoint.
        rows: of a micro-batch.
        batch: in which to strike; from 1 on.
        step: when to strike; empty for never.
        victim: what to kill.
    """

    archive: str
    work: str
    rows: int
    batch: int = 0
    step: str = ""
    victim: str = ""

    @property
    def results(self) -> Path:
        """Parquet, a directory for each micro-batch."""
        return Path(self.work, "results")

    @property
    def checkpoint(self) -> Path:
        """Spark's."""
        return Path(self.work, "checkpoint")

    @property
    def struck(self) -> bool:
        """Whether the victim was killed."""
        return Path(self.work, "struck").exists()

    def at(self, step: str, batch: int) -> None:
        """Kills the victim if this is the moment."""
        if step != self.step or batch != self.batch:
            return
        try:
            Path(self.work, "struck").touch(exist_ok=False)
        except FileExistsError:
            return
        pid = os.getpid() if self.victim == WORKER else int(Path(self.work, self.victim).read_text())
        os.kill(pid, signal.SIGKILL)


def current() -> Plan:
    """The plan of this process, or of the one that Spark's processes come from."""
    return Plan(**json.loads(os.environ[_PLAN]))


def batch_now(plan: Plan) -> int:
    """The last micro-batch whose offsets are logged."""
    return max(int(path.name) for path in (plan.checkpoint / "offsets").iterdir() if path.name.isdigit())


class Striking(IpcbusDataSource):
    """The data source, with the plan looked at on the way."""

    def streamReader(self, schema: StructType) -> StreamReader:
        """One that strikes."""
        made = super().streamReader(schema)
        assert isinstance(made, StreamReader)
        made.__class__ = StrikingReader
        made._rows.__class__ = StrikingRows
        return made


class StrikingReader(StreamReader):
    """Strikes while planning."""

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[Part]:
        """As in the class above."""
        plan = current()
        plan.at(OFFSETS_LOGGED, batch_now(plan))
        return super().partitions(start, end)

    def commit(self, end: dict[str, Any]) -> None:
        """As in the class above."""
        super().commit(end)
        plan = current()
        plan.at(LAST_BATCH_COMMITTED, batch_now(plan))


class StrikingRows(TaskReader):
    """Strikes while reading."""

    def batches(self, part: InputPartition) -> Iterator[Any]:
        """As in the class above."""
        for batch in super().batches(part):
            yield batch
            plan = current()
            plan.at(READING, batch_now(plan))


def run(spark: SparkSession, plan: Plan) -> None:
    """Runs the query until everything that there is is read."""
    if plan.step:
        spark.dataSource.register(Striking)

    def write(frame: DataFrame, batch: int) -> None:
        frame.write.mode("overwrite").parquet(str(plan.results / f"batch_id={batch}"))
        plan.at(FILES_WRITTEN, batch)
        if plan.step == SINK_DONE:
            # The next thing that Spark does is to write the commit log, which takes it a while.
            threading.Timer(0.0, plan.at, (SINK_DONE, batch)).start()

    stream = spark.readStream.format("ipcbus").options(
        archive=plan.archive,
        startingOffsets="earliest",
        maxOffsetsPerTrigger=plan.rows,
        batchRows=1000,
        groupId="crash",
    )
    query = (
        stream.load()
        .writeStream.foreachBatch(write)
        .option("checkpointLocation", str(plan.checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def main() -> None:
    """Runs the plan on the command line."""
    os.environ[_PLAN] = sys.argv[1]
    plan = current()
    confs = {"spark.ui.enabled": "false", "spark.driver.memory": "1g", "spark.sql.shuffle.partitions": "2"}
    spark = session("crashing", master="local[2]", confs={**confs, "spark.local.dir": plan.work})
    Path(plan.work, DRIVER).write_text(str(os.getpid()))
    (jvm,) = [child for child in psutil.Process().children() if child.name() == "java"]
    Path(plan.work, JVM).write_text(str(jvm.pid))
    run(spark, plan)


if __name__ == "__main__":
    main()
