from __future__ import annotations

import io

from rich.console import Console
from rich.text import Text

from ipcbus_tools.tables import table


def shown(*rows: dict[str, object]) -> str:
    console = Console(file=io.StringIO(), width=120)
    console.print(table("title", list(rows)))
    return console.file.getvalue()  # type: ignore[attr-defined, no-any-return]


def test_columns_in_which_nothing_stands_are_left_out() -> None:
    text = shown({"topic": "a", "name": "", "messages": 0}, {"topic": "b", "name": "", "messages": 12})
    assert text.split() == ["title", "topic", "messages", "a", "0", "b", "12"]


def test_nothing_for_no_rows() -> None:
    assert isinstance(table("title", []), Text)
    assert shown().strip() == ""


def test_names_of_others_are_only_text() -> None:
    text = shown({"topic": "[red]a[/red] \x1b[31m", "command": "\udcff \n"})
    assert "[red]a[/red] \\x1b[31m" in text
    assert "\\xff \\n" in text
