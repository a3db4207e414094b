"""`python -m benchmarks`: what ipcbus reaches, beside the native limit of the same run.

Every figure is the median of interleaved runs in two pinned processes. On a virtual machine two processors may lie near
each other or far apart, and change that while it runs; a cache line then takes several times as long. So the way of a
cache line is measured before and after each run, and the runs that met near processors are the ones that count, if
there are any. With --all there are more tables, and what Spark does with archives, in suites of their own on all
processors.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import platform
import shlex
import sys
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rich.console import Console
from rich.progress import Progress

from benchmarks import groups, native, pages, peers, tables
from benchmarks.tcp_rows import OTHERS
from benchmarks.thread_rows import APPLIES, NEEDS_NO_LOCK
from benchmarks.udp_rows import HAS_ZMQ, UDP, WITHOUT_ZMQ
from ipcbus import ConfigError

if TYPE_CHECKING:
    from benchmarks.rows import Row

SUITES: Final = ("read", "pipelines", "rollup")
"""Of Spark; see `benchmarks.spark`, which needs packages that the others do not."""


def main() -> int:
    """Measures, prints tables, writes pages and JSON if asked; exit status 1 when something could not be measured."""
    arguments = _arguments()
    if len(os.sched_getaffinity(0)) < 2:
        print("two processors are needed: one for the sender, one for the receivers", file=sys.stderr)
        return 2
    wanted, suites = _wanted(arguments)
    report: dict[str, Any] = {"machine": machine()}
    failed = False
    if wanted:
        about = {**machine(), "load": f"{os.getloadavg()[0]:.2f} before"}
        begin = time.monotonic()
        rows = groups.with_limits([row for group in wanted for row in group.rows])
        figures = _measure(rows, arguments.runs, arguments.factor)
        minutes = (time.monotonic() - begin) / 60
        about["load"] += f", {os.getloadavg()[0]:.2f} after"
        about["runs"] = f"median of {arguments.runs} interleaved rounds, {minutes:.1f} minutes; {_nearness(figures)}"
        if groups.PEERS in wanted and peers.MISSING:
            about["not installed"] = ", ".join(peers.MISSING)
        about["pinned"] = "to processors {} and {}".format(*native.near_processors())
        _print(wanted, about, figures)
        report |= {"machine": about, "rows": {name: dataclasses.asdict(each) for name, each in figures.items()}}
        for page in arguments.markdown:
            replaced = tables.fill(page, pages.parts(wanted, about, figures))
            print(f"{page}: wrote {', '.join(replaced) or 'nothing, as it has no marks of what was measured'}")
        failed = any(each.failure for each in figures.values())
    if suites:
        report["Spark"] = _spark(suites, arguments)
    if arguments.json:
        arguments.json.write_text(json.dumps(report, indent=2) + "\n")
    return int(failed)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--runs", type=int, default=5, help="interleaved rounds of all rows (default 5)")
    parser.add_argument("--factor", type=float, default=1.0, help="amount of work of each run (default 1)")
    parser.add_argument(
        "--only", default="", help="rows whose name or table contains this text, of all tables; a suite is `Spark NAME`"
    )
    parser.add_argument("--peers", action="store_true", help="also other buses, in the same rounds")
    parser.add_argument("--all", action="store_true", help="every table, and Spark")
    parser.add_argument("--cold", action="store_true", help="Spark: no run that warms up, where one takes minutes")
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    parser.add_argument(
        "--markdown",
        type=Path,
        nargs="+",
        default=[],
        metavar="PAGE",
        help="write the tables between the marks of these pages, or to a new file",
    )
    return parser.parse_args()


def _wanted(arguments: argparse.Namespace) -> tuple[list[groups.Group], list[str]]:
    """The tables, and the suites of Spark."""
    if arguments.only:
        suites = [name for name in SUITES if arguments.only in f"Spark {name}"]
        return groups.picked(arguments.only, groups.EVERY), suites
    if arguments.all:
        return groups.EVERY, list(SUITES)
    return [*groups.MAIN, *(groups.BESIDE_PEERS if arguments.peers else [])], []


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
    zenoh = ["eclipse-zenoh"] if "zenoh" in OTHERS else []
    packages = ("ipcbus", "numpy", "cython", *peers.INSTALLED, *zenoh)
    return {
        "cpu": f"{cpu}, {os.cpu_count()} processors",
        "system": f"{platform.system()} {platform.release()}",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "versions": ", ".join(_version(name) for name in packages),
        "command": shlex.join(["python", "-m", program, *sys.argv[1:]]),
    }


def _version(package: str) -> str:
    try:
        return f"{package} {version(package)}"
    except PackageNotFoundError:
        return f"without {package}"  # Cython builds ipcbus; an installed wheel does not need it


def _near() -> bool:
    return bool(native.run("pingpong", "100000")["round_trip_p50_ns"] < native.NEAR_LINE_NS)


def _nearness(figures: tables.Figures) -> str:
    near = [each for figure in figures.values() for each in figure.near]
    return f"{sum(near)} of {len(near)} runs on near processors"


_INSTANT_S: Final = 0.01
_FAILURES: Final = 2
"""A row that has failed so often is not tried again."""


def _measure(rows: list[Row], runs: int, factor: float) -> tables.Figures:
    figures = {row.name: tables.Figure() for row in rows}
    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("measuring", total=(runs + 1) * len(rows))
        for run in range(runs + 1):
            begun = time.monotonic()
            before = _near()
            for row in rows:
                progress.update(task, description=row.name)
                progress.advance(task)
                begin = time.monotonic()
                figure = figures[row.name]
                if figure.failures == _FAILURES:
                    continue
                try:
                    # The first round warms the machine up; it does not count.
                    value = row.measure(factor if run else factor / 10)
                except (RuntimeError, OSError) as error:
                    figure.failure, figure.failures = f"not measured: {error}", figure.failures + 1
                else:
                    seconds = time.monotonic() - begin
                    # A figure of a run that gave others too costs no time, and was taken on the same processors.
                    after = _near() if seconds > _INSTANT_S else before
                    if run:
                        figure.values.append(value)
                        figure.near.append(before and after)
                        figure.seconds.append(seconds)
                    before = after
            name = f"round {run} of {runs}" if run else "the round that warms up"
            print(f"{name} took {time.monotonic() - begun:.0f} s", file=sys.stderr, flush=True)
    return figures


def _print(wanted: list[groups.Group], about: dict[str, str], figures: tables.Figures) -> None:
    for key, value in about.items():
        print(f"{key:9} {value}")
    if not HAS_ZMQ and any(row in UDP for group in wanted for row in group.rows):
        print(WITHOUT_ZMQ)
    if not APPLIES and any(group.key == "threads" for group in wanted):
        print(NEEDS_NO_LOCK)
    print("s: how many seconds a run takes, with the start of its processes\n")
    for group in wanted:
        print("\n".join(tables.text(group, figures)), end="\n\n")


if __name__ == "__main__":
    sys.exit(main())
