"""What docs/reference/archive-format.md says of each byte is what ipcbus/archive/archive_layout.py says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ipcbus.archive import archive_layout

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "archive-format.md").read_text()
TYPES = {"<u2": "u2", "<u4": "u4", "<u8": "u8", "<i8": "i8", "|u1": "u1", "|S8": "S8", "|V16": "V16"}


@pytest.mark.parametrize(
    ("title", "described"),
    [
        ("Row", archive_layout.ROW),
        ("Block", archive_layout.BLOCK),
        ("Watermark", archive_layout.WATERMARK),
        ("Names", archive_layout.NAME),
    ],
)
def test_tables_are_those_of_the_layout(title: str, described: object) -> None:
    _, _, section = PAGE.partition(f"\n## {title}\n")
    rows = re.findall(r"^\| `(\w+)` \| (\d+) \| (\w+) \|", section.partition("\n## ")[0], re.MULTILINE)
    fields = getattr(described, "fields", None) or {}
    assert rows == [(name, str(at), TYPES[kind.str]) for name, (kind, at) in fields.items()]


def test_numbers_are_those_of_the_layout() -> None:
    assert f"Format {archive_layout.FORMAT};" in PAGE
    assert "at {}, {} and {}".format(*archive_layout.WATERMARK_AT) in PAGE
    assert archive_layout.BLOCK_BYTES_MAX == 2**26
    for size in (archive_layout.ROW.itemsize, archive_layout.BLOCK.itemsize):
        assert f"\n{size} bytes in" in PAGE
    assert f"three of {archive_layout.WATERMARK.itemsize} bytes" in PAGE
    for kind in (archive_layout.TYPE_LOSS_DAMAGE, archive_layout.TYPE_LOSS_RECORDER):
        assert re.search(rf"\b{kind}\b", PAGE)
