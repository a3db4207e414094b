"""The page of a report, from facts made up here: it needs no Spark."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any

import pytest

from ipcbus.archive import Archive
from ipcbus.spark.pipelines.audit import VERDICTS
from ipcbus.spark.pipelines.latency import UNSTAMPED, ZERO
from ipcbus.spark.pipelines.report_data import LINES, POINTS, ReportData, fitting_interval_ns
from ipcbus.spark.pipelines.report_html import SENTENCES, page, period
from tests.kit.archives import add

if TYPE_CHECKING:
    from pathlib import Path

SECOND_NS = 1_000_000_000
NASTY = '<script>alert("x")</script> & $\\frac$ _\x1b[31m'
ACCOUNT = dict.fromkeys(
    (
        *("messages", "numbers", "lost_bus", "lost_recorder", "lost_repair", "missing", "damaged", "absent", "gaps"),
        *("duplicates", "contradicted", "lines"),
    ),
    0,
)
VOID = {"meta", "link", "img", "br", "hr", "input"}


class Reader(HTMLParser):
    """Checks that elements are closed in their order, and collects what matters."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def checked(html: str) -> Reader:
    """Reads a page; fails when it is not well formed or leads anywhere else."""
    reader = Reader()
    reader.feed(html)
    reader.close()
    assert reader.open == []
    assert not {"script", "link", "img", "iframe", "object", "embed"} & {tag for tag, _ in reader.seen}
    for _, attributes in reader.seen:
        for name in ("href", "xlink:href", "src"):
            assert (attributes.get(name) or "#").startswith("#")
        assert "http" not in (attributes.get("style") or "")
    assert not re.search(r"url\((?!#)|@import|https?://", html)
    return reader


def total(topic: str | None, messages: int) -> dict[str, Any]:
    return {
        **{"topic": topic, "sessions": 2, "messages": messages, "bytes": messages * 10, "first_ns": 5 * SECOND_NS},
        **{"last_ns": 65 * SECOND_NS, "seconds": 60.0, "messages_per_second": messages / 60},
        **{"bytes_per_second": messages / 6, "peak_messages_per_second": messages / 30},
    }


def full() -> ReportData:
    """Everything that a page can show."""
    topics = ["quotes", NASTY, "_hidden"]
    late: dict[str, float] = {"p50_ns": 1500, "p90_ns": 2500, "p99_ns": 10**6, "p999_ns": 10**9, "max_ns": 4 * 10**9}
    late |= {"wait_mean_ns": 31_234_567.8, "wait_p50_ns": 30_000_000, "wait_p99_ns": 62_500_000}
    late |= {"unstamped": 3, "negative": 1, "messages": 100, "min_ns": 0}
    bar = {"symbol": NASTY, "topic": "t", "low": 9.0, "high": 12.0, "open": 10.0, "close": 11.0, "volume": 3.0}
    return ReportData(
        totals=[total(topic, 1000) for topic in topics],
        everything=total(None, 3000),
        topics=topics,
        series=[
            {"topic": topic, "start_ns": at * SECOND_NS, "messages": 10 * at}
            for topic in (*topics, None)
            for at in (5, 6, 64)
        ],
        percentiles={topic: {"topic": topic, **late} for topic in (None, *topics)},
        histogram=[
            {"topic": topic, "bucket": bucket, "messages": 5}
            for topic in topics
            for bucket in (UNSTAMPED, ZERO, 0, 900)
        ],
        summary={**ACCOUNT, "lines": 6, "lost_bus": 7, "missing": 2, "late": None, "verdict": "missing"},
        account=[
            {**ACCOUNT, "verdict": verdict, "topic": topic, "source": "", "partition": 0, "late": late}
            for verdict, topic, late in zip(VERDICTS, (NASTY, *"abc", ""), (None, 0, 1, 2, 3), strict=True)
        ],
        complete=1,
        bars=[{**bar, "step_ns": at * SECOND_NS} for at in (5, 6)] + [{**bar, "close": 9.5, "step_ns": 8 * SECOND_NS}],
        links=[{"topic": NASTY, "symbol": None, "event": "trade", "messages": 9, "broken": 0}],
    )


