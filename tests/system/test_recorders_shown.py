"""Recorders in what commands print: `list`, `stats`, `top`, `monitor`, `export`, for people and as JSON."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest

import ipcbus
from ipcbus.stats import DomainSnapshot, counters_of, recorder_model
from tests.system.test_cli_numbers import QUICK, documents, run

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ipcbus.runtime.discovery.recorder_stats_block import RecorderStatsBlock

LOG = "/var/archive/host-1"
NUMBERS = {"messages": 12_345, "bytes": 5 << 20, "lost": 7, "dropped": 3, "next_offset": 99}
FULL = {"buffered_bytes": 3 << 20, "buffer_bytes": 4 << 20, "behind_ns": 2_000_000_000}


@pytest.fixture
def board(domain: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[RecorderStatsBlock]:
    monkeypatch.setattr(recorder_model, "SILENT_NS", 600_000_000_000)  # it shows its numbers once, for all commands
    with ipcbus.Context(name="recording", domain=domain) as ctx:
        made = ctx._recorder_stats_block(LOG)
        made.show(**NUMBERS, **FULL)
        yield made


def test_list(domain: str, board: RecorderStatsBlock) -> None:
    shown = run("list", "--domain", domain).output
    head, line = shown[shown.index("recorders\n") :].splitlines()[1:3]
    assert head.split()[0] == "recorder"
    assert line.startswith(LOG)
    for wanted in ("recording", "behind", "12,345", "5.0 MiB", "3.0 MiB (75%)"):
        assert wanted in line
    board.close()
    assert "recorders\n" not in run("list", "--domain", domain).output


def test_list_and_top_as_json(domain: str, board: RecorderStatsBlock) -> None:
    for arguments in (("list",), ("top", "--once", *QUICK)):
        (found,) = documents("snapshot", *arguments, "--domain", domain)
        (recorder,) = found["contexts"][0]["recorders"]
        assert (recorder["log"], recorder["doing"], recorder["fill"]) == (LOG, "behind", 0.75)
        assert NUMBERS.items() <= recorder["counters"].items()
        assert recorder["counters"]["behind_ns"] >= FULL["behind_ns"]
        assert set(recorder["per_second"]) in (set(), {row.name for row in counters_of("recorder") if row.grows})


def test_top_for_people(domain: str, board: RecorderStatsBlock) -> None:
    shown = run("top", "--once", *QUICK, "--domain", domain).output
    assert "recorder behind" in shown.splitlines()[2]
    assert re.search(rf"^  {LOG} +behind ", shown, re.MULTILINE)


def test_stats_by_the_path_of_the_log(domain: str, board: RecorderStatsBlock) -> None:
    (found,) = documents("stats", "stats", LOG, *QUICK, "--domain", domain)
    assert (found["source"], found["receivers"]) == (LOG, [])
    assert [line["name"] for line in found["counters"]] == [row.name for row in counters_of("recorder")]
    assert {line["of"] for line in found["counters"]} == {"recorder"}
    shown = run("stats", LOG, *QUICK, "--domain", domain).output
    assert re.search(r"messages +12,345 +0 +messages +Messages that the recorder", shown)
    missing = run("stats", LOG + "x", *QUICK, "--domain", domain)
    assert (missing.exit_code, "no session or topic" in missing.output) == (1, True)


def test_monitor_and_export(domain: str, board: RecorderStatsBlock, tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    assert run("monitor", "--log", str(path), *QUICK, "-n", "2", "--domain", domain).exit_code == 0
    last = DomainSnapshot.from_dict(json.loads(path.read_text().splitlines()[-1]))
    (recorder,) = last.contexts[0].recorders
    assert (recorder.log, recorder.per_second["messages"]) == (LOG, 0.0)
    exported = run("export", "--once", "--domain", domain).output
    assert re.search(rf'^ipcbus_recorder_dropped_total{{.*log="{LOG}"}} 3.0$', exported, re.MULTILINE)
    assert re.search(rf'^ipcbus_recorder_fill_ratio{{.*log="{LOG}"}} 0.75$', exported, re.MULTILINE)
