"""Recorders in `ipcbus top`: a table when there are some, and in the header when one is in trouble."""

from __future__ import annotations

import dataclasses
import io
import re
from typing import TYPE_CHECKING

import pytest
from rich.console import Console

from ipcbus_tools.top.rows import LINGER, RowList
from ipcbus_tools.top.screen import Frame, Size, report, screen
from ipcbus_tools.top.view import View
from tests.kit.cases import each_of
from tests.unit.ipcbus.stats.made import recorder
from tests.unit.tools.top.recorded import HOST, SECOND, TRADING, changed, lines, text

if TYPE_CHECKING:
    from ipcbus.stats import ContextStats, DomainSnapshot, RecorderStats

LOG = "/var/archive/host-1"


def recording(*recorders: RecorderStats, later_s: float = 0, alive: bool = True) -> DomainSnapshot:
    """The domain, with recorders in its first context."""
    first = TRADING.contexts[0].context_id

    def context(each: ContextStats) -> ContextStats:
        if each.context_id != first:
            return each
        return dataclasses.replace(each, recorders=recorders, alive=alive)

    return changed(TRADING, context=context, later_s=later_s)


def frame(found: DomainSnapshot) -> Frame:
    row_list = RowList()
    return Frame(HOST, found, row_list.rows(found, SECOND), {}, 1.0, row_list.lost, recorders=row_list.recorders)


def coloured(found: DomainSnapshot, width: int = 120) -> str:
    """The screen with its styles."""
    console = Console(file=io.StringIO(), width=width, height=24, force_terminal=True, color_system="standard")
    console.print(screen(frame(found), View(), Size(width, 24)), end="")
    return console.file.getvalue()  # type: ignore[attr-defined, no-any-return]


BAD, WARN = "\x1b[1;31m", "\x1b[33m"
HANGS = {"silent_ns": 5 * SECOND, "counts": {"buffered_bytes": 5, "behind_ns": 6 * SECOND}}


def test_without_recorders_nothing_is_said_of_them() -> None:
    assert "recorder" not in text(frame(TRADING), width=200, height=60)


def test_one_that_records_is_a_line_at_the_bottom() -> None:
    good = recorder(
        LOG,
        counts={"messages": 10_000, "buffered_bytes": 20, "behind_ns": 40_000_000, "lost": 7, "missed": 2},
        per_second={"messages": 1234.0, "bytes": 5e6},
    )
    found = lines(frame(recording(good)), width=160, height=30)
    head, line = found[-3:-1]
    titles = "recorder  state  pid  user  command  msg/s  MiB/s  behind  buf%  lost  dropped  errors"
    assert " ".join(head.split()) == " ".join(titles.split())
    assert re.search(rf"^  {LOG} +records +\d+ ann +\S.* 1234 +4\.8 +40ms +2 +9 +0 +0 *$", line)
    assert "recorder" not in "".join(found[:3])


@pytest.mark.parametrize(
    ("fields", "said", "style"),
    [
        ({"counts": {"behind_ns": 2 * SECOND}}, "recorder behind", WARN),
        ({"per_second": {"dropped": 3.0}, "counts": {"dropped": 30}}, "recorder drops", BAD),
        ({"failing": True, "counts": {"errors": 4}}, "recorder fails", BAD),
        (HANGS, "recorder hangs", BAD),
        ({"stopped": True}, "recorder stopped", BAD),
        ({"alive": False}, "recorder dead", BAD),
    ],
)
def test_trouble_is_said_in_the_header_and_in_its_line(fields: dict[str, object], said: str, style: str) -> None:
    found = recording(recorder(LOG, **fields))  # type: ignore[arg-type]
    for width in (80, 200):
        assert said in "".join(lines(frame(found), width=width)[:3])
    state = said.split()[1]
    shown = coloured(found)
    assert f"\x1b[1;{style[-3:]}  {said}" in shown  # the line is bold
    assert re.search(rf"{re.escape(style)}{state} *\x1b", shown)


def test_numbers_that_should_be_0_are_coloured() -> None:
    shown = coloured(recording(recorder(LOG, counts={"dropped": 30, "lost": 4})))
    assert re.search(rf"{re.escape(BAD)} +30\x1b", shown)
    assert re.search(rf"{re.escape(WARN)} +4\x1b", shown)


def test_several_in_trouble_are_counted_and_stand_first() -> None:
    behind = [recorder(f"/b/{n}", counts={"behind_ns": 2 * SECOND}) for n in range(3)]
    found = lines(frame(recording(recorder("/a"), *behind, recorder("/z", failing=True))), width=120, height=40)
    assert "  recorder fails  3 recorders: behind" in found[2]
    assert [line.split()[0] for line in found if re.match(r"  /\w", line)] == ["/b/0", "/b/1", "/b/2", "/z", "/a"]


@each_of("size", [(80, 24), (200, 60), (40, 10), (30, 8), (500, 9)])
@each_of("unicode", [True, False])
def test_fills_the_screen_exactly(size: tuple[int, int], unicode: bool) -> None:
    many = frame(recording(*(recorder(f"/archive/{n}/é{'x' * n * 10}", failing=n % 2 == 0) for n in range(30))))
    found = lines(many, View(), *size, unicode=unicode)
    assert len(found) == size[1]
    assert max(map(len, found)) <= size[0]
    assert sum("/archive/" in line or ".." in line for line in found) >= (2 if size[1] >= 24 else 0)
    assert "recorder" in "".join(found[:3]) or size[0] < 60


def test_of_a_long_path_the_end_is_shown() -> None:
    found = text(frame(recording(recorder("/far" * 60 + "/host-1"))), width=80)
    assert re.search(r"  \.\.\S*/host-1 records", found)


def test_names_of_others_do_nothing_to_the_terminal() -> None:
    found = lines(frame(recording(recorder("\x1b[2J[red]\n\u202e"))), width=220, height=60)
    assert len(found) == 60
    assert not set("\x1b\u202e") & set("".join(found))


def test_the_report_has_all_of_them() -> None:
    many = frame(recording(*(recorder(f"/archive/{n}") for n in range(30))))
    found = "\n".join(line.plain for line in report(many, Size(200, 10)).renderables)  # type: ignore[union-attr]
    assert all(f"  /archive/{n} " in found for n in range(30))


def test_one_that_vanished_is_gone_for_two_intervals_and_one_that_died_is_dead() -> None:
    row_list = RowList()
    row_list.rows(recording(recorder(LOG)), SECOND)
    seen = []
    for later_s in (1, 2, 3, 4):
        row_list.rows(recording(later_s=later_s), SECOND)
        seen.append([row.state for row in row_list.recorders])
    assert seen == [["gone"]] * LINGER + [[]] * 2
    row_list = RowList()
    row_list.rows(recording(recorder(LOG)), SECOND)
    seen = []
    for later_s in (1, 2, 3, 4):
        row_list.rows(recording(recorder(LOG, alive=False), later_s=later_s, alive=False), SECOND)
        seen.append([row.state for row in row_list.recorders])
    assert seen == [["dead"]] * LINGER + [[]] * 2
    assert row_list.hidden_dead == 1


def test_dead_and_then_removed_is_two_intervals_together() -> None:
    row_list = RowList()
    row_list.rows(recording(recorder(LOG)), SECOND)
    row_list.rows(recording(recorder(LOG, alive=False), later_s=1, alive=False), SECOND)
    row_list.rows(recording(later_s=2), SECOND)
    assert [row.state for row in row_list.recorders] == ["dead"]
    row_list.rows(recording(later_s=3), SECOND)
    assert row_list.recorders == ()
