"""The schemas of what commands print with --json, generated from the types that they print.

`python -m ipcbus_tools.json_schemas` writes docs/reference/schema/ in a checkout; with `--check` it only compares.
"""

from __future__ import annotations

import json
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NotRequired

from ipcbus.archive.export_result import Exported, Missing
from ipcbus.stats import DomainSnapshot, Histogram, RecorderStats, counters_of
from ipcbus.stats.snapshot_model import Rates, SessionStats
from ipcbus.stats.statistics_reference import TYPE_OF, meanings
from ipcbus_tools.commands.archive_export_command import Export
from ipcbus_tools.commands.delay_command import TopicDelay
from ipcbus_tools.commands.echo_command import EchoLine
from ipcbus_tools.commands.gmd_agent_command import ForgetResult, ResendResult
from ipcbus_tools.commands.info_command import SessionInfo
from ipcbus_tools.commands.stats_command import SessionCounters
from ipcbus_tools.doctor.diagnosis import Diagnosis
from ipcbus_tools.gmd_agent import AgentEvent
from ipcbus_tools.pipeline.pipeline_output import PipelineRun
from ipcbus_tools.rates.topic_rate import TopicFlow
from ipcbus_tools.render.archive_output import ArchiveInfo, Findings, Repairs
from ipcbus_tools.render.gmd_output import (
    AreaContent,
    AreaInfo,
    AreaList,
    AreaMessage,
    AreaRepair,
    AreaVerification,
)
from ringbuf import codegen

FOLDER: Final = Path(__file__).parents[1] / "docs" / "reference" / "schema"

DOCUMENTS: Final[dict[str, tuple[type, str]]] = {
    "snapshot": (DomainSnapshot, "A line of `ipcbus top --json`, and what `ipcbus list --json` prints."),
    "info": (SessionInfo, "What `ipcbus info SESSION --json` prints."),
    "stats": (SessionCounters, "What `ipcbus stats SESSION --json` prints."),
    "rate": (TopicFlow, "A line of `ipcbus hz TOPIC --json` and of `ipcbus bw TOPIC --json`."),
    "delay": (TopicDelay, "A line of `ipcbus delay TOPIC --json`."),
    "archive-info": (ArchiveInfo, "What `ipcbus archive info ARCHIVE --json` prints."),
    "archive-verify": (Findings, "What `ipcbus archive verify ARCHIVE --json` prints."),
    "archive-repair": (Repairs, "What `ipcbus archive repair ARCHIVE --json` prints."),
    "archive-export": (Export, "What `ipcbus archive export ARCHIVE --json` prints."),
    "gmd-list": (AreaList, "What `ipcbus gmd list --json` prints."),
    "gmd-show": (AreaContent, "What `ipcbus gmd show AREA --json` prints."),
    "gmd-tail": (AreaMessage, "A line of `ipcbus gmd show AREA --tail --json`."),
    "gmd-verify": (AreaVerification, "What `ipcbus gmd verify AREA --json` prints."),
    "gmd-repair": (AreaRepair, "What `ipcbus gmd repair AREA --json` prints."),
    "gmd-agent": (AgentEvent, "A line of `ipcbus gmd agent --json`."),
    "gmd-resend": (ResendResult, "What `ipcbus gmd resend AREA --json` prints."),
    "gmd-forget": (ForgetResult, "What `ipcbus gmd forget AREA RECEIVER --json` prints."),
    "gmd-purge": (AreaInfo, "What `ipcbus gmd purge AREA --json` prints."),
    "pipeline": (PipelineRun, "What `ipcbus pipeline NAME --json` prints."),
    "doctor": (Diagnosis, "What `ipcbus doctor --json` prints."),
    "echo": (EchoLine, "A line of `ipcbus echo TOPIC --json`."),
}
"""The type behind each schema, and its title, which names the commands that print it."""

Schema = dict[str, Any]

_DRAFT = "https://json-schema.org/draft/2020-12/schema"
_PLAIN: Final = {str: "string", int: "integer", float: "number", bool: "boolean"}
_KIND_OF: Final = {kind: of for of, kind in TYPE_OF.items()}
_NAMES: Final = {each.__name__: each for each in (Exported, Histogram, Missing, SessionStats)}
"""Types that commands name only in annotations."""
_PERCENTILES: Final = ("p50_ns", "p90_ns", "p99_ns", "p99.9_ns", "max_ns")


def schema(name: str) -> Schema:
    """Returns the schema of one document."""
    kind, title = DOCUMENTS[name]
    defs: dict[str, Schema] = {}
    found = _record(kind, defs)
    return {"$schema": _DRAFT, "title": title, **found, "$defs": dict(sorted(defs.items()))}