@pytest.fixture(scope="module", autouse=True)
def fonts() -> None:
    """Opens the fonts, which matplotlib keeps open."""
    page(full(), "", "")


def test_full_page_stands_alone() -> None:
    html = page(full(), NASTY, "from somewhere")
    reader = checked(html)
    assert "<script>" not in html
    assert "\x1b" not in html
    assert sum(tag == "svg" for tag, _ in reader.seen) == 3
    assert reader.text.count('<script>alert("x")</script>') > 5  # as text
    assert SENTENCES["missing"] in reader.text
    for text in (
        "3,000",
        "29.3 KiB",
        "1.5 \N{MICRO SIGN}s",
        "4.00 s",
        "31.2 ms",
        "62.5 ms",
        "1 of 6 topics",
        "unknown",
    ):
        assert text in reader.text
    for text in ("31.2 ms", "62.5 ms", "_hidden", "others", "messages/s", "% of messages", "price", "volume"):
        assert text in reader.text
    # What was not looked at is not nothing.
    assert "\N{EN DASH}" in reader.text


def test_page_of_nothing() -> None:
    reader = checked(page(ReportData(summary={**ACCOUNT, "late": 0, "verdict": "complete"}), "Empty", ""))
    assert "Nothing was recorded." in reader.text
    assert "svg" not in {tag for tag, _ in reader.seen}


def test_page_of_a_single_message_without_time_of_sending() -> None:
    facts = full()
    facts.totals, facts.topics = facts.totals[:1], facts.topics[:1]
    facts.everything = {**total(None, 1), "last_ns": 5 * SECOND_NS, "seconds": 0.0, "messages_per_second": None}
    facts.series = [{"topic": "quotes", "start_ns": 5 * SECOND_NS, "messages": 1}]
    unknown = dict.fromkeys(("min_ns", "p50_ns", "p90_ns", "p99_ns", "p999_ns", "max_ns"))
    unknown |= dict.fromkeys(("wait_mean_ns", "wait_p50_ns", "wait_p99_ns"))
    facts.percentiles = {
        name: {"topic": name, **unknown, "messages": 0, "unstamped": 1, "negative": 0} for name in (None, "quotes")
    }
    facts.histogram, facts.bars, facts.links, facts.account = [], [], [], []
    reader = checked(page(facts, "One", ""))
    assert sum(tag == "svg" for tag, _ in reader.seen) == 1


def test_long_tables_say_that_there_is_more() -> None:
    facts = full()
    facts.totals = [total(f"t{number}", 1) for number in range(LINES)]
    assert f"The first {LINES} lines" in checked(page(facts, "Long", "")).text


def test_period() -> None:
    assert period(None) == ""
    assert period(total(None, 1)) == "1970-01-01 00:00:05 to 1970-01-01 00:01:05 UTC"


@pytest.mark.parametrize(
    ("span_ns", "expected"),
    [
        (0, 10**6),
        (10**6, 10**6),
        (6 * SECOND_NS, 50_000_000),
        (200 * SECOND_NS, SECOND_NS),
        (86400 * SECOND_NS, 500 * SECOND_NS),
    ],
)
def test_interval_that_fits(tmp_path: Path, span_ns: int, expected: int) -> None:
    archive = Archive.create(tmp_path / "archive")
    assert fitting_interval_ns(archive) == SECOND_NS
    with archive.writer("host") as writer:
        add(writer, [b"x"], time_ns=10**18)
        add(writer, [b"x"], first=1, time_ns=10**18 + span_ns)
    found = fitting_interval_ns(archive)
    assert found == expected
    assert span_ns / found <= POINTS / 2
