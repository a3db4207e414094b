"""An application of Spark of its own: lines of files go onto the bus, once with each guarantee, until all are there.

Run as `python -m tests.kit.sink_app DIRECTORY DOMAIN KILL`; the last one is for `sink_deadly`.
"""

from __future__ import annotations

import sys
from pathlib import Path

from ipcbus.spark.session import session
from tests.kit.sink_deadly import DeadlySource

GUARANTEES = {"often": "at-least-once", "once": "exactly-once"}
"""Topic -> guarantee."""

CONFS = {
    "spark.driver.memory": "1g",
    "spark.ui.enabled": "false",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "20",
    "spark.sql.streaming.stopTimeout": "60s",
}


def main() -> None:
    """Runs both queries to the end of the files."""
    directory, domain, kill = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    spark = session("sink", master="local[2,3]", confs={**CONFS, "spark.local.dir": str(directory / "local")})
    spark.sparkContext.setLogLevel("OFF")
    spark.dataSource.register(DeadlySource)
    queries = []
    for topic, guarantee in GUARANTEES.items():
        lines = spark.readStream.format("text").option("maxFilesPerTrigger", "1").load(str(directory / "lines"))
        options = {
            "topic": topic,
            "deliveryGuarantee": guarantee,
            "stagingDir": str(directory / "staging"),
            "domain": domain,
            "linger": "1ms",
            "kill": kill if topic == "once" else "never",
            "checkpointLocation": str(directory / topic),
        }
        writer = lines.repartition(2).writeStream.format("deadly").options(**options)
        queries.append(writer.trigger(availableNow=True).start())
    for query in queries:
        query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main()
