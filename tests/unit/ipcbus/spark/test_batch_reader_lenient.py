"""What a reader does without an error: topics that are not there, starts beyond the end, logs that are damaged."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING

import pytest

from ipcbus.archive.archive_layout import WATERMARK_AT
from ipcbus.errors import ArchiveDamaged, ArchiveMissing, OffsetsExpired
from tests.kit.driving import Batch, Query
from tests.kit.hosts import Host, seqs
from tests.kit.records import counted, packed

if TYPE_CHECKING:
    from pathlib import Path

LENIENT = {"failOnDataLoss": "false"}


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path / "a")


def zero(host: Host, name: str, stream: str = "host/0") -> None:
    """Overwrites the watermarks or the names of a log with zeros."""
    path = host.path / stream / name
    path.write_bytes(bytes(WATERMARK_AT[-1] + 200))


# --------------------------------------------------------------------------------------- topics that are not there


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"subscribe": "quotes.AAP,quotes.B"}, "there is no topic 'quotes.AAP', but 'quotes.AAPL'"),
        ({"subscribe": "zzz"}, "there is no topic 'zzz'; there are 2 topics"),
        ({"subscribePattern": r"trades\..*"}, r"no topic matches subscribePattern 'trades\\..*'"),
        ({"assign": '{"quotes.AAPL":[0,1]}'}, "partition 1 has no topic 'quotes.AAPL'; the archive has no topics"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_a_topic_that_the_archive_does_not_have(
    host: Host, more: dict[str, str], says: str, stream: bool, caplog: pytest.LogCaptureFixture
) -> None:
    host.record(3, topic="quotes.AAPL")
    host.record(3, topic="quotes.B")
    read = Query if stream else Batch
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            query = read({**host.options, **more})
            if isinstance(query, Query):
                query.drain()
    (told,) = [each.getMessage() for each in caplog.records]
    assert told.startswith(f"archive {host.path}: {says}")
    with pytest.raises(ArchiveMissing, match="failOnMissingTopic"):
        query = read({**host.options, **more, "failOnMissingTopic": "true"})
        if isinstance(query, Query):
            query.drain()


def test_topics_that_are_there_say_nothing(host: Host, caplog: pytest.LogCaptureFixture) -> None:
    host.record(3, topic="a")
    host.record(3, topic="b", stream="other")
    for more in ({"subscribe": "a,b"}, {"subscribePattern": "."}, {"assign": '{"a":[0],"b":[1]}'}, {}):
        assert Batch({**host.options, **more, "failOnMissingTopic": "true"}).rows()
    assert not caplog.records


# --------------------------------------------------------------------------------------- beyond the end


@pytest.mark.parametrize("which", ["startingOffsets", "endingOffsets"])
def test_offsets_beyond_the_end(host: Host, which: str, caplog: pytest.LogCaptureFixture) -> None:
    host.record(10)
    more = {**host.options, which: '{"t":{"0":11}}', "subscribe": "t"}
    with pytest.raises(OffsetsExpired, match="failOnDataLoss"):
        Batch(more)
    expected = [] if which == "startingOffsets" else list(range(10))
    assert seqs(Batch({**more, **LENIENT}).rows()) == expected
    assert (
        f"offset 11 of log host/0 of {host.path} was requested, but the log ends at 10; reading uses 10" in caplog.text
    )


def test_a_stream_that_begins_beyond_the_end(host: Host) -> None:
    host.record(10)
    query = Query({**host.options, "startingOffsets": '{"t":{"0":20}}', "subscribe": "t", **LENIENT})
    assert query.next() == []
    host.record(5)
    assert seqs(query.next()) == list(range(10, 15))


def test_a_checkpoint_that_names_a_log_that_is_gone(host: Host, caplog: pytest.LogCaptureFixture) -> None:
    host.record(10)
    text = json.dumps({"archive": host.archive.id, "o": {"host/0": 8, "other/1": 3}, "v": 1})
    assert seqs(Batch({**host.options, "startingOffsets": text, **LENIENT}).rows()) == [8, 9]
    assert "does not have; it is left out, as failOnDataLoss is false" in caplog.text


def test_a_stream_says_that_an_older_copy_has_less_than_it_read(host: Host, caplog: pytest.LogCaptureFixture) -> None:
    host.record(10)
    before = (host.path / "host" / "0" / "watermark").read_bytes()
    host.record(10)
    query = Query(host.options)
    assert len(query.next() or []) == 20
    (host.path / "host" / "0" / "watermark").write_bytes(before)
    assert query.next() is None
    assert "ends at 10, but the query has read it up to 20" in caplog.text


# --------------------------------------------------------------------------------------- damaged logs


@pytest.mark.parametrize("name", ["watermark", "names"])
def test_a_log_that_cannot_be_read_at_all(host: Host, name: str, caplog: pytest.LogCaptureFixture) -> None:
    host.record(10)
    host.record(10, "other")
    planned = Batch({**host.options, **LENIENT})
    zero(host, name)
    more = {**host.options, "startingOffsets": '{"t":{"0":3}}'}
    for strict in (host.options, more):
        with pytest.raises(ArchiveDamaged, match=name):
            Batch(strict)
    for lenient in (host.options, more):
        assert {row["partition"] for row in Batch({**lenient, **LENIENT}).rows()} == {1}
    assert "log host/0 is left out as a whole" in caplog.text
    # Damage that comes after the tasks were planned.
    assert {row["partition"] for row in planned.rows()} == {1}
    assert "offsets 0 to 9 (10 rows) are left out" in caplog.text


def test_a_stream_goes_on_with_a_damaged_log_that_was_repaired(host: Host) -> None:
    host.record(10)
    host.record(10, "other")
    query = Query({**host.options, **LENIENT})
    query.plan()
    good = (host.path / "host" / "0" / "watermark").read_bytes()
    zero(host, "watermark")
    assert [row["partition"] for row in query.run(0)] == [1] * 10  # planned before, and counted as lost
    host.record(5, "other")
    assert [row["partition"] for row in query.next() or []] == [1] * 5
    (host.path / "host" / "0" / "watermark").write_bytes(good)
    host.record(5)
    assert seqs(query.next()) == list(range(10, 15))


def test_a_header_block_that_makes_no_sense(host: Host, caplog: pytest.LogCaptureFixture) -> None:
    """The checksums agree with it: whoever wrote the archive wrote nonsense."""
    with host.archive.writer("host") as writer:
        for start in (0, 10):
            rows, data = packed(writer, counted(10, start, size=16))
            if start:
                rows["headers"][5], rows["length"][5] = 8, 8
                data = data[: 5 * 16] + b"\xff" * 16 + data[6 * 16 :]
            writer.append(rows, data)
    options = {**host.options, "includeHeaders": "true", "batchRows": "10"}
    with pytest.raises(ArchiveDamaged, match="header block"):
        Batch(options).rows()
    assert seqs(Batch({**options, **LENIENT}).rows()) == [*range(15), *range(16, 20)]
    assert "offsets 15 to 15 (1 rows) are left out" in caplog.text
    with_events = Batch({**options, **LENIENT, "includeEvents": "true"}).rows()
    assert [row["type"] for row in with_events] == [0] * 15 + [254] + [0] * 4
