from __future__ import annotations

import dataclasses
import sys
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest

from ipcbus.archive import Segment
from ipcbus.archive.export_result import Exported, Missing
from ipcbus.archive.repair import Repair
from ipcbus.archive.verify import Finding
from ipcbus.stats import COUNTERS
from ipcbus.stats.serialization import to_plain
from ipcbus_tools import json_schemas
from ipcbus_tools.commands import delay_command, info_command, stats_command
from ipcbus_tools.commands.archive_export_command import Export
from ipcbus_tools.commands.gmd_agent_command import ForgetResult, ResendResult
from ipcbus_tools.doctor.diagnosis import Check, Diagnosis, Leftover, OtherLayout, Unreadable
from ipcbus_tools.gmd_agent import AgentEvent
from ipcbus_tools.pipeline.pipeline_output import (
    AuditLine,
    AuditSummary,
    PipelineRun,
    SymbolBars,
    TopicLatency,
    TopicTotals,
)
from ipcbus_tools.rates import topic_rate
from ipcbus_tools.render.archive_output import (
    ArchiveInfo,
    BatchWait,
    CursorAt,
    CursorInfo,
    Findings,
    LogInfo,
    Repairs,
    TopicInfo,
)
from ipcbus_tools.render.gmd_output import (
    AreaContent,
    AreaDamage,
    AreaInfo,
    AreaList,
    AreaMessage,
    AreaRepair,
    AreaStream,
    AreaVerification,
    NumberRange,
)
from tests.kit.cases import each_of
from tests.unit.tools.top.recorded import FAST, FEED, SLOW, TRADING, UDP

if TYPE_CHECKING:
    from pathlib import Path

EACH = each_of("name", json_schemas.DOCUMENTS)
SESSION = TRADING.session(SLOW)
OVER_UDP = UDP.session(FEED)
AREA = AreaInfo(
    *("/gmd/gateway/orders/receiver", "receiver", "settlement", "orders", "default", "00ff", "", 1, 1, 2, 3, 4, None),
    missing=(NumberRange(1, 2),),
    receivers=("settlement",),
    streams=(AreaStream("gateway", "00ff", 5, (NumberRange(7, 8),)),),
    damaged=0,
)
MESSAGE = AreaMessage(1, "all", 2, 0, 0, 5)
assert SESSION is not None
assert OVER_UDP is not None


def rated() -> topic_rate.TopicFlow:
    meter = topic_rate.TopicMeter("quotes.AAPL", 10)
    meter.add(TRADING)
    return meter.add(TRADING)


def counted(kind: type[Any], **given: object) -> Any:  # noqa: ANN401 - an instance of that kind
    """A record whose counts are 0."""
    return kind(**{field.name: given.get(field.name, 0) for field in dataclasses.fields(kind)})


RECORDED: dict[str, Any] = {
    "snapshot": TRADING.to_dict(),
    "info": info_command.SessionInfo.of(TRADING, SESSION).to_dict(),
    "stats": to_plain(stats_command.counters_of(TRADING, SESSION)),
    "rate": to_plain(rated()),
    "delay": to_plain(delay_command.delays(TRADING, "quotes.AAPL")),
    "archive-info": to_plain(
        ArchiveInfo(
            "/traffic",
            "0" * 32,
            1,
            (
                LogInfo(
                    *("feed/0", "feed", 0, "", 0, 1, 1, 1, 400, 5, 5, 1, 7),
                    batch_wait=BatchWait(1, 1, 16.0, 16),
                    **dict.fromkeys(("holes", "missing", "damaged"), 0),
                    topics=(TopicInfo("t", None, None, None, None),),
                    sessions=(FAST,),
                    segments=(Segment(0, 1, 1, 400, True, 5, 5, 1, 7, 0, 0),),
                ),
            ),
            (CursorInfo("spark", 1, (CursorAt("feed/0", 0, 1, 0), CursorAt("x/1", 0, None, None)), ""),),
        )
    ),
    "archive-verify": to_plain(Findings("/traffic", "0" * 32, (Finding("names", 0, "feed/0", None, None, "torn"),))),
    "archive-repair": to_plain(Repairs("/traffic", "0" * 32, (Repair("names", "feed/0", "cut"),))),
    "archive-export": to_plain(
        Export(
            "/traffic", "0" * 32, (Exported("/t.parquet", 1, 2),), (Missing("f/0", None, None, "why", damaged=True),)
        )
    ),
    "gmd-list": to_plain(AreaList("/gmd", (AREA,))),
    "gmd-show": to_plain(AreaContent(AREA, (MESSAGE,))),
    "gmd-tail": to_plain(MESSAGE),
    "gmd-verify": to_plain(AreaVerification("/gmd", (NumberRange(1, 2),), (AreaDamage("/gmd/area", 1, 2, "why"),))),
    "gmd-repair": to_plain(AreaRepair("/gmd", 1, 2, (NumberRange(1, 2),))),
    "gmd-agent": to_plain(AgentEvent(1, "opened", "/gmd", 2, 0, "2 pending")),
    "gmd-resend": to_plain(ResendResult("/gmd", 1, 2, 0)),
    "gmd-forget": to_plain(ForgetResult("/gmd", "settlement", ("billing",), 2)),
    "gmd-purge": to_plain(AREA),
    "pipeline": to_plain(
        PipelineRun(
            *("report", "/traffic", "0" * 32, 1.5, "/out", "/out/report.html"),
            throughput=(TopicTotals(None, 1, 1, 10, 5, 5, 0.0, None, None, 1.0),),
            latency=(TopicLatency("t", 0, 1, 0, None, None, None, None, None, None, 0, None, None, None, None),),
            audit=counted(AuditSummary, late=None, verdict="complete"),
            account=(counted(AuditLine, source=FAST, topic="t", first=None, last=None, late=None, verdict="missing"),),
            bars=(SymbolBars(None, "t", 1, 1, 2, "1.5", "2.5", "2.0", "7"),),
        )
    ),
    "doctor": to_plain(
        Diagnosis(
            *("findings", 1, "host", "6.18", "3.11", "0.1.0", 1, "me", 1, ("d",)),
            checks=(Check("clock", "ok", "tsc"),),
            leftovers=(Leftover("d", 1, 0, "root", 4, 4096, 1.5, True, "", ""),),
            other_layouts=(OtherLayout("d", 1, 2, 0, "root", "0.0", 2, 1, "restart it"),),
            unreadable=(Unreadable("d", 1, FAST, 2, 0, "root", "no permission", "be root"),),
            reclaimed_objects=4,
            reclaimed_bytes=4096,
        )
    ),
    "echo": {
        **{"type": "BOS", "topic": "t", "source": FAST, "sequence_number": -1, "first_sequence_number": -1},
        **{"flags": 0, "send_time_ns": 0},
    },
}


