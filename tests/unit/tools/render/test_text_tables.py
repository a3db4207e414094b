from __future__ import annotations

import re
from typing import TYPE_CHECKING

from rich.cells import cell_len

from ipcbus_tools.common import output
from ipcbus_tools.render.text_tables import lines, reader, show_table
from tests.kit.cases import each_of
from tests.unit.tools.top.recorded import SLOW, TRADING

if TYPE_CHECKING:
    import pytest


def shown(*rows: dict[str, object], width: int = 120) -> str:
    return "".join(f"{line.plain}\n" for line in lines("title", list(rows), width))


def test_columns_in_which_nothing_stands_are_left_out() -> None:
    text = shown({"topic": "a", "name": "", "messages": 0}, {"topic": "b", "name": "", "messages": 12})
    assert text.split() == ["title", "topic", "messages", "a", "0", "b", "12"]


def test_nothing_for_no_rows() -> None:
    assert shown() == ""


def test_names_of_others_are_only_text() -> None:
    text = shown({"topic": "[red]a[/red] \x1b[31m", "command": "\udcff \n"})
    assert "[red]a[/red] \\x1b[31m" in text
    assert "\\xff \\n" in text


COMMAND = "python -m trading.feed --symbols AAPL,MSFT --rate 100000 --中文"


@each_of("width", [*range(1, 100, 4), 130])
def test_in_a_narrow_terminal_numbers_are_whole_or_missing(width: int) -> None:
    rows: list[dict[str, object]] = [
        {
            **{"source": f"LBT-IPC:6481f8d4:{20001 + i}", "pid": 1234567 + i, "user": "ann", "name": "a" * 30 * i},
            **{"messages": "12,345,678,901", "p99": "1.23 us", "command": COMMAND * i, "note": "permission denied"},
        }
        for i in range(3)
    ]
    title, head, *found = shown(*rows, width=width).splitlines()
    assert len(found) == len(rows)
    assert all(cell_len(line) <= width for line in (title, head, *found))
    known = {str(value) for row in rows for value in row.values()}
    words = {word for line in found for word in line.split("  ") if word.strip()}
    for word in (word.strip() for word in words):
        assert word in known or word.endswith("…")
        # Only text may be cut; with nothing but the source string left, there is no choice.
        assert word in known or not re.match(r"LBT|[0-9]", word) or len(head.split()) == 1


def test_text_is_shortened_before_columns_go() -> None:
    row: dict[str, object] = {"pid": 7, "messages": "1,000", "command": "x" * 50, "note": "y" * 20}
    heads = {width: shown(row, width=width).splitlines()[1].split() for width in range(8, 101)}
    every = ["pid", "messages", "command", "note"]
    assert heads[100] == heads[60] == heads[33] == every
    assert heads[32] == heads[23] == ["pid", "messages", "note"]
    assert heads[22] == heads[13] == ["pid", "note"]
    assert shown(row, width=60).splitlines()[2].split() == ["7", "1,000", "x" * 22 + "…", "y" * 20]
    assert heads[12] == heads[8] == ["pid"]


def test_into_a_pipe_nothing_is_cut(capsys: pytest.CaptureFixture[str]) -> None:
    show_table(output(), "t", [{"pid": 7, "command": "x" * 5000, "note": "y z " * 1000}])
    title, _, line = capsys.readouterr().out.splitlines()
    assert (title, line) == ("t", f"  7  {'x' * 5000}  {('y z ' * 1000).strip()}")


def test_readers_in_80_columns() -> None:
    session = TRADING.session(SLOW)
    assert session is not None
    _, head, *found = shown(*(reader(session, slot) for slot in session.receivers), width=80).splitlines()
    assert len(found) == len(session.receivers)
    assert {"pid", "lost", "behind", "p99"} <= set(head.split())
