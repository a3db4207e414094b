"""The examples of the pages about Spark run, in the order of each page; `/data` is a directory of the test."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from ipcbus.archive import Archive
from tests.kit.records import Record, append
from tests.system.test_docs import OF_SPARK, blocks, run_sessions, write_programs

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

BEGIN_NS = 1_700_000_000_000_000_000


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """What the pages have under `/data`."""
    with Archive.create(tmp_path / "traffic").writer("host") as writer:
        topics = ("quotes.A", "quotes.B", "orders")
        records = [
            Record(b"%d" % n, topics[n % 3], seq=n // 3, receive_ns=BEGIN_NS + n * 10**8, numbers=1) for n in range(900)
        ]
        append(writer, [*records, Record(topic="orders", type=4, seq=309, numbers=10)])
    return tmp_path


def run(page: str, data: Path) -> dict[str, Any]:
    """The names that the examples of a page have made."""
    names: dict[str, Any] = {}
    for number, text in enumerate(blocks(page, "python"), 1):
        exec(compile(text.replace("/data/", f"{data}/"), f"{page}, example {number}", "exec"), names)
    return names


def test_how_to(spark: SparkSession, data: Path) -> None:
    names = run("how-to/spark.md", data)
    try:
        assert names["spark"].sparkContext is spark.sparkContext
        assert names["quotes"].count() == 400
        assert [tuple(row) for row in names["losses"].groupBy("topic", "type").sum("numbers").collect()] == [
            ("orders", 4, 10)
        ]
        counted = {row.topic: row["count"] for row in spark.table("counts").collect()}
        assert counted == dict.fromkeys(("quotes.A", "quotes.B", "orders"), 300)
    finally:
        spark.catalog.dropTempView("recorded")
        spark.catalog.dropTempView("counts")


@pytest.mark.stress
@pytest.mark.timeout(900)  # a dozen interpreters start, and Spark twice
def test_the_tutorial_prints_what_it_shows(tmp_path: Path, domain: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_programs("tutorial/traffic-report.md", domain)
    run_sessions("tutorial/traffic-report.md", domain)


def test_every_page_about_spark_is_run() -> None:
    assert "how-to/spark.md" in OF_SPARK
