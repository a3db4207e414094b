"""The real feeds from the bus into an archive, from there onto the bus again, and into a second archive."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from ipcbus.archive import Archive
from tests.kit.recording import RecorderProcess, losses, messages, rows_of
from tests.system.test_feeds import DATA, FEEDS, LONGEST, MESSAGES, Chain, expected

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from tests.kit.recording import Row


def replay(path: Path, domain: str, *arguments: str) -> dict[str, Any]:
    """`ipcbus replay`, when the recorder has joined; returns what it reports."""
    common = ("--wait-receivers", "1", "--linger", "60", "--domain", domain, "--json")
    ended = subprocess.run(
        [sys.executable, "-m", "ipcbus_tools", "replay", str(path), *common, *arguments],
        check=False,
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0, ended.stderr
    report: dict[str, Any] = json.loads(ended.stdout)
    assert report["complete"]
    assert report["everything_read"]
    return report


def chains(rows: Iterable[Row]) -> dict[str, Chain]:
    """The messages of each topic in their order, as the feeds' own test reckons them."""
    found: dict[str, Chain] = {}
    for row in messages(rows):
        found.setdefault(row.topic, Chain()).add(row.value)
    return found


@pytest.mark.long
@pytest.mark.skipif(not all((DATA / feed).exists() for feed in FEEDS), reason=f"the captured feeds are not in {DATA}")
@pytest.mark.parametrize("transport", ["lbtipc", "lbtsmx"])
def test_feeds_are_recorded_and_replayed_byte_for_byte(domain: str, transport: str, tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    with RecorderProcess(domain, first, ".*", "--pattern", "--lossless") as recorder:
        reports = {feed: replay(DATA / feed, domain, "--transport", transport) for feed in FEEDS}
        report = recorder.end()
    assert report["messages"] == MESSAGES
    rows = rows_of(Archive(first))
    assert losses(rows) == []
    for feed in FEEDS:
        mine = chains(row for row in rows if row.source in reports[feed]["sessions"])
        assert {topic: chain.facts() for topic, chain in mine.items()} == expected(feed)
    assert sum(1 for _ in messages(rows)) == MESSAGES
    assert max(len(row.value) for row in rows) == LONGEST

    with RecorderProcess(domain, second, ".*", "--pattern", "--lossless") as recorder:
        again = replay(first, domain, "--transport", transport)
        report = recorder.end()
    assert again["messages"] == report["messages"] == MESSAGES
    recorded, replayed = chains(rows), chains(rows_of(Archive(second)))
    assert {topic: chain.facts() for topic, chain in replayed.items()} == {
        topic: chain.facts() for topic, chain in recorded.items()
    }
    assert again["topics"] == {topic: chain.messages for topic, chain in recorded.items()}
