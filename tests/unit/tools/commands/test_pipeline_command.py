"""`ipcbus pipeline` as far as it goes without Spark: wrong use, what is missing, errors, what is printed."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner
from rich.console import Console

from ipcbus_tools.cli import cli
from ipcbus_tools.commands import pipeline_command
from ipcbus_tools.pipeline.pipeline_output import (
    AuditLine,
    AuditSummary,
    PipelineRun,
    SymbolBars,
    TopicLatency,
    TopicTotals,
    show,
)
from ipcbus_tools.pipeline.spark_job import cause
from tests.kit.cases import each_of
from tests.kit.records import append, counted

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("nothing",), "is not one of"),
        (("audit",), "--archive"),
        (("compact", "--archive", "a"), "compact needs a directory for its results; name one with --out"),
        (("report", "--archive", "a"), "report needs a directory"),
        (("audit", "--archive", "a", "--incremental", "--checkpoint", "c"), "audit needs a directory"),
        (("audit", "--archive", "a", "--incremental", "--out", "o"), "name one with --checkpoint"),
        (("report", "--archive", "a", "--stream", "--out", "o"), "a report cannot be incremental"),
        (("audit", "--archive", "a", "--every", "5"), "are for --incremental"),
        (("audit", "--archive", "a", "--checkpoint", "c"), "are for --incremental"),
        (
            ("audit", "--archive", "a", "--stream", "--checkpoint", "c", "--out", "o", "--until", "2026-01-01"),
            "contradict each other",
        ),
        (("audit", "--archive", "a", "--since", "yesterday"), "is not a time; give one such as 2026-01-31T09:30"),
        (("audit", "--archive", "a", "--conf", "memory"), "is not a setting of Spark; give spark.NAME=VALUE"),
        (("throughput", "--archive", "a", "--interval", "1"), "is not a valid interval"),
        (("latency", "--archive", "a", "--interval", "1s"), "changes nothing in latency, it is for throughput"),
        (("rollup", "--archive", "a", "--order"), "--order changes nothing in rollup, it is for audit and report"),
        (("audit", "--archive", "a", "--events"), "--events changes nothing in audit, it is for compact"),
        (("audit", "--archive", "a", "--pattern"), "--pattern says how to read --topic; name a topic"),
    ],
)
def test_wrong_use(arguments: tuple[str, ...], text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(cli, ["pipeline", *arguments])
    assert result.exit_code == 2
    assert text in result.stderr


def test_no_archive(tmp_path: Path) -> None:
    result = CliRunner().invoke(cli, ["pipeline", "audit", "--archive", str(tmp_path)])
    assert (result.exit_code, result.stderr.count("\n")) == (1, 1)
    assert f"{tmp_path} on host" in result.stderr
    assert "is not an archive" in result.stderr


def test_no_pyspark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline_command, "find_spec", lambda _: None)
    result = CliRunner().invoke(cli, ["pipeline", "audit", "--archive", "a"])
    assert (result.exit_code, result.stderr) == (
        1,
        "error: ipcbus pipeline needs pyspark; in a clone of ipcbus: pip install '.[spark]'\n",
    )


def test_no_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from ipcbus.archive import Archive

    Archive.create(tmp_path / "archive")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    result = CliRunner().invoke(cli, ["pipeline", "audit", "--archive", str(tmp_path / "archive")])
    assert (result.exit_code, result.stderr.count("\n")) == (1, 1)
    assert "Spark needs Java" in result.stderr
    assert "openjdk-17-jre-headless" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "noted"),
    [(("throughput",), True), (("throughput", "--partition", "1"), False), (("audit",), False)],
)
def test_two_recorders_of_one_session_are_noted(
    arguments: tuple[str, ...], noted: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ipcbus.archive import Archive

    archive = Archive.create(tmp_path / "archive")
    for stream in ("one", "two"):
        with archive.writer(stream) as writer:
            append(writer, counted(1))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    result = CliRunner().invoke(cli, ["pipeline", *arguments, "--archive", str(archive.path)])
    assert "Spark needs Java" in result.stderr
    assert ("more than one log has session LBT-IPC:" in result.stderr) is noted
    assert ("choose a log with --partition" in result.stderr) is noted


@each_of(
    ("text", "name", "line"),
    [
        (
            "[X] task\nTraceback:\nipcbus.errors.ArchiveDamaged: log a/0: bad\n\tat java",
            "ArchiveDamaged",
            "log a/0: bad",
        ),
        ("x\nTraceback\n  File\nValueError: wrong\n", "", "wrong"),
        (
            "An error occurred.\n: org.x.Y: z\n\tat a\nCaused by: java.io.IOException: no space left\n",
            "",
            "no space left",
        ),
        ("[PATH_NOT_FOUND] Path does not exist: a.\n   at b", "", "[PATH_NOT_FOUND] Path does not exist: a."),
        ("", "", "RuntimeError"),
        ("x" * 5000, "", "x" * 500),
    ],
)
def test_cause(text: str, name: str, line: str) -> None:
    assert cause(RuntimeError(text)) == (name, line)


def test_what_is_shown() -> None:
    console = Console(file=io.StringIO(), width=200)
    show(
        console,
        PipelineRun(
            *("report", "/traffic", "0" * 32, 1.5, "/out", "/out/report.html"),
            throughput=(TopicTotals(None, 3, 1234, 2048, 5, 5, 0.0, None, None, 1.0),),
            latency=(
                TopicLatency("t\x1b[31m", 7, 1, 0, 9, 1500, 1500, 1500, 1500, 2_000_000, 6, 31.2e6, 30, 62_500_000, 70),
            ),
            audit=AuditSummary(2, 5, 5, 3, 1, 0, 6, 0, 0, 1, 0, None, 0, "missing"),
            account=(AuditLine(0, "", 7, "", None, None, 5, 5, 3, 0, 0, 6, 0, 0, 1, 0, None, 0, 1, "missing"),),
            bars=(SymbolBars("COIN", "t", 1, 1, 2, "1.5", "2.5", "2.0", "7"),),
            quotes=4,
            rows=1,
            files=2,
            bytes=3,
        ),
    )
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert "\x1b" not in shown
    for text in (
        "(all)",
        "1,234",
        "2.0 KiB",
        "1.5 us",
        "2 ms",
        "31.2 ms",
        "62.5 ms",
        "unknown",
        "COIN",
        "4 intervals with bid and ask",
    ):
        assert text in shown
    assert "missing: 5 messages, 2 topics of sessions, 4 lost, 6 missing without a report" in shown
    assert "1 row in 2 files, 3 B" in shown
    assert shown.endswith("report: /out/report.html\nresults: /out\n")


def test_nothing_is_shown_as_nothing() -> None:
    console = Console(file=io.StringIO(), width=200)
    audit = AuditSummary(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, "complete")
    show(console, PipelineRun("report", "/a", "0", 0.1, throughput=(), latency=(), audit=audit, account=()))
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert shown == "no messages\ncomplete: 0 messages, 0 topics of sessions, nothing lost\n"


@pytest.mark.parametrize(("damaged", "besides"), [(0, ", 2,000 unreadable besides"), (2000, "")])
def test_messages_that_only_a_repair_lost_are_named(damaged: int, besides: str) -> None:
    console = Console(file=io.StringIO(), width=200)
    audit = AuditSummary(2, 0, 0, 0, 0, 2000, 0, damaged, 0, 0, 0, 0, 0, "lost")
    account = (
        AuditLine(0, "", 0, "", None, None, 0, 0, 0, 0, 2000, 0, 0, 0, 0, 0, 0, 0, 0, "lost"),
        AuditLine(0, "LBT-IPC:1:2", 7, "t", 0, 1, 0, 0, 0, 0, 0, 0, damaged, 0, 0, 0, 0, 0, 1, "lost"),
    )
    show(console, PipelineRun("audit", "/a", "0", 0.1, audit=audit, account=account))
    sentence = console.file.getvalue().splitlines()[-1]  # type: ignore[attr-defined]
    found = f", {damaged:,} damaged" if damaged else ""
    assert sentence == f"lost: 0 messages, 1 topic of sessions{found}{besides}"
