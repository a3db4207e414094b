from __future__ import annotations

import re

from ipcbus.archive.columns import COLUMNS
from ipcbus.spark import spark_reference


def test_the_page_is_current() -> None:
    """`python -m ipcbus.spark.spark_reference` writes it."""
    assert spark_reference.PAGE.read_text() == spark_reference.render()


def test_it_has_every_column_and_option() -> None:
    named = re.findall(r"^\| `(\w+)` ", spark_reference.render(), re.MULTILINE)
    options = [option.name for table in spark_reference.OPTIONS.values() for option in table]
    assert named == [*COLUMNS, *options]


def test_rows_have_as_many_cells_as_their_heads() -> None:
    for table in re.findall(r"(?:^\|.*\n)+", spark_reference.render(), re.MULTILINE):
        lines = [re.sub(r"`[^`]*`", "", line) for line in table.splitlines()]
        assert len({line.count("|") for line in lines}) == 1
