from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from ipcbus.resolution.network.pattern_prefix import literal_prefix
from tests.kit.cases import each_of


@each_of(
    ("pattern", "prefix"),
    [
        (r"quotes\..*", "quotes."),
        (r"^quotes\.A", "quotes.A"),
        (r"quotes\.(AAPL|MSFT)", "quotes."),
        (r"quotes|orders", ""),
        (r"a\|b", "a|b"),
        (r"ab?c", "a"),
        (r"ab*", "a"),
        (r"ab+", "ab"),
        (r"ab{0,3}", "a"),
        (r"a\d", "a"),
        (r"a\n", "a"),
        (r"(?i)abc", ""),
        (r"a[|]b", ""),
        (r"[ab]c", ""),
        (r".*", ""),
        ("", ""),
        ("a\\", "a"),
        (r"a$", "a"),
        ("\ud800", ""),
        ("a\0b", "a"),
        ("x" * 300, "x" * 255),
        ("x" + "é" * 200, "x" + "é" * 127),
    ],
)
def test_prefixes(pattern: str, prefix: str) -> None:
    assert literal_prefix(pattern) == prefix


@given(st.text(r"ab.\*+?|()[]{}^$1,", max_size=10), st.text("ab.|1", max_size=6))
def test_what_matches_begins_with_it(pattern: str, topic: str) -> None:
    try:
        matches = re.fullmatch(pattern, topic)
    except (re.error, FutureWarning, OverflowError):
        return
    if matches:
        assert topic.startswith(literal_prefix(pattern))
