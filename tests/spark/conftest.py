"""One Spark session for all tests with a JVM: it takes ten seconds to start."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ipcbus.spark.session import DISCOVERED, session
from tests.kit.fixtures import peers, zygote
from tests.kit.leftovers import looking_around
from tests.unit.sources import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

__all__ = ["peers", "zygote"]

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


@pytest.fixture(autouse=True)
def leaves_nothing(domain: str) -> Iterator[None]:
    """Fails a test that leaves something behind, but for the connections to the JVM: they go when others need them."""
    yield from looking_around(domain, sockets=False)


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A session on two cores. Being of the whole run it is made before a test looks around for what is its own."""
    with tempfile.TemporaryDirectory() as directory:
        _let_spark_discover(Path(directory, "path"))
        confs = {**CONFS, "spark.local.dir": directory, "spark.sql.warehouse.dir": f"{directory}/warehouse"}
        made = session("tests", master="local[2]", confs=confs)
        made.sparkContext.setLogLevel("ERROR")
        yield made
        made.stop()


def _let_spark_discover(directory: Path) -> None:
    """Puts the package in which Spark looks where an installation that is not editable has it."""
    directory.mkdir()
    (directory / DISCOVERED).symlink_to(ROOT / "ipcbus" / "spark" / "discovery")
    sys.path.append(str(directory))
    os.environ["PYTHONPATH"] = f"{directory}:{ROOT}"
