"""One Spark session for all tests with a JVM: it takes ten seconds to start."""

from __future__ import annotations

import tempfile
from typing import TYPE_CHECKING

import pytest

from ipcbus.spark.session import session

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

TIMEOUT = 300.0
"""Seconds for a test, as a JVM that starts on a busy machine takes its time."""

CONFS = {
    "spark.driver.memory": "1g",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
    "spark.sql.streaming.stopTimeout": "60s",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Gives tests with a JVM the time they need, unless they say themselves how much that is."""
    for item in items:
        if item.get_closest_marker("spark") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(TIMEOUT))


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A session on two cores. Being of the whole run it is made before a test looks around for what is its own."""
    with tempfile.TemporaryDirectory() as directory:
        confs = {**CONFS, "spark.local.dir": directory, "spark.sql.warehouse.dir": f"{directory}/warehouse"}
        made = session("tests", master="local[2]", confs=confs)
        made.sparkContext.setLogLevel("ERROR")
        _warm_up(made, directory)
        yield made
        made.stop()


def _warm_up(made: SparkSession, directory: str) -> None:
    """Opens what py4j keeps open from the first use on: its way back into this process."""
    stream = made.readStream.format("rate").load().writeStream.foreachBatch(lambda _frame, _batch: None)
    query = stream.option("checkpointLocation", f"{directory}/warm").trigger(once=True).start()
    query.awaitTermination()
