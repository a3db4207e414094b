"""An application of Spark of its own: lines of files go onto the bus, once with each guarantee, until all are there.

Run as `python -m tests.kit.sink_app DIRECTORY DOMAIN KILL`; the last one is for `sink_deadly`. The first attempt at the
second task of each micro-batch fails behind the first rows.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from ipcbus.spark.session import session
from tests.kit.sink_deadly import DeadlySource

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

GUARANTEES = {"often": "at-least-once", "once": "exactly-once"}
"""Topic -> guarantee."""

CONFS = {
    "spark.driver.memory": "1g",
    "spark.ui.enabled": "false",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "20",
    "spark.sql.streaming.stopTimeout": "60s",
}


def stumbling(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows, which end in an error in the first attempt at task 1."""
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    for number, batch in enumerate(batches):
        if number == 2 and context.partitionId() == 1 and context.attemptNumber() == 0:
            raise RuntimeError("the first attempt fails")
        yield batch


def main() -> None:
    """Runs both queries to the end of the files."""
    directory, domain, kill = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    spark = session("sink", master="local[2,3]", confs={**CONFS, "spark.local.dir": str(directory / "local")})
    spark.sparkContext.setLogLevel("OFF")
    spark.dataSource.register(DeadlySource)
    queries = []
    for topic, guarantee in GUARANTEES.items():
        lines = spark.readStream.format("text").option("maxFilesPerTrigger", "1").load(str(directory / "lines"))
        rows = lines.repartition(2).mapInArrow(stumbling, "value string")
        options = {
            "topic": topic,
            "deliveryGuarantee": guarantee,
            "stagingDir": str(directory / "staging"),
            "domain": domain,
            "linger": "1ms",
            "kill": kill if topic == "once" else "never",
            "checkpointLocation": str(directory / topic),
        }
        queries.append(rows.writeStream.format("deadly").options(**options).trigger(availableNow=True).start())
    for query in queries:
        query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main()
