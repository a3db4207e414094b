from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows, ReadMinRows
from pyspark.sql.types import StructType

from ipcbus.errors import ConfigError
from ipcbus.spark.read_options import ReadOptions
from ipcbus.spark.stream_reader import StreamReader
from tests.kit.driving import Query, everything, sent, written
from tests.kit.hosts import Host, offsets_of, seqs
from tests.kit.records import Record, append

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path / "a")


def test_from_the_earliest_and_on_as_it_grows(host: Host) -> None:
    host.record(10)
    query = Query(host.options)
    assert seqs(query.next()) == list(range(10))
    assert query.next() is None
    host.record(5)
    host.record(3, "other")
    assert seqs(query.next()) == [*range(10, 15), *range(3)]
    assert query.log[-1] == f'{{"archive": "{host.archive.id}", "o": {{"host/0": 15, "other/1": 3}}, "v": 1}}'
    assert query.next() is None


def test_a_new_query_begins_at_the_latest(host: Host) -> None:
    host.record(10)
    query = Query({"archive": str(host.path)})
    assert query.reader.initialOffset()["o"] == {"host/0": 10}
    assert query.next() == []
    # What is recorded from now on is new, a log that comes from its begin.
    first = query.begin_of(0)
    host.record(2)
    host.record(1, "other")
    end = query.reader.latestOffset(first, ReadAllAvailable())
    assert end["o"] == {"host/0": 12, "other/1": 1}
    assert [(part.key, part.start, part.end) for part in query.reader.partitions(first, end)] == [
        ("host/0", 10, 12),
        ("other/1", 0, 1),
    ]


def test_nothing_new_gives_the_same_text(host: Host) -> None:
    """Another one would be new data to Spark, for ever."""
    host.record(3)
    query = Query(host.options)
    query.next()
    start = json.loads(query.log[-1])
    for limit in (ReadAllAvailable(), ReadMaxRows(5), ReadMaxBytes(5), ReadMinRows(1)):
        assert written(query.reader.latestOffset(start, limit)) == query.log[-1]
    assert query.reader.partitions(start, start) == []


def test_no_log_yet(host: Host) -> None:
    query = Query(host.options)
    assert query.next() == []
    assert query.next() is None
    host.record(2)
    assert seqs(query.next()) == [0, 1]


@pytest.mark.parametrize("starting", ["earliest", "latest"])
def test_the_first_batch_is_repeated_as_it_was(host: Host, starting: str) -> None:
    """Spark asks for the first offset again, and by then the latest one is another."""
    host.record(10, segment_bytes=4096)
    options = {"archive": str(host.path), "startingOffsets": starting}
    query = Query(options)
    begin = query.begin_of(0)
    host.record(5)
    end = query.reader.latestOffset(begin, ReadAllAvailable())
    query.log.append(written(end))
    before = query.run(0)
    host.record(7)
    query.start(options)
    assert query.run(0) == before
    assert seqs(query.next()) == list(range(15, 22))


def test_a_first_batch_without_rows_is_repeated_without_rows(host: Host) -> None:
    host.record(10)
    query = Query({"archive": str(host.path)})
    assert query.plan()
    host.record(5)
    query.start({"archive": str(host.path)})
    assert query.run(0) == []
    assert seqs(query.next()) == list(range(10, 15))


def test_a_batch_is_repeated_as_it_was_whatever_the_options_are_by_then(host: Host) -> None:
    host.record(100)
    query = Query({**host.options, "maxOffsetsPerTrigger": "30"})
    query.next()
    assert query.plan()
    before = [(part.key, part.start, part.end) for part in query.parts(1)]
    host.record(50)
    query.start({**host.options, "maxOffsetsPerTrigger": "7"})
    assert [(part.key, part.start, part.end) for part in query.parts(1)] == before
    assert seqs(query.run(1)) == list(range(30, 60))
    assert seqs(query.next()) == list(range(60, 67))


def test_tasks_of_a_repeated_batch_are_the_same_after_the_segment_was_closed(host: Host) -> None:
    host.record(100, size=1000)
    options = {**host.options, "minPartitions": "3"}
    query = Query(options)
    query.plan()
    before = [vars(part) for part in query.parts(0)]
    assert len(before) == 3
    host.record(100, size=1000, segment_bytes=4096)
    query.start(options)
    assert [vars(part) for part in query.parts(0)] == before


# ------------------------------------------------------------------------------------------ admission


def test_limits_of_the_options(host: Host) -> None:
    def limit(**options: str) -> object:
        return StreamReader(ReadOptions.of({**host.options, **options}, "stream"), StructType()).getDefaultReadLimit()

    assert limit() == ReadAllAvailable()
    assert limit(maxOffsetsPerTrigger="5") == ReadMaxRows(5)
    assert limit(maxBytesPerTrigger="6") == ReadMaxBytes(6)
    assert limit(minOffsetsPerTrigger="7") == ReadMinRows(7)
    assert limit(maxOffsetsPerTrigger="5", maxBytesPerTrigger="6") == ReadMaxRows(5)


