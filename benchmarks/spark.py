"""`python -m benchmarks.spark`: how fast Spark reads archives, and how soon it sees what is published.

A suite stands in a module of its own and is a function that yields figures. All share one Spark session on all
processors. Archives lie in memory where they fit, so that the disk is not what is measured.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import shutil
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rich.console import Console
from rich.table import Table

from benchmarks import spark_pipelines, spark_read, spark_rollup
from benchmarks.__main__ import machine
from benchmarks.spark_figures import Figure, Setting
from ipcbus.spark.session import session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

SUITES: Final[Mapping[str, Callable[[Setting], Iterator[Figure]]]] = {
    "read": spark_read.figures,
    "pipelines": spark_pipelines.figures,
    "rollup": spark_rollup.figures,
}
"""Name -> what measures."""

_MEMORY: Final = Path("/dev/shm")
_NEEDED: Final = 8 << 30


def main() -> int:
    """Measures, prints a table, writes JSON if asked."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark", description=__doc__)
    parser.add_argument("suites", nargs="*", metavar="SUITE", help=f"of {', '.join(SUITES)} (default all)")
    parser.add_argument("--factor", type=float, default=1.0, help="amount of work (default 1)")
    parser.add_argument("--runs", type=int, default=3, help="runs of each figure after one that warms up (default 3)")
    parser.add_argument("--cold", action="store_true", help="no run that warms up; where one takes minutes")
    parser.add_argument("--memory", default="4g", help="of the JVM (default 4g)")
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    arguments = parser.parse_args()
    unknown = sorted(set(arguments.suites) - set(SUITES))
    if unknown:
        parser.error(f"there is no suite {unknown[0]}; there are {', '.join(SUITES)}")
    roomy = _MEMORY.exists() and shutil.disk_usage(_MEMORY).free > _NEEDED * arguments.factor
    found: list[Figure] = []
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="ipcbus-bench-", dir=_MEMORY if roomy else None) as directory:
        confs = {"spark.ui.enabled": "false", "spark.driver.memory": arguments.memory, "spark.local.dir": directory}
        spark = session("benchmarks", confs={**confs, "spark.sql.warehouse.dir": f"{directory}/warehouse"})
        spark.sparkContext.setLogLevel("ERROR")
        about = {**machine("benchmarks.spark"), **_versions(), "load before": f"{load:.2f}"}
        for name in arguments.suites or SUITES:
            place = Path(directory, name)
            place.mkdir()
            for figure in SUITES[name](Setting(spark, place, arguments.factor, arguments.runs, not arguments.cold)):
                print(f"{figure.name}: {_shown(figure.value)} {figure.unit}", file=sys.stderr, flush=True)
                found.append(figure)
            shutil.rmtree(place)
        spark.stop()
    _print(found, about, arguments.runs)
    if arguments.json:
        rows = [dataclasses.asdict(figure) for figure in found]
        arguments.json.write_text(json.dumps({"machine": about, "figures": rows}, indent=2) + "\n")
    return 0


def _versions() -> dict[str, str]:
    java = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False).stderr.splitlines()
    packages = ", ".join(f"{name} {version(name)}" for name in ("pyspark", "pyarrow", "duckdb", "polars"))
    return {"spark": f"{packages}; {java[-1] if java else 'Java of JAVA_HOME'}"}


def _print(found: list[Figure], about: dict[str, str], runs: int) -> None:
    console = Console()
    for key, text in about.items():
        console.print(f"{key:11} {text}", highlight=False)
    table = Table(title=f"median of {runs} runs (min .. max)")
    for column in ("figure", "value", "range", "aim", ""):
        table.add_column(column, justify="left" if column in ("figure", "") else "right")
    for figure in found:
        reached = figure.aim is not None and (figure.value >= figure.aim) is not figure.smaller_is_better
        table.add_row(
            figure.name,
            f"{_shown(figure.value)} {figure.unit}",
            f"{_shown(min(figure.values))} .. {_shown(max(figure.values))}",
            "" if figure.aim is None else _shown(figure.aim),
            "" if figure.aim is None else "reached" if reached else "MISSED",
        )
    console.print(table)


def _shown(value: float) -> str:
    for size, letter in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if abs(value) >= size:
            return f"{value / size:.3g}{letter}"
    return f"{value:.3g}"


if __name__ == "__main__":
    sys.exit(main())
