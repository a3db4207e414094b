from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ipcbus_tools.top import figures
from tests.kit.cases import each_of


@each_of(
    ("value", "text"),
    [
        *[(None, "-"), (0, "0"), (0.0001, "0"), (0.01, "0.010"), (0.1, "0.1"), (1, "1"), (12.34, "12.3")],
        *[(99.96, "100"), (999.6, "1000"), (9999.4, "9999"), (12345, "12.3k"), (20_345_678, "20.3M")],
        *[(999_499, "999k"), (999_600, "1M"), (5e18, "5E"), (1e30, "1e+12")],
    ],
)
def test_count(value: float | None, text: str) -> None:
    assert figures.count(value) == text


@each_of(
    ("value", "text"),
    [(0, "0"), (1, "<0.01"), (20_000, "0.02"), (1_300_000, "1.2"), (205 << 20, "205"), (25_000 << 20, "25k")],
)
def test_mebibytes(value: float, text: str) -> None:
    assert figures.mebibytes(value) == text


@each_of(
    ("value", "text"),
    [(0, "0B"), (999, "999B"), (1000, "1.0KiB"), (65536, "64KiB"), (4 << 20, "4.0MiB"), (1 << 40, "1.0TiB")],
)
def test_size(value: float, text: str) -> None:
    assert figures.size(value) == text


@each_of(("value", "text"), [(None, "-"), (0, "0"), (0.001, "<1"), (0.42, "42"), (0.999, "99"), (1.0, "100")])
def test_share(value: float | None, text: str) -> None:
    assert figures.share(value) == text


@each_of(
    ("ns", "text"),
    [
        *[(None, "-"), (0, "0ns"), (450, "450ns"), (1_200, "1.2us"), (35_000_000, "35ms"), (2_100_000_000, "2.1s")],
        *[(90e9, "90s"), (720e9, "12m"), (12600e9, "3.5h"), (345600e9, "4d")],
    ],
)
def test_time(ns: float | None, text: str) -> None:
    assert figures.time(ns) == text


@given(st.floats(min_value=0, max_value=1e25))
def test_six_characters_are_enough(value: float) -> None:
    assert len(figures.count(value)) <= 6
    assert len(figures.size(min(value, 2**64))) <= 6
    assert len(figures.mebibytes(value)) <= 6
    assert len(figures.whole(value)) <= 6
    assert len(figures.time(min(value, 1e18))) <= 6


@each_of(
    ("command", "text"),
    [
        ("/usr/bin/python3 /opt/feed/main.py --to /tmp/x", "python3 main.py --to /tmp/x"),
        ("python -m feed", "python -m feed"),
        ("", ""),
        ("/bin/ /", "/bin/ /"),
    ],
)
def test_program(command: str, text: str) -> None:
    assert figures.program(command) == text


def test_sparkline() -> None:
    assert figures.sparkline((None, 0.0, 100.0), 5, unicode=True) == "   ▁█"
    assert figures.sparkline((0.0, 100.0), 2, unicode=False) == "_#"
    assert figures.sparkline((0.0, 0.0), 2, unicode=True) == "▁▁"
    assert figures.sparkline((), 3, unicode=True) == "   "
    assert figures.sparkline((1.0,), 0, unicode=True) == ""


def test_a_trickle_beside_a_burst_is_seen() -> None:
    assert figures.sparkline((0.0, 1e-3, 1e6), 3, unicode=True) == "▁▂█"


@given(st.lists(st.none() | st.floats(min_value=0, max_value=1e18)), st.integers(0, 80), st.booleans())
def test_sparkline_is_as_wide_as_asked(values: list[float | None], width: int, unicode: bool) -> None:
    assert len(figures.sparkline(values, width, unicode=unicode)) == width


def test_chart() -> None:
    assert figures.chart((None, 0.0, 50.0, 100.0), 5, 2, unicode=True) == ["    █", "   ██"]
    assert figures.chart((1.0, 16.0), 2, 2, unicode=True) == [" █", "▁█"]
    assert figures.chart((0.0, 100.0), 2, 1, unicode=False) == [" |"]
    assert figures.chart((), 3, 2, unicode=True) == ["   ", "   "]
    assert figures.chart((None, None), 2, 1, unicode=True) == ["  "]


@given(st.lists(st.none() | st.floats(0, 1e15), max_size=70), st.integers(0, 60), st.integers(1, 14), st.booleans())
def test_a_chart_has_its_size(values: list[float | None], width: int, height: int, unicode: bool) -> None:
    found = figures.chart(values, width, height, unicode=unicode)
    assert [len(line) for line in found] == [width] * height
    assert unicode or "".join(found).isascii()
