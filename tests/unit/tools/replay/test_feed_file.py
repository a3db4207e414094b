from __future__ import annotations

import gzip
from typing import TYPE_CHECKING

import pytest

from ipcbus_tools.common import Failure
from ipcbus_tools.replay.feed_file import FeedFile

if TYPE_CHECKING:
    from pathlib import Path

CAPTURE = (
    b'100 {"stream":"a@trade","data":{"t":1}}\n'
    b'200 {"data":{"stream":"inside"},"stream":"late"}\n'
    b'150 {"lastUpdateId":1, "bids":[]}\n'
    b'300 {"stream":"with \\u0041 escape"}\n'
    b'400 {"stream":17}\n'
    b'500 {"stream":null}\n'
    b'600 {"stream":""}\n'
    b"700 [1, 2]\n"
    b'800 {"cut off\n'
    b"\n"
    b'900 {"stream":"a@trade"}'
)
EXPECTED = [
    (100, "a@trade", b'{"stream":"a@trade","data":{"t":1}}'),
    (200, "late", b'{"data":{"stream":"inside"},"stream":"late"}'),
    (150, "feed", b'{"lastUpdateId":1, "bids":[]}'),
    (300, "with A escape", b'{"stream":"with \\u0041 escape"}'),
    (400, "17", b'{"stream":17}'),
    (500, "feed", b'{"stream":null}'),
    (600, "feed", b'{"stream":""}'),
    (700, "feed", b"[1, 2]"),
    (800, "feed", b'{"cut off'),
    (900, "a@trade", b'{"stream":"a@trade"}'),
]


def write(path: Path, content: bytes, *, packed: bool = False) -> Path:
    """The content as a file; its name does not tell what it is."""
    path.write_bytes(gzip.compress(content) if packed else content)
    return path


@pytest.mark.parametrize("packed", [False, True])
def test_capture(tmp_path: Path, packed: bool) -> None:
    feed = FeedFile(write(tmp_path / "f", CAPTURE, packed=packed))
    assert feed.is_capture
    assert list(feed.lines()) == EXPECTED
    assert list(feed.lines()) == EXPECTED  # once more from the beginning
    survey = feed.survey()
    assert (survey.messages, survey.longest) == (10, 44)
    assert survey.bytes == sum(len(payload) for _, _, payload in EXPECTED)
    assert (survey.first_ns, survey.last_ns) == (100, 900)
    assert survey.topics == {"a@trade": 2, "late": 1, "feed": 5, "with A escape": 1, "17": 1}


def test_other_key_and_topic(tmp_path: Path) -> None:
    feed = FeedFile(write(tmp_path / "f", b'1 {"s":"x"}\n2 {"stream":"y"}\n'), key="s", topic="rest")
    assert [topic for _, topic, _ in feed.lines()] == ["x", "rest"]


@pytest.mark.parametrize("key", ['a"b', "a.b", "ä", "a\\b"])
def test_keys_are_literal(tmp_path: Path, key: str) -> None:
    import json

    for ensure_ascii in (True, False):
        content = f"1 {json.dumps({key: 'found'}, ensure_ascii=ensure_ascii)}\n".encode()
        assert [topic for _, topic, _ in FeedFile(write(tmp_path / "f", content), key=key).lines()] == ["found"]


@pytest.mark.parametrize("packed", [False, True])
def test_text(tmp_path: Path, packed: bool) -> None:
    lines = [b"first", b"", b"\xff\x00 bytes", b"12 but no JSON", b"ends with CR\r"]
    feed = FeedFile(write(tmp_path / "f", b"\n".join(lines), packed=packed), topic="log")
    assert not feed.is_capture
    assert list(feed.lines()) == [(0, "log", line) for line in lines]


def test_empty(tmp_path: Path) -> None:
    assert FeedFile(write(tmp_path / "f", b"")).survey().messages == 0


@pytest.mark.parametrize("line", [b"no time stamp\n", b"12\n", b'x1 {"a":1}\n', b"1" * 20 + b" {}\n"])
def test_capture_with_another_line(tmp_path: Path, line: bytes) -> None:
    feed = FeedFile(write(tmp_path / "f", b'1 {"a":1}\n' + line))
    with pytest.raises(Failure, match="line 2: no '<ns> <JSON>'"):
        feed.survey()


def test_a_line_nested_too_deeply_to_be_read_has_the_topic_of_lines_without_one(tmp_path: Path) -> None:
    payload = b"[" * 200_000
    feed = FeedFile(write(tmp_path / "f", b"1 {}\n2 " + payload + b"\n"), topic="log")
    assert list(feed.lines()) == [(1, "log", b"{}"), (2, "log", payload)]


def test_damaged_gzip(tmp_path: Path) -> None:
    whole = gzip.compress(CAPTURE * 1000)
    for damaged in (whole[: len(whole) // 2], whole[:-20] + bytes(20), whole[:2]):
        with pytest.raises(Failure, match="damaged gzip file"):
            FeedFile(write(tmp_path / "f", damaged)).survey()


def test_not_a_file(tmp_path: Path) -> None:
    with pytest.raises(Failure, match="is not a regular file"):
        FeedFile(tmp_path)
