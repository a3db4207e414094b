"""A stream whose archive lost something, or was taken away."""

from __future__ import annotations

import json
import logging
import shutil
from typing import TYPE_CHECKING

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from ipcbus.archive import Archive
from ipcbus.errors import ArchiveError, ArchiveMissing, OffsetsExpired
from tests.kit.driving import Query
from tests.kit.hosts import Host, offsets_of, seqs

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path / "a")


@pytest.fixture
def expired(host: Host) -> Query:
    """A query that has read offsets 0 to 39, of an archive that is kept from 100 on."""
    host.record(100)
    query = Query({**host.options, "maxOffsetsPerTrigger": "40"})
    query.next()
    host.record(100, retain_seconds=0.0)
    assert host.archive.log("host/0").bounds() == (100, 200)
    return query


def test_retention_under_a_stopped_query(host: Host, expired: Query) -> None:
    expired.start(host.options)
    expired.plan()
    with pytest.raises(OffsetsExpired, match=r"log host/0 .* kept from 100 on: offsets 40 to 99 \(60 rows\)"):
        expired.parts(1)


def test_retention_under_a_stopped_query_that_goes_on(
    host: Host, expired: Query, caplog: pytest.LogCaptureFixture
) -> None:
    options = {**host.options, "failOnDataLoss": "false"}
    expired.start(options)
    with caplog.at_level(logging.WARNING):
        assert seqs(expired.next()) == list(range(100, 200))
    assert "offsets 40 to 99 (60 rows) are left out" in caplog.text
    assert expired.next() is None


def test_what_retention_took_away_is_an_event(host: Host, expired: Query) -> None:
    """Nobody else reports it, and an audit would raise the alarm."""
    options = {**host.options, "failOnDataLoss": "false", "includeEvents": "true"}
    expired.start({**options, "maxOffsetsPerTrigger": "30"})
    for offset in (40, 70):
        assert [(row["type"], row["offset"], row["numbers"]) for row in expired.next() or []] == [(254, offset, 30)]
    expired.start(options)
    host.record(10, retain_seconds=0.0)
    rows = expired.next() or []
    assert [row["offset"] for row in rows] == [100, *range(200, 210)]
    assert (rows[0]["type"], rows[0]["numbers"]) == (254, 100)
    assert expired.next() is None


def test_limits_where_data_is_lost(host: Host, expired: Query) -> None:
    """Bytes that are gone are none, and a batch moves on nevertheless."""
    expired.start({**host.options, "failOnDataLoss": "false", "maxBytesPerTrigger": "80"})
    assert seqs(expired.next()) == list(range(100, 110))


def test_another_archive_in_its_place(host: Host) -> None:
    host.record(10)
    query = Query(host.options)
    query.next()
    shutil.rmtree(host.path)
    with pytest.raises(ArchiveMissing):
        query.plan()
    Archive.create(host.path)
    begin = json.loads(query.log[0])
    for call in (
        lambda: query.reader.latestOffset(begin, ReadAllAvailable()),
        lambda: query.reader.partitions(begin, begin),
    ):
        with pytest.raises(ArchiveMissing, match="a new checkpoint for this one"):
            call()


@pytest.mark.parametrize(("lenient", "rows"), [("false", None), ("true", 5)])
def test_a_log_that_is_gone(host: Host, lenient: str, rows: int | None) -> None:
    host.record(10)
    host.record(10, "other")
    options = {**host.options, "failOnDataLoss": "false" if lenient == "true" else "true"}
    query = Query(options)
    query.plan()
    shutil.rmtree(host.path / "other")
    query.start(options)
    if rows is None:
        with pytest.raises(OffsetsExpired, match=r"log other/1 .* no longer exists: offsets 0 to 9"):
            query.parts(0)
        return
    assert len(query.run(0)) == 10
    host.record(rows)
    assert len(query.next() or []) == rows
    assert offsets_of(query.log[-1]) == {"host/0": 15, "other/1": 10}


def test_an_archive_that_was_put_back(host: Host) -> None:
    """An older copy has the same id and not all of the offsets."""
    host.record(10)
    shutil.copytree(host.path, host.path.with_name("copy"))
    host.record(10)
    query = Query(host.options)
    query.plan()
    shutil.rmtree(host.path)
    host.path.with_name("copy").rename(host.path)
    query.start(host.options)
    with pytest.raises(OffsetsExpired, match=r"ends at 10: offsets 10 to 19 \(10 rows\)"):
        query.parts(0)
    query.start({**host.options, "failOnDataLoss": "false"})
    assert len(query.run(0)) == 10


def test_an_end_before_the_begin(host: Host) -> None:
    host.record(10)
    query = Query(host.options)
    begin, end = ({"archive": host.archive.id, "o": {"host/0": at}, "v": 1} for at in (5, 3))
    with pytest.raises(ArchiveError, match="was requested from 5 to 3"):
        query.reader.partitions(begin, end)