def objects(found: Any) -> list[dict[str, Any]]:  # noqa: ANN401 - JSON
    """All objects in a document."""
    if isinstance(found, list):
        return [each for item in found for each in objects(item)]
    if isinstance(found, dict):
        return [found, *(each for item in found.values() for each in objects(item))]
    return []


def kinds(found: Any, place: str = "") -> dict[tuple[str, ...], dict[str, Any]]:  # noqa: ANN401 - JSON
    """One object of each kind in a document: those of one list that have the same fields are of one kind."""
    if isinstance(found, list):
        return {kind: each for item in found for kind, each in kinds(item, f"{place}[]").items()}
    if isinstance(found, dict):
        inner = {kind: each for key, item in found.items() for kind, each in kinds(item, f"{place}.{key}").items()}
        return {(place, *sorted(found)): found, **inner}
    return {}


@EACH
def test_is_a_schema(name: str) -> None:
    jsonschema.Draft202012Validator.check_schema(json_schemas.schema(name))


@EACH
def test_recorded_documents_fit(name: str) -> None:
    jsonschema.validate(RECORDED[name], json_schemas.schema(name), jsonschema.Draft202012Validator)


@pytest.mark.parametrize(
    ("name", "document"),
    [
        ("snapshot", UDP.to_dict()),
        ("info", info_command.SessionInfo.of(UDP, OVER_UDP).to_dict()),
        ("stats", to_plain(stats_command.counters_of(UDP, OVER_UDP))),
        ("delay", to_plain(delay_command.delays(UDP, "quotes.AAPL"))),
    ],
)
def test_sessions_over_udp_fit(name: str, document: object) -> None:
    jsonschema.validate(document, json_schemas.schema(name), jsonschema.Draft202012Validator)


@EACH
def test_a_field_more_or_less_does_not_fit(name: str) -> None:
    validator = jsonschema.Draft202012Validator(json_schemas.schema(name))
    counters = {row.name for row in COUNTERS}
    for found in kinds(RECORDED[name]).values():
        if name == "delay" and found is RECORDED[name]["unreadable"]:
            continue  # its names are source strings
        found["undocumented"] = 1
        assert not validator.is_valid(RECORDED[name])
        del found["undocumented"]
        if found and not set(found) <= counters:
            key = next(iter(found))
            kept = found.pop(key)
            assert not validator.is_valid(RECORDED[name]), key
            found[key] = kept


def test_every_field_is_described() -> None:
    for name in json_schemas.DOCUMENTS:
        for found in objects(json_schemas.schema(name)):
            if found.get("type") == "object":
                assert all(field["description"] for field in found.get("properties", {}).values())


def test_files_are_current(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["schema", "--check"])
    json_schemas.main()
    assert "doctor.json is current" in capsys.readouterr().out


def test_check_refuses_what_differs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_schemas, "FOLDER", tmp_path / "schema")
    monkeypatch.setattr(sys, "argv", ["schema"])
    json_schemas.main()
    monkeypatch.setattr(sys, "argv", ["schema", "--check"])
    json_schemas.main()
    (tmp_path / "schema" / "more.json").write_text("{}")
    with pytest.raises(SystemExit, match="more.json belongs to no type"):
        json_schemas.main()
    (tmp_path / "schema" / "more.json").unlink()
    (tmp_path / "schema" / "rate.json").write_text("{}")
    with pytest.raises(SystemExit, match="rate.json does not match"):
        json_schemas.main()
