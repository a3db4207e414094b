from __future__ import annotations

import time

import click
import pytest

from ipcbus_tools.common import (
    Failure,
    Misuse,
    age,
    as_size,
    as_time,
    duration,
    number,
    output,
    size,
    source_options,
    visible,
)
from tests.kit.cases import each_of

OPTION = click.Option(["--size"])
CONTEXT = click.Context(click.Command("made"))


@each_of(
    ("ns", "text"),
    [
        *((None, "-"), (0, "0 ns"), (812, "812 ns"), (999.7, "1 us"), (1500, "1.5 us"), (108_500, "108 us")),
        *((999_600, "1 ms"), (12_340_000, "12.3 ms"), (2_500_000_000, "2.5 s")),
    ],
)
def test_duration(ns: float | None, text: str) -> None:
    assert duration(ns) == text


@each_of(("value", "text"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (2**22, "4.0 MiB"), (2**31, "2.0 GiB")])
def test_size(value: float, text: str) -> None:
    assert size(value) == text


@each_of(
    ("seconds", "text"),
    [(-1, "0 s"), (119, "119 s"), (150, "2 min"), (7200, "2 h"), (172_800, "2 d")],
)
def test_age(seconds: float, text: str) -> None:
    assert age(seconds) == text


def test_number() -> None:
    assert number(1234567) == "1,234,567"


@each_of(
    ("data", "text"),
    [
        (b"plain", "plain"),
        ("wört".encode(), "wört"),
        (b"", ""),
        (b"\x1b[31mred\n\t\x07", "\\x1b[31mred\\n\\t\\x07"),
        (b"\xff\xfe", "\\xff\\xfe"),
        ("\u202eevil".encode(), "\\u202eevil"),
    ],
)
def test_visible_text_cannot_do_anything(data: bytes, text: str) -> None:
    assert visible(data) == text


def test_source_options() -> None:
    assert source_options(None) == {}
    assert source_options("lbtsmx") == {"transport": "lbtsmx"}


def test_a_reader_that_has_gone_ends_tables_as_it_ends_lines() -> None:
    with pytest.raises(BrokenPipeError):
        output().on_broken_pipe()


def test_failures_are_one_line() -> None:
    assert Failure("first\n  second").message == "first second"
    assert (Failure("").exit_code, Misuse("").exit_code) == (1, 2)


@each_of(
    ("text", "size"),
    [("0", 0), ("4096", 4096), ("64K", 65536), ("64 kib", 65536), ("1.5G", 3 << 29), ("2TB", 2 << 40), ("7B", 7)],
)
def test_a_size_is_read(text: str, size: int) -> None:
    assert as_size(CONTEXT, OPTION, text) == size


@each_of("text", ["", "-1", "1e3", "nan", "M", "1 M B", "1,5M", "\u0661M"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match="is not a size"):
        as_size(CONTEXT, OPTION, text)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1970-01-02T00:00", 79200),
        ("1970-01-02T00:00Z", 86400),
        ("1970-01-02T00:00-01:00", 90000),
        ("1970-01-02", 79200),
    ],
)
def test_a_time_without_zone_is_local(text: str, seconds: int, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "Test-2")  # two hours before UTC
        time.tzset()
        at = as_time(text)
    time.tzset()
    assert at is not None
    assert at.timestamp() == seconds


@each_of("text", ["", "soon", "25:00", "0001-01-01"])
def test_what_is_not_a_time(text: str) -> None:
    assert as_time(text) is None
