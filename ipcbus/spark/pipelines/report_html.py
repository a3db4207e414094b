"""The page of a report: one self-contained HTML file."""

from __future__ import annotations

import html
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from ipcbus.spark.pipelines import report_plots
from ipcbus.spark.pipelines.audit import ABSENT, COMPLETE, DUPLICATES, LOST, MISSING
from ipcbus.spark.pipelines.report_data import LINES
from ipcbus.spark.pipelines.row_columns import SECOND_NS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ipcbus.spark.pipelines.report_data import Line, ReportData

SENTENCES: Final = {
    MISSING: "Messages are missing, and no loss was reported for them.",
    LOST: "Messages are lost; each loss was reported.",
    ABSENT: "Complete, except for times in which no recorder had joined.",
    DUPLICATES: "Complete, but some messages were recorded twice.",
    COMPLETE: "Complete: every message is there once.",
}
"""Verdict -> sentence."""

_CLASSES: Final = {MISSING: "bad", LOST: "warn", ABSENT: "warn", DUPLICATES: "warn", COMPLETE: "good"}

_STYLE: Final = """
:root { --ink: #0f172a; --soft: #475569; --line: #e2e8f0; --paper: #fff; --back: #f8fafc; --good: #059669;
  --warn: #b45309; --bad: #dc2626 }
* { box-sizing: border-box }
body { margin: 0; background: var(--back); color: var(--ink); font: 15px/1.5 system-ui, sans-serif }
main { max-width: 1080px; margin: 0 auto; padding: 32px 20px 64px }
h1 { font-size: 26px; margin: 0 0 4px } h2 { font-size: 18px; margin: 0 0 12px }
p { margin: 0 0 12px } .soft { color: var(--soft) }
section, .card { background: var(--paper); border: 1px solid var(--line); border-radius: 10px }
section { padding: 20px; margin-top: 20px } .card { padding: 14px 16px }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: 12px; margin-top: 20px }
.card b { display: block; font-size: 22px; font-variant-numeric: tabular-nums } .card span { color: var(--soft) }
.verdict { border-left: 6px solid var(--good); font-size: 17px; font-weight: 600 }
.verdict.warn { border-color: var(--warn) } .verdict.bad { border-color: var(--bad) }
.badge { border-radius: 99px; padding: 1px 10px; font-size: 13px; color: #fff; background: var(--good) }
.badge.warn { background: var(--warn) } .badge.bad { background: var(--bad) }
.wide { overflow: auto; max-height: 460px; margin-top: 12px }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums }
th, td { padding: 5px 10px; text-align: right; border-bottom: 1px solid var(--line); white-space: nowrap }
th { color: var(--soft); font-weight: 600; font-size: 13px; position: sticky; top: 0; background: var(--paper) }
.text { text-align: left }
svg { width: 100%; height: auto; display: block }
"""

_Cell = tuple[str, str]
"""The HTML of a cell, and its class."""

_Columns = dict[str, "Callable[[Line], _Cell]"]


def page(data: ReportData, title: str, subtitle: str) -> str:
    """Returns the report as HTML.

    Args:
        data: the content of the report.
        title: title of the page.
        subtitle: a line below the title that says where the rows come from.
    """
    parts = [f"<h1>{_text(title)}</h1>", f'<p class="soft">{_text(subtitle)}</p>', _verdict(data)]
    if data.everything is not None:
        parts += [_cards(data, data.everything), _throughput(data), _latency(data)]
    parts += [_audit(data), _rollup(data)]
    return (
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{_text(title)}</title>\n<style>{_STYLE}</style>\n</head>\n"
        f"<body>\n<main>\n{''.join(parts)}\n</main>\n</body>\n</html>\n"
    )


def _verdict(data: ReportData) -> str:
    verdict = data.summary["verdict"]
    text = SENTENCES[verdict] if data.summary["lines"] else "Nothing was recorded."
    return f'<section class="verdict {_CLASSES[verdict]}">{text}</section>'


def _cards(data: ReportData, everything: Line) -> str:
    late = data.percentiles.get(None, {})
    lost = data.summary["lost_bus"] + data.summary["lost_recorder"] + data.summary["lost_repair"]
    shown = {
        "messages": _count(everything["messages"]),
        "bytes": _size(everything["bytes"]),
        "from first to last": f"{everything['seconds']:,.1f} s",
        "messages/s": _count(everything["messages_per_second"]),
        "at the peak": _count(everything["peak_messages_per_second"]),
        "latency, median": _duration(late.get("p50_ns")),
        "latency, 99 %": _duration(late.get("p99_ns")),
        "wait in the batch, mean": _duration(late.get("wait_mean_ns")),
        "lost, reported": _count(lost),
        "missing, unreported": _count(data.summary["missing"]),
    }
    cards = "".join(f'<div class="card"><b>{value}</b><span>{name}</span></div>' for name, value in shown.items())
    return f'<div class="cards">{cards}</div>'


def _throughput(data: ReportData) -> str:
    columns: _Columns = {
        "topic": lambda line: (_text(line["topic"]), "text"),
        "sessions": _cell("sessions", _count),
        "messages": _cell("messages", _count),
        "bytes": _cell("bytes", _size),
        "messages/s": _cell("messages_per_second", _count),
        "bytes/s": _cell("bytes_per_second", _size),
        "messages/s at the peak": _cell("peak_messages_per_second", _count),
    }
    return _section("Throughput", report_plots.throughput(data), _table(columns, data.totals))


