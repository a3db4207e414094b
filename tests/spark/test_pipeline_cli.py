"""`ipcbus pipeline` over archives: in the session of the tests, and as a process that is killed."""

from __future__ import annotations

import json
import math
import os
import select
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonschema
import psutil
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from benchmarks.traffic import Traffic, Truth
from ipcbus.archive import Archive
from ipcbus_tools.cli import cli
from ipcbus_tools.json_schemas import schema
from ipcbus_tools.pipeline import job_progress
from tests.kit.archives import add
from tests.unit.ipcbus.spark.pipelines.test_report_html import checked

if TYPE_CHECKING:
    from click.testing import Result
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.stress]

ROWS = 20_000


@pytest.fixture(scope="module")
def traffic(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Truth]:
    path = tmp_path_factory.mktemp("cli") / "archive"
    return path, Traffic(ROWS, topics=3, sessions=2, disturbances=300).write(path)


@pytest.fixture(scope="module", autouse=True)
def warm(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Opens what matplotlib keeps open, and keeps the session's JVM."""
    from ipcbus.spark.pipelines.report_html import page
    from tests.unit.ipcbus.spark.pipelines.test_report_html import full

    page(full(), "", "")


@pytest.fixture(autouse=True)
def no_progress_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """A job of more than ten seconds shows its progress on standard error, where the tests look for errors."""
    monkeypatch.setattr(job_progress, "LINE_S", math.inf)


def run(name: str, archive: Path, *arguments: str) -> Result:
    return CliRunner().invoke(cli, ["pipeline", name, "--archive", str(archive), *arguments])


def facts(result: Result, code: int = 0) -> dict[str, Any]:
    """What --json printed."""
    assert result.exit_code == code, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    jsonschema.validate(found, schema("pipeline"), jsonschema.Draft202012Validator)
    return found


def test_audit_shows_what_is_missing_and_fails(spark: SparkSession, traffic: tuple[Path, Truth]) -> None:
    path, truth = traffic
    result = run("audit", path)
    assert result.exit_code == 1
    assert f"{truth.missing:,} missing without a report" in result.stdout
    assert result.stderr == ""
    found = facts(run("audit", path, "--order", "--json"), 1)
    for name in ("messages", "missing", "duplicates", "late", "lost_bus", "lost_recorder"):
        assert found["audit"][name] == getattr(truth, name)
    assert spark.range(3).count() == 3  # it is still there


def test_throughput_of_some_topics_and_a_time(traffic: tuple[Path, Truth], tmp_path: Path) -> None:
    path, truth = traffic
    every = facts(run("throughput", path, "--json"))["throughput"]
    assert [line["topic"] for line in every] == [None, "topic_01", "topic_02", "topic_03"]
    assert every[0]["messages"] == truth.messages
    out = tmp_path / "out"
    some = facts(run("throughput", path, "--json", "--topic", "topic_0[13]", "--pattern", "--out", str(out)))
    assert some["throughput"][0]["messages"] == truth.messages - every[2]["messages"]
    assert some["out"] == str(out / "throughput")
    assert {each.name for each in (out / "throughput").iterdir()} == {"intervals", "totals"}
    middle = "2024-08-08T23:54:15.020"
    parts = [facts(run("throughput", path, "--json", side, middle))["throughput"] for side in ("--since", "--until")]
    assert all(part[0]["messages"] > 0 for part in parts)
    assert sum(part[0]["messages"] for part in parts) == truth.messages
    assert run("throughput", path, "--topic", "topic", "--since", "2030-01-01").stdout == "no messages\n"


def test_one_of_two_recorders(tmp_path: Path) -> None:
    archive = Archive.create(tmp_path / "archive")
    for stream, count in (("one", 5), ("two", 7)):
        with archive.writer(stream) as writer:
            add(writer, [b"x"] * count)
    result = run("throughput", archive.path, "--json")
    assert facts(result)["throughput"][0]["messages"] == 12
    assert result.stderr.startswith("note: more than one log has session ")
    for name in ("throughput", "latency", "audit"):
        result = run(name, archive.path, "--json", "--partition", "1")
        found = facts(result)
        counts = found["audit"] if name == "audit" else found[name][0]
        assert counts["messages"] + counts.get("unstamped", 0) == 7
        assert result.stderr == ""


def test_report(traffic: tuple[Path, Truth], tmp_path: Path) -> None:
    path, truth = traffic
    found = facts(run("report", path, "--json", "--out", str(tmp_path)))
    assert found["throughput"][0]["messages"] == truth.messages
    assert found["audit"]["missing"] == truth.missing
    assert [line["unstamped"] for line in found["latency"] if line["topic"] is None] == [truth.unstamped]
    reader = checked(Path(found["report"]).read_text())
    assert sum(tag == "svg" for tag, _ in reader.seen) == 2
    assert "Messages are missing" in reader.text
    assert f"{truth.messages:,}" in reader.text
    assert sorted(each.name for each in tmp_path.iterdir()) == ["audit", "latency", "report.html", "throughput"]


def test_report_of_a_feed(tmp_path: Path) -> None:
    archive = Archive.create(tmp_path / "archive")
    with archive.writer("host") as writer:
        for number in range(60):
            trade = {"e": "trade", "s": "COIN", "T": 10**12 + number * 100, "t": number, "p": "5.25", "q": "2"}
            quote = {"s": "COIN", "u": number, "b": "5", "B": "1", "a": "6", "A": "1", "T": 10**12 + number * 100}
            for topic, data in (("trades", trade), ("quotes", quote)):
                value = json.dumps({"stream": topic, "data": data}).encode()
                add(writer, [value], topic=topic, first=number, time_ns=10**18 + number * 10**8)
        add(writer, [b"\xff\x00"], topic="other")
    found = facts(run("report", archive.path, "--json", "--out", str(tmp_path / "out")))
    reader = checked(Path(found["report"]).read_text())
    assert sum(tag == "svg" for tag, _ in reader.seen) == 2  # no time of sending, so no latency
    assert "COIN, trades" in reader.text
    assert found["quotes"] > 0
    rolled = facts(run("rollup", archive.path, "--json", "--interval", "2s"))
    (bar,) = rolled["bars"]
    assert (bar["symbol"], bar["bars"], bar["trades"], bar["high"]) == ("COIN", 3, 60, "5.25000000")
    assert float(bar["volume"]) == 120


def test_compact(traffic: tuple[Path, Truth], tmp_path: Path) -> None:
    path, truth = traffic
    found = facts(run("compact", path, "--json", "--out", str(tmp_path)))
    assert (found["rows"], found["files"]) == (truth.messages, 1)
    assert "batchWaitNs" in pq.read_schema(next((tmp_path / "compact").rglob("*.parquet"))).names
    with_events = facts(run("compact", path, "--json", "--events", "--out", str(tmp_path)))
    assert with_events["rows"] > truth.messages
    (tmp_path / "compact" / "mine").write_text("")
    result = run("compact", path, "--out", str(tmp_path))
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert "holds 'mine'" in result.stderr


def test_damaged_archive_is_one_line(tmp_path: Path) -> None:
    archive = Archive.create(tmp_path / "archive")
    with archive.writer("host") as writer:
        add(writer, [b"x" * 100] * 50)
    data = next(archive.path.glob("host/*/*.idx"))
    data.write_bytes(bytes(byte ^ 1 for byte in data.read_bytes()))
    result = run("throughput", archive.path)
    assert (result.exit_code, result.stderr.count("\n")) == (1, 1)
    assert "ipcbus archive verify" in result.stderr
    assert "Traceback" not in result.output
    found = facts(run("audit", archive.path, "--json"))
    assert (found["audit"]["lost_repair"], found["audit"]["verdict"]) == (50, "lost")


# ------------------------------------------------------------------------------------ as a process


def start(archive: Path, out: Path) -> subprocess.Popen[str]:
    """A stream that goes on, in a group of processes of its own."""
    arguments = ["--out", str(out), "--stream", "--checkpoint", str(out / "checkpoint"), "--every", "0.1", "--json"]
    few = ["--master", "local[2]", "--conf", "spark.driver.memory=1g"]
    return subprocess.Popen(
        [sys.executable, "-m", "ipcbus_tools", "pipeline", "throughput", "--archive", str(archive), *arguments, *few],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


@pytest.mark.long
def test_killed_stream_counts_everything_once_and_ends_when_it_is_told_to(
    traffic: tuple[Path, Truth], tmp_path: Path
) -> None:
    path, truth = traffic
    first = start(path, tmp_path)
    try:
        # Its first micro-batch is on its way, wherever that is.
        wait_for(tmp_path / "throughput" / "_parts" / "_stream", first)
    finally:
        os.killpg(first.pid, signal.SIGKILL)
        first.communicate()
    again = start(path, tmp_path)
    try:
        wait_for(tmp_path / "checkpoint" / "commits" / "0", again)
        below = psutil.Process(again.pid).children(recursive=True)
        assert any(each.name() == "java" for each in below)
        again.send_signal(signal.SIGINT)
        shown, said = again.communicate()
    except BaseException:
        os.killpg(again.pid, signal.SIGKILL)
        raise
    assert (again.returncode, said) == (130, "")
    total = json.loads(shown)["throughput"][0]
    assert (total["messages"], total["bytes"]) == (truth.messages, truth.bytes)
    assert not [each for each in below if each.is_running() and each.status() != psutil.STATUS_ZOMBIE]


@pytest.mark.long
def test_a_report_that_a_whole_group_of_processes_is_told_to_end(traffic: tuple[Path, Truth], tmp_path: Path) -> None:
    """As `timeout` and systemd do it: the JVM ends by itself then."""
    path, _ = traffic
    arguments = ["--out", str(tmp_path / "out"), "--master", "local[2]", "--conf", "spark.driver.memory=1g"]
    process = subprocess.Popen(
        [sys.executable, "-m", "ipcbus_tools", "pipeline", "report", "--archive", str(path), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        wait_for(tmp_path / "out", process)
        below = psutil.Process(process.pid).children(recursive=True)
        assert any(each.name() == "java" for each in below)
        os.killpg(process.pid, signal.SIGTERM)
        shown, said = process.communicate()
    except BaseException:
        os.killpg(process.pid, signal.SIGKILL)
        raise
    lines = [line for line in said.splitlines() if " s" not in line]  # without those that say how far it is
    assert (process.returncode, shown) == (143, "")
    assert lines == ["stopped by SIGTERM: report has no result; run it again"]
    assert not [each for each in below if each.is_running() and each.status() != psutil.STATUS_ZOMBIE]


def wait_for(path: Path, process: subprocess.Popen[str]) -> None:
    """Returns when a file is there; fails when the process that makes it has ended."""
    while not path.exists():
        assert process.poll() is None, process.communicate()
        assert process.stderr is not None
        select.select([process.stderr], [], [], 0.05)