def test_offsets_are_shared_among_logs(host: Host) -> None:
    host.record(90)
    host.record(10, "other")
    query = Query({**host.options, "maxOffsetsPerTrigger": "20"})
    batches = query.drain()
    assert [len(batch) for batch in batches] == [20] * 5
    assert offsets_of(query.log[0]) == {"host/0": 18, "other/1": 2}
    everything_read = sorted((row["partition"], row["seq"]) for batch in batches for row in batch)
    assert everything_read == [(0, n) for n in range(90)] + [(1, n) for n in range(10)]


def test_bytes_are_shared_among_logs(host: Host) -> None:
    host.record(30, size=100)
    host.record(10, "other", size=100)
    query = Query({**host.options, "maxBytesPerTrigger": "1000"})
    batches = query.drain()
    assert all(sum(len(row["value"]) for row in batch) <= 1000 for batch in batches)
    assert [len(batch) for batch in batches[:2]] == [9, 9]  # 7.5 of one and 2.5 of the other, rounded down
    assert sum(len(batch) for batch in batches) == 40


def test_a_message_that_is_longer_than_the_limit_goes_alone(host: Host) -> None:
    host.record(3, size=500)
    host.record(3, "other", size=500)
    query = Query({**host.options, "maxBytesPerTrigger": "100"})
    assert [len(batch) for batch in query.drain()] == [1] * 6


@pytest.mark.parametrize("more", [1, 2, 3])
def test_a_message_that_is_longer_than_the_share_of_its_log_has_its_turn(host: Host, more: int) -> None:
    """However much the other log has, and whatever goes on there."""
    host.record(2, size=3000)
    host.record(1, size=900)
    host.record(10, "other", size=100)
    query = Query({**host.options, "maxBytesPerTrigger": "1000"})
    batches = []
    for _ in range(8):
        batches.append(query.next() or [])
        host.record(more, "other", size=100)
    assert offsets_of(query.log[-1])["host/0"] == 3
    assert offsets_of(query.log[-1])["other/1"] > 10
    assert all(len(batch) == 1 or sum(len(row["value"]) for row in batch) <= 1000 for batch in batches)


def test_both_limits(host: Host) -> None:
    host.record(100, size=10)
    query = Query({**host.options, "maxOffsetsPerTrigger": "30", "maxBytesPerTrigger": "200"})
    assert [len(batch) for batch in query.drain()] == [20] * 5
    query = Query({**host.options, "maxOffsetsPerTrigger": "15", "maxBytesPerTrigger": "200"})
    assert len(query.drain()[0]) == 15


def test_once_reads_everything_whatever_the_limits(host: Host) -> None:
    host.record(100)
    query = Query({**host.options, "maxOffsetsPerTrigger": "3", "maxBytesPerTrigger": "8", "minOffsetsPerTrigger": "3"})
    assert len(query.next(everything()) or []) == 100


