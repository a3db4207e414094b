"""The examples of the page about pipelines run; `/data` is a directory of the test."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.spark.test_docs import data, run

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

__all__ = ["data"]


def test_how_to(spark: SparkSession, data: Path) -> None:
    names = run("how-to/pipelines.md", data)
    assert names["spark"].sparkContext is spark.sparkContext
    (summary,) = names["summary"].collect()
    assert (summary["messages"], summary["lost_bus"], summary["verdict"]) == (600, 0, "complete")
    topics = {line["topic"]: line["unstamped"] for line in names["percentiles"].collect()}
    assert topics == {None: 600, "quotes.A": 300, "quotes.B": 300}
