"""The dashboard and the alert rules in docs/ ask for nothing that is not exported."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ipcbus import stats
from ipcbus_tools.metrics.prometheus_metrics import families
from tests.kit.bus import LBTIPC, Bus

if TYPE_CHECKING:
    from collections.abc import Iterator

DOCS = Path(__file__).parents[2] / "docs"
DASHBOARD: dict[str, Any] = json.loads((DOCS / "grafana" / "ipcbus.json").read_text())
PAGE = (DOCS / "how-to" / "observe.md").read_text()

ADDED_BY_PROMETHEUS = {"instance", "job"}

Series = dict[str, set[str]]


def panels() -> Iterator[dict[str, Any]]:
    for panel in DASHBOARD["panels"]:
        yield panel
        yield from panel.get("panels", [])


def queries() -> list[tuple[str, str]]:
    """Each query of the dashboard with its legend, those of the variables, and those of the page."""
    found = [(target["expr"], target["legendFormat"]) for panel in panels() for target in panel.get("targets", [])]
    found += [(each["query"]["query"], "") for each in DASHBOARD["templating"]["list"] if each["type"] == "query"]
    rules = re.findall(r"^ +expr: (.*)$", PAGE, re.MULTILINE)
    assert len(rules) >= 3
    return found + [(rule, "") for rule in rules + re.findall(r": `([^`]*ipcbus_[^`]*\(.*?)`", PAGE)]


def wrong(query: str, legend: str, exported: Series) -> list[str]:
    """What a query asks for that is not there."""
    used = re.findall(r"\b(ipcbus_\w+)(?:\{([^}]*)\})?", query)
    found = [f"{name} is not exported" for name, _ in used if name not in exported]
    if not used or found:
        return found or ["asks for nothing of ipcbus"]
    for name, selector in used:
        asked = set(re.findall(r"(\w+) *(?:=~|!~|!=|=)", selector or ""))
        found += [f"{name} has no label {label}" for label in asked - exported[name]]
    every = set.intersection(*(exported[name] for name, _ in used))
    some = set.union(*(exported[name] for name, _ in used))
    for labels in re.findall(r"\b(?:by|on) *\(([^)]*)\)", query) + re.findall(r"label_values\(.*, *(\w+)\)", query):
        asked = {label.strip() for label in labels.split(",")}
        found += [f"not every metric has a label {label}" for label in asked - every - ADDED_BY_PROMETHEUS]
    for row in re.findall(r"\bgroup_left *\(([^)]*)\)", query):
        found += [f"no metric has a label {label.strip()}" for label in row.split(",") if label.strip() not in some]
    grouped = re.findall(r"\bby *\(([^)]*)\)", query)
    kept = {label.strip() for row in grouped for label in row.split(",")} if grouped else some
    found += [f"no {label} is left for the legend" for label in re.findall(r"{{(\w+)}}", legend) if label not in kept]
    return found


def _receivers(domain: str) -> list[stats.SlotStats]:
    return [slot for session in stats.take_snapshot(domain).sessions for slot in session.receivers]


@pytest.fixture
def exported(domain: str) -> Iterator[Series]:
    """Every series of a live domain with its labels."""
    bus = Bus(domain, LBTIPC, "sequential")
    try:
        receiver = bus.receiver("t", lambda message: None)
        source = bus.source("t")
        bus.joined(source)
        source.send(b"x", flush=True)
        bus.until(lambda: receiver.delivered, "the message")
        bus.receiver("u", lambda message: None)
        bus.joined(bus.source("u", transport="lbtru"))
        bus.until(lambda: any(each.reception for each in _receivers(domain)), "what its receiver shows")
        bus.contexts[0]._recorder_stats_block("/archive/host").show(buffer_bytes=1)
        yield {
            sample.name: set(sample.labels)
            for metric in families([stats.take_snapshot(domain)])
            for sample in metric.samples
        }
    finally:
        bus.close()


def test_queries_ask_for_what_is_exported(exported: Series) -> None:
    found = {query: wrong(query, legend, exported) for query, legend in queries()}
    assert not {query: faults for query, faults in found.items() if faults}
    assert len(found) > 30


@pytest.mark.parametrize(
    ("query", "legend"),
    [
        ("rate(ipcbus_session_msgs_total[5m])", ""),
        ('ipcbus_session_alive{topic="t"}', ""),
        ("sum by (topic) (ipcbus_session_alive)", ""),
        ("sum by (source) (ipcbus_session_alive)", "{{context}}"),
        ("label_values(ipcbus_session_info, topic)", ""),
        ("ipcbus_slot_alive * on (domain, slot) group_left (topic) ipcbus_slot_info", ""),
        ("up == 0", ""),
    ],
)
def test_a_wrong_query_is_seen(query: str, legend: str, exported: Series) -> None:
    assert wrong(query, legend, exported)


def test_dashboard_can_be_imported() -> None:
    assert DASHBOARD["schemaVersion"] >= 30
    assert "id" not in DASHBOARD  # Grafana gives it
    numbers = [panel["id"] for panel in panels()]
    assert len(set(numbers)) == len(numbers)
    assert {each["name"] for each in DASHBOARD["templating"]["list"]} == {"datasource", "domain", "source"}
    for panel in panels():
        if panel["type"] != "row":
            assert panel["datasource"]["uid"] == "${datasource}"
            assert panel["description"].endswith(".")
            assert panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24
    rows = [panel["title"] for panel in panels() if panel["type"] == "row"]
    held_up = "Who is held up, and by whom"
    recovery = "Late join, recovery and requests"
    more = ["Over UDP", "Recorders", recovery, "Guaranteed delivery"]
    assert rows == ["Overview", "Sessions", "Receivers", "Topics", held_up, *more]


def test_the_example_has_the_files_of_the_page_and_the_dashboard() -> None:
    folder = DOCS.parent / "examples" / "prometheus_grafana"
    for name, text in re.findall(r"^```yaml\n(?=# (\S+)\n)(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL):
        assert (folder / name).read_text() == text
    mounted = re.findall(r"^      - (\S+?):/", (folder / "compose.yml").read_text(), re.MULTILINE)
    assert {"prometheus.yml", "ipcbus.rules.yml", "grafana"} <= {Path(path).name for path in mounted}
    assert not [path for path in mounted if not (folder / path).exists()]


def test_brackets_of_queries_close() -> None:
    for query, _ in queries():
        bare = re.sub(r'"[^"]*"', "", query)
        for pair in ("()", "{}", "[]"):
            assert bare.count(pair[0]) == bare.count(pair[1]), query
