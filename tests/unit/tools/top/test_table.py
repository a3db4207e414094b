from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from ipcbus_tools.top import table
from ipcbus_tools.top.table import Column
from tests.kit.cases import each_of

COLUMNS: list[Column[str]] = [
    Column("name", 6, 0, lambda row, _: row, left=True, spread=1),
    Column("a", 3, 2, lambda row, _: "1"),
    Column("b", 3, 1, lambda row, width: "#" * width, spread=3),
]


def titles(width: int) -> list[tuple[str, int]]:
    return [(column.title, given) for column, given in table.fit(COLUMNS, width)]


def test_what_matters_least_goes_first() -> None:
    assert titles(14) == [("name", 6), ("a", 3), ("b", 3)]
    assert titles(13) == [("name", 6 + 0), ("b", 3 + 3)]
    assert titles(9) == [("name", 9)]
    assert titles(4) == [("name", 4)]


def test_room_left_over_is_shared() -> None:
    assert titles(22) == [("name", 8), ("a", 3), ("b", 9)]


@given(st.integers(4, 300), st.text())
def test_a_line_is_as_wide_as_the_screen(width: int, name: str) -> None:
    fitted = table.fit(COLUMNS, width)
    assert table.head(fitted).cell_len == width
    assert table.line(fitted, name, unicode=True).cell_len == width
    assert "\n" not in table.line(fitted, name, unicode=True).plain


@each_of(
    ("text", "width", "found"),
    [("abc", 3, "abc"), ("abcd", 3, "ab…"), ("日本語", 4, "日 …"), ("x", 0, ""), ("\x1b[31m", 20, "\\x1b[31m")],
)
def test_cut(text: str, width: int, found: str) -> None:
    assert table.cut(text, width) == found
    assert cell_len(found) <= max(width, 0)


def test_cut_in_ascii() -> None:
    assert table.cut("abcd", 3, unicode=False) == "ab~"


@given(st.integers(0, 50), st.integers(-10, 60), st.integers(1, 20), st.integers(1, 51))
def test_the_chosen_row_is_in_the_window(chosen: int, offset: int, rows: int, total: int) -> None:
    chosen = min(chosen, total - 1)
    first = table.window(chosen, offset, rows, total)
    assert first <= chosen < first + rows
    assert 0 <= first <= max(0, total - rows)
