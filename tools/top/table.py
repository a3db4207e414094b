"""Tables that fit the screen: a narrow screen drops the least important columns first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from ipcbus_tools.common import visible

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_T = TypeVar("_T")

HEAD = "bold underline"
CHOSEN = "reverse"
ELLIPSIS = {True: "…", False: "~"}


@dataclass(frozen=True, slots=True)
class Column(Generic[_T]):
    """A column.

    Attributes:
        title: the title.
        width: width in characters.
        rank: the columns of the highest rank are dropped first when there is no room for all.
        cell: returns the text of a row for a width.
        left: whether the text is aligned to the left, as numbers are not.
        spread: weight with which the column shares spare room.
        style: returns the style of a cell; empty for the default.
    """

    title: str
    width: int
    rank: int
    cell: Callable[[_T, int], str]
    left: bool = False
    spread: int = 0
    style: Callable[[_T], str] | None = None


def number(
    title: str,
    width: int,
    rank: int,
    shown: Callable[[float | None], str],
    value: Callable[[_T], float | None],
    style: str = "",
    above: float = 0.0,
) -> Column[_T]:
    """Returns a column of a number; a number above a limit gets a style."""

    def of(row: _T) -> str:
        return style if (value(row) or 0.0) > above else ""

    return Column(title, width, rank, lambda row, _: shown(value(row)), style=of)


def fit(columns: Sequence[Column[_T]], width: int) -> list[tuple[Column[_T], int]]:
    """Returns the columns that fit, with their widths, which fill the screen if one of them spreads."""
    kept = list(columns)
    while len(kept) > 1 and sum(column.width + 1 for column in kept) - 1 > width:
        kept.remove(max(kept, key=lambda column: column.rank))
    spare = max(0, width - sum(column.width + 1 for column in kept) + 1)
    weight = sum(column.spread for column in kept)
    found = []
    for column in kept:
        more = spare * column.spread // weight if weight else 0
        spare, weight = spare - more, weight - column.spread
        found.append((column, min(width, column.width + more)))
    return found


def head(fitted: Sequence[tuple[Column[_T], int]], marked: str = "") -> Text:
    """Returns the line of titles; the title of one column may be marked."""
    text = Text(end="")
    for i, (column, width) in enumerate(fitted):
        text.append(" " if i else "", HEAD)
        text.append(cell(column.title, width, column.left), f"{HEAD} reverse" if column.title == marked else HEAD)
    return text


def title_at(fitted: Sequence[tuple[Column[_T], int]], place: int) -> str:
    """Returns the title of the column at a place of the line; empty between and behind the columns."""
    begin = 0
    for column, width in fitted:
        if begin <= place < begin + width:
            return column.title
        begin += width + 1
    return ""


def line(fitted: Sequence[tuple[Column[_T], int]], row: _T, *, unicode: bool) -> Text:
    """Returns the line of a row."""
    text = Text(end="")
    for i, (column, width) in enumerate(fitted):
        if i:
            text.append(" ")
        style = column.style(row) if column.style else ""
        text.append(cell(clean(column.cell(row, width)), width, column.left, unicode=unicode), style)
    return text


def cut(text: str, width: int, *, unicode: bool = True) -> str:
    """Returns the part of a text that fits, with a sign at its end if it is cut."""
    text = clean(text)
    if cell_len(text) <= width:
        return text
    return set_cell_size(text, max(0, width - 1)) + ELLIPSIS[unicode] if width > 0 else ""


def clean(text: str) -> str:
    """Returns text of other processes without control characters for the terminal."""
    return visible(text.encode(errors="surrogateescape"))


def window(chosen: int, offset: int, rows: int, total: int) -> int:
    """Returns the first row to show, so that the chosen row is visible and no line is wasted."""
    if rows <= 0:
        return 0
    offset = min(max(offset, chosen - rows + 1), chosen)
    return max(0, min(offset, total - rows))


def cell(text: str, width: int, left: bool, *, unicode: bool = True) -> str:
    """Returns a text cut or filled up to a width."""
    text = cut(text, width, unicode=unicode)
    space = " " * (width - cell_len(text))
    return text + space if left else space + text
