"""How fast Spark reads archives, how soon it sees what is published, and the pipelines beside other engines.

A suite stands in a module of its own and is a function that yields figures. All share one Spark session on all
processors. Archives lie in memory where they fit, so that the disk is not what is measured.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rich.table import Table

from benchmarks import spark_pipelines, spark_read, spark_rollup
from benchmarks.spark_figures import Figure, Setting
from ipcbus.spark.session import session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

SUITES: Final[Mapping[str, Callable[[Setting], Iterator[Figure]]]] = {
    "read": spark_read.figures,
    "pipelines": spark_pipelines.figures,
    "rollup": spark_rollup.figures,
}
"""Name -> what measures."""

_MEMORY: Final = Path("/dev/shm")
_NEEDED: Final = 8 << 30
_JVM: Final = "4g"


def measure(suites: Sequence[str], *, factor: float, runs: int, warm_up: bool) -> list[Figure]:
    """Measures; tells each figure as soon as it is there.

    Args:
        suites: names of `SUITES`.
        factor: amount of work.
        runs: of each figure.
        warm_up: whether a run that does not count goes before them.
    """
    roomy = _MEMORY.exists() and shutil.disk_usage(_MEMORY).free > _NEEDED * factor
    found: list[Figure] = []
    with tempfile.TemporaryDirectory(prefix="ipcbus-bench-", dir=_MEMORY if roomy else None) as directory:
        confs = {"spark.ui.enabled": "false", "spark.driver.memory": _JVM, "spark.local.dir": directory}
        spark = session("benchmarks", confs={**confs, "spark.sql.warehouse.dir": f"{directory}/warehouse"})
        spark.sparkContext.setLogLevel("ERROR")
        for name in suites:
            place = Path(directory, name)
            place.mkdir()
            for figure in SUITES[name](Setting(spark, place, factor, runs, warm_up)):
                print(f"{figure.name}: {_shown(figure.value)} {figure.unit}", file=sys.stderr, flush=True)
                found.append(figure)
            shutil.rmtree(place)
        spark.stop()
    return found


def versions() -> dict[str, str]:
    """What was measured."""
    java = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False).stderr.splitlines()
    packages = ", ".join(f"{name} {version(name)}" for name in ("pyspark", "pyarrow", "duckdb", "polars"))
    return {"spark": f"{packages}; {java[-1] if java else 'Java of JAVA_HOME'}"}


def table(found: list[Figure], runs: int) -> Table:
    """The figures for people."""
    table = Table(title=f"Spark on all processors, median of {runs} runs (min .. max)")
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
    return table


def _shown(value: float) -> str:
    for size, letter in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if abs(value) >= size:
            return f"{value / size:.3g}{letter}"
    return f"{value:.3g}"
