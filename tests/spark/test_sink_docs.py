"""The examples of the page about the sink run."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

import ipcbus
from tests.kit.sink_taker import alone
from tests.unit.sources import ROOT

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

PAGE = ROOT / "docs" / "how-to" / "spark-sink.md"


def test_examples_run(spark: SparkSession, domain: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = PAGE.read_text().replace('domain="demo"', f'domain="{domain}"')
    # Processes of Spark leave the bus at once, so that the next look finds nothing of the test.
    text = text.replace('"domain", "demo"', f'"linger", "1ms").option("domain", "{domain}"')
    text = text.replace('"domain": "demo"', f'"linger": "1ms", "domain": "{domain}"')
    assert "demo" not in text
    names: dict[str, Any] = {}
    with ipcbus.Context(domain=domain) as watching:
        for number, example in enumerate(re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL), 1):
            exec(compile(example, f"spark-sink.md, example {number}", "exec"), names)
        alone(watching)
    assert names["spark"] is spark
    headers = [
        ("ipcbus.query", "q"),
        ("ipcbus.batch", "0"),
        ("ipcbus.partition", "0"),
        ("ipcbus.row", "0"),
        ("own", "x"),
    ]
    others = [*headers[:3], ("ipcbus.row", "1")]
    rows = [("t", headers), ("t", [*headers, ("ipcbus.possible_duplicate", "1")]), ("t", others), ("u", headers)]
    frame = spark.createDataFrame(rows, "topic string, headers array<struct<key string, value string>>")
    assert names["without_doubles"](frame).count() == 3