def _record(kind: Any, defs: dict[str, Schema]) -> Schema:  # noqa: ANN401 - a dataclass or a TypedDict
    """Returns the schema of an object with the fields of a class and no others."""
    meaning = meanings(kind)
    hints = typing.get_type_hints(kind, localns=_NAMES, include_extras=True)
    optional = {field for field, hint in hints.items() if typing.get_origin(hint) is NotRequired}
    inner = {field: _field(kind, hint, defs) for field, hint in hints.items()}
    inner |= _MORE.get(kind, {})
    properties = {field: {**found, "description": meaning[field]} for field, found in inner.items()}
    return {
        "description": (kind.__doc__ or "").splitlines()[0],
        "type": "object",
        "properties": properties,
        "required": [name for name in properties if name not in optional],
        "additionalProperties": False,
    }


_MORE: Final[dict[type, dict[str, Schema]]] = {
    SessionStats: {
        "fill": {"type": ["number", "null"]},
        "messages_per_datagram": {"type": ["number", "null"]},
        "batch_wait_ns": {"type": ["number", "null"]},
        "held_up_by": {"type": ["integer", "null"]},
        "held_up_by_rate": {"type": "boolean"},
    },
    RecorderStats: {"fill": {"type": ["number", "null"]}, "doing": {"type": "string"}},
}
"""The fields that the method `derived` of these types adds."""


def _field(kind: type, hint: Any, defs: dict[str, Schema]) -> Schema:  # noqa: ANN401 - any type of a field
    if typing.get_origin(hint) is NotRequired:
        (hint,) = typing.get_args(hint)
    if kind in _KIND_OF and typing.get_origin(hint) is Mapping:
        return _counters(kind, hint)
    return _value(hint, defs)


def _value(kind: Any, defs: dict[str, Schema]) -> Schema:  # noqa: ANN401 - any type of a field
    origin = typing.get_origin(kind)
    if origin is types.UnionType:
        (inner,) = (_value(each, defs) for each in typing.get_args(kind) if each is not types.NoneType)
        if isinstance(inner.get("type"), str):
            return {**inner, "type": [inner["type"], "null"]}
        return {"anyOf": [inner, {"type": "null"}]}
    if origin is tuple:
        return {"type": "array", "items": _value(typing.get_args(kind)[0], defs)}
    if origin is dict:
        return {"type": "object", "additionalProperties": _value(typing.get_args(kind)[1], defs)}
    if kind in _PLAIN:
        return {"type": _PLAIN[kind]}
    if kind.__name__ not in defs:
        defs[kind.__name__] = {}  # in case it holds itself
        defs[kind.__name__] = _histogram() if kind is Histogram else _record(kind, defs)
    return {"$ref": f"#/$defs/{kind.__name__}"}


def _counters(kind: type, hint: Any) -> Schema:  # noqa: ANN401 - a mapping
    """Returns the schema of counters or their rates by name; the object is empty where they could not be read."""
    rates = hint == Rates
    return {
        "type": "object",
        "properties": {
            row.name: {
                "type": "number" if rates else "integer",
                "minimum": 0,
                "description": f"{row.meaning} Unit: {row.unit}{', a second' if rates else ''}.",
            }
            for row in counters_of(_KIND_OF[kind])
            if row.grows or not rates
        },
        "additionalProperties": False,
    }


def _histogram() -> Schema:
    """Returns the schema of what `Histogram.to_dict` returns."""
    pair = {"type": "array", "items": {"type": "integer", "minimum": 0}, "minItems": 2, "maxItems": 2}
    properties: dict[str, Schema] = {
        "count": {"type": "integer", "minimum": 0, "description": "datagrams that were counted"},
        **{
            name: {"type": ["integer", "null"], "minimum": 0, "description": "ns; null when nothing was counted"}
            for name in _PERCENTILES
        },
        "buckets": {"type": "array", "items": pair, "description": "lower edge in ns, and count, where it is not 0"},
    }
    return {
        "description": "A latency histogram.",
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def render(name: str) -> str:
    """Returns the text of a schema's file."""
    return json.dumps(schema(name), indent=2, ensure_ascii=False) + "\n"


def main() -> None:
    """Writes the files; with `--check` it only says whether they are current.

    Raises:
        SystemExit: a file belongs to no type; or, with `--check`, differs from its type.
    """
    texts = {FOLDER / f"{name}.json": render(name) for name in DOCUMENTS}
    codegen.main("the types of the commands", texts, cure="make docs")
    for path in FOLDER.glob("*.json"):
        if path not in texts:
            raise SystemExit(f"{path} belongs to no type of a command; delete the file")


if __name__ == "__main__":
    main()