def _latency(data: ReportData) -> str:
    names = {"p50_ns": "50 %", "p90_ns": "90 %", "p99_ns": "99 %", "p999_ns": "99.9 %", "max_ns": "max"}
    waits = {"wait_mean_ns": "wait, mean", "wait_p50_ns": "wait, 50 %", "wait_p99_ns": "wait, 99 %"}
    columns: _Columns = {
        "topic": lambda line: ("all topics" if line["topic"] is None else _text(line["topic"]), "text"),
        "messages": _cell("messages", _count),
        **{title: _cell(name, _duration) for name, title in names.items()},
        **{title: _cell(name, _duration) for name, title in waits.items()},
        "not stamped": _cell("unstamped", _count),
        "negative": _cell("negative", _count),
    }
    lines = [data.percentiles[name] for name in (None, *data.topics) if name in data.percentiles]
    known = any(line["messages"] for line in lines)
    note = (
        '<p class="soft">From send to receive. A percentile has its exact rank; its value is within 0.5 %.  '
        "Negative: the clocks of two hosts disagree. The wait is the part of the latency in which a message waited in "
        "its batch, where that is known.</p>"
    )
    return _section("Latency", report_plots.latency(data) if known else "", _table(columns, lines), note)


def _audit(data: ReportData) -> str:
    counts: tuple[str, ...] = ("messages", "lost_bus", "lost_recorder", "lost_repair", "missing", "damaged", "absent")
    counts += ("gaps", "duplicates", "late")
    columns: _Columns = {
        "verdict": lambda line: (
            f'<span class="badge {_CLASSES[line["verdict"]]}">{line["verdict"]}</span>',
            "text",
        ),
        "topic": lambda line: (_text(line["topic"] or "unknown"), "text"),
        "session": lambda line: (_text(line["source"]), "text"),
        "stream": lambda line: (str(line["partition"]), ""),
        **{name.replace("_", " by "): _cell(name, _count) for name in counts},
    }
    all_lines = data.summary["lines"]
    text = f"{_count(data.complete)} of {_count(all_lines)} topics of sessions are complete."
    note = f'<p class="soft">{text} Losses, missing, absent, duplicates and late ones are counts of messages.</p>'
    return _section("Audit", note, _table(columns, data.account) if data.account else "")


def _rollup(data: ReportData) -> str:
    if not data.bars and not data.links:
        return ""
    picture = ""
    if data.bars:
        name = _text(f"{data.bars[0]['symbol']}, {data.bars[0]['topic']}")
        picture = f'<p class="soft">{name}</p>{report_plots.bars(data)}'
    columns: _Columns = {
        "topic": lambda line: (_text(line["topic"]), "text"),
        "symbol": lambda line: (_text(line["symbol"] or "\N{EN DASH}"), "text"),
        "event": lambda line: (_text(line["event"]), "text"),
        "messages": _cell("messages", _count),
        "broken links": _cell("broken", _count),
    }
    note = '<p class="soft">The exchange\'s own numbering, checked independently of the bus:</p>'
    return _section("Feed", picture, note + _table(columns, data.links) if data.links else "")


def _section(title: str, *parts: str) -> str:
    return f"<section><h2>{title}</h2>{''.join(parts)}</section>"


def _table(columns: _Columns, lines: Sequence[Line]) -> str:
    def row(cells: Iterable[_Cell], tag: str) -> str:
        return "<tr>" + "".join(f'<{tag} class="{kind}">{text}</{tag}>' for text, kind in cells) + "</tr>"

    if not lines:
        return ""
    kinds = [make(lines[0])[1] for make in columns.values()]
    head = row(zip(columns, kinds, strict=True), "th")
    body = "".join(row((make(line) for make in columns.values()), "td") for line in lines)
    more = f'<p class="soft">The first {LINES} lines; all are in the Parquet files.</p>' if len(lines) >= LINES else ""
    return f'<div class="wide"><table><thead>{head}</thead><tbody>{body}</tbody></table></div>{more}'


def _cell(name: str, shown: Callable[[float | None], str]) -> Callable[[Line], _Cell]:
    """Returns a function that makes the cells of a column of numbers."""
    return lambda line: (shown(line[name]), "")


def _text(value: Any) -> str:  # noqa: ANN401
    """Returns a text from outside, escaped so that it cannot change the page."""
    return html.escape("".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in str(value)))


def _count(value: float | None) -> str:
    return "\N{EN DASH}" if value is None else f"{value:,.0f}"


def _size(value: float | None) -> str:
    if value is None:
        return "\N{EN DASH}"
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:,.0f} {unit}" if unit == "B" else f"{value:,.1f} {unit}"
        value /= 1024
    return f"{value:,.1f} TiB"


def _duration(ns: float | None) -> str:
    if ns is None:
        return "\N{EN DASH}"
    for unit in ("ns", "\N{MICRO SIGN}s", "ms"):
        if ns < 999.5:
            return f"{ns:.3g} {unit}"
        ns /= 1000
    return f"{ns:,.2f} s"


def period(everything: Line | None) -> str:
    """Returns the times of the first and last message; empty without messages."""
    if everything is None:
        return ""
    first, last = (
        datetime.fromtimestamp(everything[name] / SECOND_NS, UTC).strftime("%Y-%m-%d %H:%M:%S")
        for name in ("first_ns", "last_ns")
    )
    return f"{first} to {last} UTC"
