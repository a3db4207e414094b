"""How the benchmarks judge and show what they measured; the measuring itself is not tested here."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from benchmarks import groups, native, pages
from benchmarks.rows import Row
from benchmarks.tables import Figure, brief, fill, judge, text
from tests.kit.cases import each_of
from tests.unit.sources import ROOT

if TYPE_CHECKING:
    from pathlib import Path


def measured(*values: float, near: bool = True) -> Figure:
    """A row with these values, one a round."""
    return Figure(list(values), [near] * len(values), [0.5] * len(values))


def a_row(*, budget: float = 4, stretch: float = 2.5, less: bool = True, **more: object) -> Row:
    return Row("ours", "ns", budget, stretch, less, lambda _factor: 0.0, **more)  # type: ignore[arg-type]


@each_of(("value", "verdict"), [(450, "stretch"), (451, "must"), (800, "must"), (801, "MISSED")])
def test_a_value_that_is_enough_is_enough_beside_a_fast_limit(value: float, verdict: str) -> None:
    row = a_row(beside="limit", is_ratio=True, at_least=(800, 450))
    assert judge(row, {"ours": measured(value), "limit": measured(50)}).verdict == verdict


@pytest.mark.parametrize(("value", "verdict"), [(1000, "stretch"), (1600, "must"), (1601, "MISSED")])
def test_a_ratio_is_enough_beside_a_slow_limit(value: float, verdict: str) -> None:
    row = a_row(beside="limit", is_ratio=True, at_least=(800, 450))
    assert judge(row, {"ours": measured(value), "limit": measured(400)}).verdict == verdict


def test_a_second_row_has_to_be_reached_too() -> None:
    row = a_row(budget=0.3, stretch=0.45, less=False, beside="limit", is_ratio=True, also=("pipe", 1.5))
    figures = {"ours": measured(40), "limit": measured(100), "pipe": measured(26)}
    assert judge(row, figures).verdict == "must"
    assert judge(row, figures | {"pipe": measured(27)}).verdict == "MISSED"


@pytest.mark.parametrize(("less", "ratio"), [(True, 1.5), (False, 0.75)])
def test_the_ratio_is_to_the_better_of_two(less: bool, ratio: float) -> None:
    row = a_row(budget=1, stretch=0.7, less=less, beside="one", or_beside="other", is_ratio=True)
    found = judge(row, {"ours": measured(60), "one": measured(80), "other": measured(40)})
    assert (found.ratio, found.verdict) == (ratio, "MISSED")
    assert judge(row, {"ours": measured(60), "other": measured(80)}).ratio == 0.75  # the other is not installed


def test_runs_on_near_processors_count_if_there_are_any() -> None:
    assert Figure([1, 5, 9], [False, True, True], []).value() == 7
    assert Figure([1, 5, 9], [False, False, False], []).value() == 5
    assert Figure().value() is None


@each_of(
    ("value", "unit", "shown"),
    [
        (20_700_000, "msg/s", "20.7 M msg/s"),
        (937.4, "ns", "937 ns"),
        (98_563, "ns", "98.6 us"),
        (13 << 30, "B/s", "13 GiB/s"),
        (0.09, "%", "0.09 %"),
    ],
)
def test_a_figure_has_three_digits(value: float, unit: str, shown: str) -> None:
    assert brief(value, unit) == shown


def test_tables_fit_80_columns_and_hold_every_name_whole() -> None:
    for group in groups.EVERY:
        figures = {row.name: measured(123_456_789.0) for row in groups.BY_NAME.values()}
        lines = list(text(group, figures))
        assert max(map(len, lines)) <= 80, group.title
        for row in group.rows:
            assert any(line.startswith(row.name) for line in lines), row.name


def test_what_failed_is_in_the_table() -> None:
    row = a_row()
    lines = list(text(groups.Group("key", "title", [row]), {"ours": Figure(failure="not measured: it hung")}))
    assert "FAILED" in lines[2]
    assert "it hung" in lines[3]


def test_the_rows_beside_are_measured_too_and_first() -> None:
    picked = groups.picked("receive(), LBT-SMX, p99", groups.EVERY)
    names = [row.name for row in groups.with_limits([row for group in picked for row in group.rows])]
    assert (
        names.index("C: ring, round trip") < names.index("receive(), LBT-SMX") < names.index("receive(), LBT-SMX, p99")
    )


def test_only_marks_of_what_was_measured_are_filled(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("a\n<!-- bench:one -->\nold\n<!-- /bench -->\nb\n<!-- bench:two -->\nold\n<!-- /bench -->\n")
    assert fill(page, {"one": "new", "three": "new"}) == ["one"]
    assert page.read_text() == (
        "a\n<!-- bench:one -->\nnew\n<!-- /bench -->\nb\n<!-- bench:two -->\nold\n<!-- /bench -->\n"
    )


def test_every_mark_of_the_pages_is_filled_by_a_full_run() -> None:
    figures = {row.name: measured(1000.0) for row in groups.BY_NAME.values()}
    about = {"cpu": "", "system": "", "python": ""}
    parts = pages.parts([*groups.MAIN, groups.PEERS], about, figures)
    for page in ("README.md", "docs/explanation/performance.md"):
        marks = re.findall(r"<!-- bench:([a-z-]+) -->", (ROOT / page).read_text())
        assert marks
        assert set(marks) <= set(parts)


def test_a_part_of_a_table_does_not_replace_it() -> None:
    (picked,) = groups.picked("idle receive(0)", groups.EVERY)
    figures = {row.name: measured(1000.0) for row in picked.rows}
    assert set(pages.parts([picked], {}, figures)) == {"machine", "instructions"}


def test_two_processors_that_this_process_may_use(monkeypatch: pytest.MonkeyPatch) -> None:
    files = {"topology/thread_siblings_list": {2, 3}, "cache/index3/shared_cpu_list": {2, 3, 4}}
    monkeypatch.setattr("os.sched_getaffinity", lambda _pid: {2, 3, 4, 9})
    monkeypatch.setattr(native, "_listed", lambda _processor, name: files[name])
    assert native.near_processors() == (2, 4)
    files["cache/index3/shared_cpu_list"] = set()
    assert native.near_processors() == (2, 3)
