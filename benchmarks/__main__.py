"""`python -m benchmarks`: the budgets, measured beside the native limit of the same run.

Every figure is the median of interleaved runs in pinned processes. On a virtual machine two processors may lie near
each other or far apart, and change that while it runs; a cache line then takes several times as long. So the way of a
cache line is measured before and after each run, and the runs that met near processors are the ones that count, if
there are any. What Spark does with archives is measured last, in suites of their own on all processors.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import platform
import shlex
import statistics
import sys
from collections import defaultdict
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from benchmarks import native
from benchmarks.catching_up import CATCHING_UP
from benchmarks.guaranteed import GUARANTEED
from benchmarks.large import LARGE
from benchmarks.recording import RECORDING
from benchmarks.request_rows import REQUESTS
from benchmarks.rows import BUDGETS, RATIO_ROWS, Row, native_figures
from benchmarks.starting import STARTING
from benchmarks.udp_rows import HAS_ZMQ, UDP, WITHOUT_ZMQ
from ipcbus import ConfigError

SUITES: Final = ("read", "pipelines", "rollup")
"""Of Spark; see `benchmarks.spark`, which needs packages that the others do not."""

Results = dict[str, list[float]]
Runs = dict[str, list[tuple[float, bool]]]
"""Value of each run, and whether the processors lay near each other before and after it."""


def main() -> int:
    """Measures, prints a table, writes JSON if asked; exit status 1 when a budget is missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--runs", type=int, default=3, help="interleaved runs of each row (default 3)")
    parser.add_argument("--factor", type=float, default=1.0, help="amount of work of each run (default 1)")
    parser.add_argument("--only", default="", help="rows whose name contains this text; a suite is `Spark NAME`")
    parser.add_argument("--cold", action="store_true", help="Spark: no run that warms up, where one takes minutes")
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    arguments = parser.parse_args()
    if len(os.sched_getaffinity(0)) < 2:
        print("two processors are needed: one for the sender, one for the receivers", file=sys.stderr)
        return 2
    every = [*BUDGETS, *LARGE, *REQUESTS, *CATCHING_UP, *STARTING, *RECORDING, *GUARANTEED, *UDP]
    wanted = [row for row in every if arguments.only in row.name]
    peers = {row.beside for row in wanted}
    rows = [row for row in every if row in wanted or row.name in peers]
    report: dict[str, Any] = {"machine": machine()}
    if rows:
        limits, results = _measure(rows, arguments.runs, arguments.factor)
        _print(rows, limits, results, arguments.runs)
        report |= {"native": limits, "rows": results}
    suites = [name for name in SUITES if arguments.only in f"Spark {name}"]
    if suites:
        report["Spark"] = _spark(suites, arguments)
    if arguments.json:
        arguments.json.write_text(json.dumps(report, indent=2) + "\n")
    return 0


def _spark(suites: list[str], arguments: argparse.Namespace) -> dict[str, Any]:
    """Measures and prints some suites; where there is no Java, says so."""
    from ipcbus.spark.session import check_spark

    console = Console()
    try:
        check_spark()
    except ConfigError as error:
        console.print(f"not measured: {error}", highlight=False, markup=False)
        return {}
    from benchmarks import spark

    load = os.getloadavg()[0]
    figures = spark.measure(suites, factor=arguments.factor, runs=arguments.runs, warm_up=not arguments.cold)
    about = {**machine(), **spark.versions(), "load before": f"{load:.2f}"}
    for key, text in about.items():
        console.print(f"{key:11} {text}", highlight=False)
    console.print(spark.table(figures, arguments.runs))
    return {"about": about, "figures": [dataclasses.asdict(figure) for figure in figures]}


def machine(program: str = "benchmarks") -> dict[str, str]:
    """What was measured on, and how; `program` is the module that was run."""
    cpu = next(
        (
            line.split(":", 1)[1].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if "model name" in line
        ),
        platform.processor(),
    )
    packages = ("ipcbus", "numpy", "cython", *(("pyzmq",) if HAS_ZMQ else ()))
    return {
        "cpu": f"{cpu}, {os.cpu_count()} processors",
        "system": f"{platform.system()} {platform.release()}",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "versions": ", ".join(f"{name} {version(name)}" for name in packages),
        "command": shlex.join(["python", "-m", program, *sys.argv[1:]]),
    }


