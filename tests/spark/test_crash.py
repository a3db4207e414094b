"""A driver that is killed in the middle of its first batch."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.kit.hosts import Host
from tests.unit.sources import ROOT

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.stress]

DRIVER = """
import json, os, signal, sys
from pathlib import Path
from ipcbus.spark.session import session
from tests.kit.hosts import Host

directory = Path(sys.argv[1])
host = Host(directory / "a")
host.record(10)
confs = {"spark.ui.enabled": "false", "spark.driver.memory": "1g", "spark.local.dir": str(directory)}
spark = session("killed", master="local[1]", confs=confs)

def write_and_die(rows, batch):
    seqs = sorted(row.seq for row in rows.select("seq").collect())
    (directory / f"killed-{batch}.json").write_text(json.dumps(seqs))
    if seqs:
        os.killpg(0, signal.SIGKILL)

rows = spark.readStream.format("ipcbus").option("archive", host.path).load()
query = rows.writeStream.foreachBatch(write_and_die).option("checkpointLocation", str(directory / "c")).start()
while query.status["message"] != "Waiting for data to arrive":
    query.awaitTermination(0.1)
host.record(100)
query.awaitTermination()
"""


def test_the_first_batch_from_the_latest_is_repeated_as_it_was(spark: SparkSession, tmp_path: Path) -> None:
    """Its begin is in no offset log, and by the time of the restart the latest offset is another."""
    script = tmp_path / "driver.py"
    script.write_text(DRIVER)
    command = [sys.executable, str(script), str(tmp_path)]
    with (tmp_path / "output").open("w") as output:
        killed = subprocess.run(
            command,
            cwd=ROOT,
            env={"PYTHONPATH": str(ROOT)},
            stdout=output,
            stderr=output,
            start_new_session=True,
            check=False,
        )
    assert killed.returncode == -signal.SIGKILL, (tmp_path / "output").read_text()[-2000:]
    assert (tmp_path / "c" / "offsets" / "1").exists()
    assert not (tmp_path / "c" / "commits" / "1").exists()

    host = Host(tmp_path / "a")
    host.record(110)  # known numbers again: what counts is that they are after
    batches: dict[int, list[int]] = {}

    def collect(rows: DataFrame, batch: int) -> None:
        batches[batch] = sorted(row.offset for row in rows.select("offset").collect())

    rows = spark.readStream.format("ipcbus").option("archive", str(host.path)).load()
    writer = rows.writeStream.foreachBatch(collect).option("checkpointLocation", str(tmp_path / "c"))
    writer.trigger(availableNow=True).start().awaitTermination()
    assert batches == {1: list(range(10, 110)), 2: list(range(110, 220))}
    assert json.loads((tmp_path / "killed-1.json").read_text()) == batches[1]