def test_least_offsets_are_waited_for_but_not_for_ever(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    host.record(10)
    query = Query({**host.options, "minOffsetsPerTrigger": "20", "maxTriggerDelay": "30s"})
    assert query.next() == []
    assert query.next() is None
    host.record(10)
    assert len(query.next() or []) == 20
    host.record(5)
    assert query.next() is None
    now += 31
    assert len(query.next() or []) == 5
    host.record(5)
    assert query.next() is None


def test_available_now_reads_what_there_was(host: Host) -> None:
    host.record(100)
    query = Query({**host.options, "maxOffsetsPerTrigger": "30", "minOffsetsPerTrigger": "25"}, available_now=True)
    host.record(50)
    host.record(5, "other")
    assert [len(batch) for batch in query.drain()] == [30, 30, 30, 10]
    assert query.reader.reportLatestOffset()["o"] == {"host/0": 100}
    query.start({**host.options, "minOffsetsPerTrigger": "1000"}, available_now=True)
    assert [len(batch) for batch in query.drain()] == [55]


def test_available_now_after_a_restart_beyond_its_target(host: Host) -> None:
    host.record(10)
    query = Query(host.options)
    query.next()
    query.reader._target = {"host/0": 5}
    assert query.next() is None


def test_the_backlog_is_reported(host: Host) -> None:
    host.record(100)
    query = Query({**host.options, "maxOffsetsPerTrigger": "30"})
    query.next()
    assert query.reader.reportLatestOffset() == {"archive": host.archive.id, "o": {"host/0": 100}, "v": 1}


# ------------------------------------------------------------------------------------------ begins of topics


def test_topics_that_begin_later_than_their_log(host: Host) -> None:
    with host.archive.writer("host") as writer:
        append(writer, [Record(topic="tu"[n % 2], seq=n) for n in range(20)])
    options = {
        "archive": str(host.path),
        "subscribe": "t,u",
        "startingOffsets": '{"t":{"0":4},"u":{"0":11}}',
        "maxOffsetsPerTrigger": "5",
    }
    query = Query(options)
    assert seqs(query.next()) == [4, 6, 8]
    assert json.loads(query.log[0])["skip"] == {"host/0": {"u": 11}}
    # What the options say later does not change what the query left out.
    query.start({**options, "startingOffsets": '{"t":{"0":0},"u":{"0":19}}'})
    assert seqs(query.run(0)) == [4, 6, 8]
    assert seqs(query.next()) == [10, 11, 12, 13]
    assert seqs(query.next()) == [14, 15, 16, 17, 18]
    assert "skip" not in json.loads(query.log[-1])
    assert seqs(query.next()) == [19]


def test_from_a_time(host: Host) -> None:
    host.record(10)
    query = Query({"archive": str(host.path), "startingTimestamp": "7000"})
    assert seqs(query.next()) == [7, 8, 9]


def test_only_partitions_that_are_assigned(host: Host) -> None:
    host.record(3)
    host.record(3, "other")
    query = Query({**host.options, "assign": '{"t":[1]}'})
    assert [row["partition"] for row in query.next() or []] == [1, 1, 1]
    assert offsets_of(query.log[0]) == {"other/1": 3}


def test_a_topic_that_comes_later(host: Host) -> None:
    host.record(3)
    query = Query({**host.options, "subscribePattern": "new.*"})
    assert query.next() == []
    host.record(2, topic="newer")
    assert len(query.next() or []) == 2


# ------------------------------------------------------------------------------------------ cursors


def test_commits_move_the_cursor(host: Host) -> None:
    host.record(10)
    query = Query({**host.options, "groupId": "audit", "maxOffsetsPerTrigger": "4"})
    query.next()
    assert host.archive.cursors.all()["audit"].offsets == {"host/0": 0}
    query.next()
    assert host.archive.cursors.all()["audit"].offsets == {"host/0": 4}
    query.next()
    assert host.archive.cursors.all()["audit"].offsets == {"host/0": 8}


def test_without_a_group_there_is_no_cursor(host: Host) -> None:
    host.record(10)
    Query({**host.options, "maxOffsetsPerTrigger": "4"}).drain()
    assert host.archive.cursors.all() == {}


def test_the_cursor_holds_what_a_stopped_query_needs(host: Host) -> None:
    keep: dict[str, float] = {"segment_bytes": 4096, "retain_seconds": 0.0}
    host.record(100, **keep)
    query = Query({**host.options, "groupId": "audit", "maxOffsetsPerTrigger": "40"})
    query.next()
    query.next()
    for _ in range(3):
        host.record(100, **keep)
    assert host.archive.log("host/0").bounds()[0] <= 40
    query.start({**host.options, "groupId": "audit"})
    assert seqs(query.next()) == list(range(80, 400))


KEEP: dict[str, float] = {"segment_bytes": 4096, "retain_seconds": 0.0}


def test_the_first_batch_is_held_too(host: Host) -> None:
    host.record(500, segment_bytes=4096)
    query = Query({**host.options, "groupId": "audit", "maxOffsetsPerTrigger": "100"})
    assert query.plan()
    host.record(10, **KEEP)
    assert seqs(query.run(0)) == list(range(100))


def test_a_first_batch_that_is_done_again_holds_where_it_began(host: Host) -> None:
    host.record(10, segment_bytes=4096)
    options = {"archive": str(host.path), "groupId": "audit"}
    begin = Query(options).begin_of(0)
    host.record(500, segment_bytes=4096)
    host.record(5, "other")
    assert Query(options).begin_of(0)["o"] == {"host/0": 510, "other/1": 5}
    assert host.archive.cursors.all()["audit"].offsets == begin["o"] == {"host/0": 10}
    # And another query that begins further back.
    Query({**host.options, "groupId": "audit"}).begin_of(0)
    assert host.archive.cursors.all()["audit"].offsets == {"host/0": 0}


@pytest.mark.parametrize(("assign", "kept"), [(None, 0), ('{"t":[0,1]}', 0), ('{"t":[0]}', 500)])
def test_a_log_that_comes_later_is_held_where_it_is_read(host: Host, assign: str | None, kept: int) -> None:
    host.record(10)
    query = Query({**host.options, "groupId": "audit", **({"assign": assign} if assign else {})})
    for _ in range(3):
        query.next()
        host.record(1)
    host.record(500, "other", segment_bytes=4096)
    host.record(1, "other", **KEEP)
    assert host.archive.log("other/1").bounds()[0] == kept


def test_columns_are_checked(host: Host) -> None:
    with pytest.raises(ConfigError, match="column x is unknown"):
        StreamReader(ReadOptions.of(host.options, "stream"), StructType().add("x", "long"))


def test_it_travels_to_the_tasks(host: Host) -> None:
    host.record(3)
    query = Query(host.options)
    query.plan()
    (part,) = query.parts(0)
    assert sum(batch.num_rows for batch in sent(query.reader).read(sent(part))) == 3
    query.reader.stop()