def _near() -> bool:
    return bool(native.run("pingpong", "200000")["round_trip_p50_ns"] < native.NEAR_LINE_NS)


def _measure(rows: list[Row], runs: int, factor: float) -> tuple[Results, Runs]:
    limits: Results = defaultdict(list)
    results: Runs = defaultdict(list)
    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("measuring", total=(runs + 1) * (len(rows) + 1))
        for run in range(runs + 1):
            for name, value in native_figures().items():
                limits[name].append(value)
            progress.advance(task)
            for row in rows:
                progress.update(task, description=row.name)
                # The first round warms the machine up; it does not count.
                before = _near()
                value = row.measure(factor if run else factor / 5)
                if run:
                    results[row.name].append((value, before and _near()))
                progress.advance(task)
    return dict(limits), dict(results)


def _print(rows: list[Row], limits: Results, results: Runs, runs: int) -> None:
    console = Console()
    for key, text in machine().items():
        console.print(f"{key:9} {text}", highlight=False)
    if not HAS_ZMQ and any(row in UDP for row in rows):
        console.print(WITHOUT_ZMQ, highlight=False, markup=False)
    median = {name: statistics.median(values) for name, values in limits.items()}
    values_of = {row.name: _counting(results[row.name]) for row in rows}
    line = ", ".join(f"{value:.0f}" for value in limits["line"])
    console.print(f"cache line there and back: {line} ns (near below 200, far above)", highlight=False)
    table = Table(title=f"64-byte messages unless said, two pinned processes, median of {runs} runs (min .. max)")
    for column in ("figure", "value", "range", "near", "native limit or peer", "ratio", "budget", "stretch", ""):
        table.add_column(column, justify="left" if column in ("figure", "") else "right")
    for row in rows:
        near = [value for value, is_near in results[row.name] if is_near]
        values = values_of[row.name]
        value = statistics.median(values)
        limit = statistics.median(values_of[row.beside]) if row.beside else median.get(row.native)
        judged = value / limit if limit and row.native in RATIO_ROWS else value
        table.add_row(
            row.name,
            _figure(value, row.unit),
            f"{_figure(min(values), '')} .. {_figure(max(values), '')}",
            f"{len(near)} of {runs}",
            _figure(limit, row.unit) if limit else "",
            f"{value / limit:.3g}" if limit else "",
            _figure(row.budget, "") if row.budget is not None else "",
            _figure(row.stretch, "") if row.stretch is not None else "",
            _verdict(row, judged),
        )
    console.print(table)


def _counting(found: list[tuple[float, bool]]) -> list[float]:
    """Of the runs that met near processors, or of all where there are none."""
    return [value for value, is_near in found if is_near] or [value for value, _ in found]


def _verdict(row: Row, value: float) -> str:
    def reached(goal: float | None) -> bool:
        return goal is not None and (value <= goal if row.smaller_is_better else value >= goal)

    if row.budget is None:
        return ""
    return "stretch" if reached(row.stretch) else "budget" if reached(row.budget) else "MISSED"


def _figure(value: float, unit: str) -> str:
    """Three digits and the unit, with M and G where they help; bytes by powers of 1024."""
    if unit.startswith("B"):
        for power, letter in ((30, "Gi"), (20, "Mi"), (10, "Ki")):
            if abs(value) >= 1 << power:
                return f"{value / (1 << power):.3g} {letter}{unit}"
    for size, letter in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if abs(value) >= size and unit != "ns":
            return f"{value / size:.3g}{letter}{unit}"
    return f"{value:.3g} {unit}".strip() if abs(value) < 1000 else f"{value:.0f} {unit}".strip()


if __name__ == "__main__":
    sys.exit(main())
