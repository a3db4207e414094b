from __future__ import annotations

import logging
import os
import shutil
import socket
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import datasource as ds
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from ipcbus.archive import Archive, Limits
from ipcbus.errors import ArchiveDamaged, ArchiveError, ArchiveMissing, ConfigError, OffsetsExpired
from ipcbus.spark import partitions
from tests.kit.archives import Watch, lose_in_power_loss
from tests.kit.driving import Batch, task
from tests.kit.records import Record, append, as_rows, counted

if TYPE_CHECKING:
    from collections.abc import Sequence

KAFKA = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]
OURS = ["session", "seq", "publishTimeNs", "receiveTimeNs", "flags"]


@pytest.fixture
def options(tmp_path: Path) -> dict[str, str]:
    return {"archive": str(tmp_path / "a")}


def record(options: dict[str, str], *blocks: list[Record], stream: str = "host", **limits: int) -> None:
    """Appends blocks of records to an archive."""
    with Archive.create(options["archive"]).writer(stream, limits=Limits(**limits)) as writer:
        for block in blocks:
            append(writer, block)


def offsets(options: dict[str, str], **more: str) -> list[int]:
    return [row["offset"] for row in Batch({**options, **more}, StructType().add("offset", "long")).rows()]


def damage(options: dict[str, str], suffix: str, at: int) -> None:
    """Changes a byte of the first segment."""
    directory = os.path.join(options["archive"], "host", "0")
    name = sorted(name for name in os.listdir(directory) if name.endswith(suffix))[0]
    with open(os.path.join(directory, name), "r+b") as file:
        file.seek(at)
        byte = file.read(1)
        file.seek(at)
        file.write(bytes([byte[0] ^ 0xFF]))


def test_everything(options: dict[str, str]) -> None:
    records = [*counted(5), Record(type=4, numbers=7), *counted(3, 20, "u")]
    record(options, records)
    messages = [row for row in as_rows(records) if row["type"] == 0]
    assert Batch(options).rows() == [{name: row[name] for name in [*KAFKA, *OURS]} for row in messages]


def test_the_wait_in_the_batch_by_its_name_and_its_filter_is_left_to_spark(options: dict[str, str]) -> None:
    """It may be null."""
    record(options, [Record(b"a", batch_wait_ns=0), Record(b"b", batch_wait_ns=62_500_000), Record(b"c")])
    batch = Batch(options, StructType().add("batchWaitNs", "long"), filters=[ds.LessThan(("batchWaitNs",), 5)])
    assert [row["batchWaitNs"] for row in batch.rows()] == [0, 62_500_000, None]
    assert len(batch.left) == 1


def test_events_and_headers_on_request(options: dict[str, str]) -> None:
    records = [
        Record(type=20, numbers=0),
        Record(b"1", headers=(("key", b"k"), ("n", b""))),
        Record(topic="", source="", type=255, numbers=7),
        Record(type=1, numbers=0),
    ]
    record(options, records)
    assert Batch({**options, "includeEvents": "true", "includeHeaders": "true"}).rows() == as_rows(records)


def test_columns_that_a_user_names(options: dict[str, str]) -> None:
    record(options, counted(3))
    found = Batch(options, StructType().add("seq", "long").add("topic", "string")).rows()
    assert found == [{"seq": number, "topic": "t"} for number in range(3)]


def test_an_archive_without_a_log(options: dict[str, str]) -> None:
    Archive.create(options["archive"])
    batch = Batch(options)
    assert batch.partitions == []
    # Spark asks for one partition of its own then.
    assert task(batch.reader, InputPartition(None), batch.schema) == []


def test_logs_are_partitions(options: dict[str, str]) -> None:
    record(options, counted(3), stream="g")
    record(options, counted(2, 10), stream="h")
    found = [(row["partition"], row["offset"], row["seq"]) for row in Batch(options).rows()]
    assert found == [(0, 0, 0), (0, 1, 1), (0, 2, 2), (1, 0, 10), (1, 1, 11)]


@pytest.mark.parametrize(
    ("more", "topics"),
    [
        ({"subscribe": "b.1, c"}, ["b.1", "c"]),
        ({"subscribe": "nowhere"}, []),
        ({"subscribePattern": r"b\..*"}, ["b.1", "b.2"]),
        ({"subscribePattern": "b"}, []),
        ({"assign": '{"a":[0],"c":[1]}'}, ["a"]),
        ({}, ["a", "b.1", "b.2", "c"]),
    ],
)
def test_topics(options: dict[str, str], more: dict[str, str], topics: list[str]) -> None:
    record(options, [Record(topic=topic) for topic in ("a", "b.1", "b.2", "c")])
    record(options, [Record(topic="d")], stream="other")
    found = {row["topic"] for row in Batch({**options, **more}).rows()}
    assert sorted(found - {"d"}) == topics
    assert ("d" in found) == (more == {})


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({"startingOffsets": '{"t":{"0":7}}', "subscribe": "t"}, [8]),
        ({"startingOffsets": '{"t":{"0":6}}'}, [1, 3, 5, 6, 7, 8, 9]),
        ({"startingOffsets": '{"t":{"0":6},"u":{"0":3}}', "subscribe": "t,u"}, [3, 5, 6, 7, 8, 9]),
        ({"startingOffsets": '{"t":{"0":-2},"u":{"0":10}}', "subscribe": "t,u"}, [0, 2, 4, 6, 8]),
        ({"endingOffsets": '{"t":{"0":3}}', "subscribe": "t"}, [0, 2]),
        ({"endingOffsets": '{"t":{"0":3},"u":{"0":-1}}', "subscribe": "t,u"}, [0, 1, 2, 3, 5, 7, 9]),
        ({"startingOffsets": '{"t":{"0":4},"u":{"0":9}}', "endingOffsets": '{"t":{"0":7},"u":{"0":10}}'}, [4, 6, 9]),
        ({"startingTimestamp": "4000", "endingTimestamp": "6500"}, [4, 5, 6]),
        ({"startingOffsetsByTimestamp": '{"t":{"0":7500},"u":{"0":8500}}', "subscribe": "t,u"}, [8, 9]),
        ({"endingOffsetsByTimestamp": '{"t":{"0":1500}}', "subscribe": "t"}, [0]),
        ({"endingTimestamp": "999999"}, list(range(10))),
        ({"startingTimestamp": "999999", "startingOffsetsByTimestampStrategy": "latest"}, []),
    ],
)
def test_begin_and_end(options: dict[str, str], more: dict[str, str], expected: list[int]) -> None:
    """Even offsets are of topic t, odd ones of u."""
    record(options, [each for n in range(0, 10, 2) for each in (*counted(1, n, "t"), *counted(1, n + 1, "u"))])
    assert offsets(options, **more) == expected


def test_begin_at_the_offsets_of_a_checkpoint(options: dict[str, str]) -> None:
    record(options, counted(10))
    archive = Archive(options["archive"])
    text = f'{{"archive":"{archive.id}","o":{{"host/0":8}},"v":1}}'
    assert offsets(options, startingOffsets=text) == [8, 9]
    assert offsets(options, endingOffsets=text) == list(range(8))


@pytest.mark.parametrize(
    ("more", "error", "says"),
    [
        (
            {"startingOffsets": '{"t":{"1":0}}'},
            ConfigError,
            "name partition 1 of topic 't', but archive .* has partitions",
        ),
        ({"startingOffsets": '{"u":{"0":0}}', "subscribe": "t"}, ConfigError, "name topic 'u' of partition 0"),
        ({"startingTimestamp": "10000"}, ConfigError, "has no row received at 10000 ms"),
        ({"startingOffsets": '{"t":{"0":11}}'}, OffsetsExpired, "offset 11 of log host/0 .* ends at 10"),
        (
            {"startingOffsets": '{"t":{"0":9}}', "endingOffsets": '{"t":{"0":3}}', "subscribe": "t"},
            ArchiveError,
            "log host/0 .* was requested from 9 to 3",
        ),
        ({"startingOffsets": '{"archive":"x","o":{},"v":1}'}, ArchiveMissing, "offsets are of archive 'x'"),
    ],
)
def test_begins_that_make_no_sense(
    options: dict[str, str], more: dict[str, str], error: type[Exception], says: str
) -> None:
    record(options, counted(10))
    with pytest.raises(error, match=says):
        Batch({**options, **more})


def test_tasks_are_many_enough_and_cover_everything_once(options: dict[str, str]) -> None:
    record(options, counted(1000))
    record(options, counted(10), stream="small")
    for least in (1, 2, 3, 7, 64, 2000):
        parts: list[Any] = Batch({**options, "minPartitions": str(least)}).partitions
        assert min(least, 1010) <= len(parts)
        covered = [(part.key, offset) for part in parts for offset in range(part.start, part.end)]
        assert covered == [("host/0", n) for n in range(1000)] + [("small/1", n) for n in range(10)]


def test_tasks_are_small_enough(options: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    record(options, counted(1000, size=100))
    monkeypatch.setattr(partitions, "BYTES_PER_TASK", 25_000)
    assert len(Batch(options).partitions) == 4
    monkeypatch.setattr(partitions, "ROWS_PER_TASK", 100)
    assert len(Batch(options).partitions) == 10


def test_limits_of_an_arrow_batch(options: dict[str, str]) -> None:
    record(options, counted(100, size=100))
    assert [batch.num_rows for batch in Batch({**options, "batchRows": "40"}).batches()] == [40, 40, 20]
    by_bytes = Batch({**options, "batchBytes": "5000"}).batches()
    assert [batch.num_rows for batch in by_bytes] == [50, 50]


# ------------------------------------------------------------------------------------------ what goes wrong


def test_no_archive_there(options: dict[str, str]) -> None:
    with pytest.raises(ArchiveMissing, match=socket.gethostname()):
        Batch(options)


def test_a_task_on_a_host_without_the_archive(options: dict[str, str], tmp_path: Path) -> None:
    record(options, counted(3))
    batch = Batch(options)
    (tmp_path / "a").rename(tmp_path / "b")
    with pytest.raises(ArchiveMissing, match=f"the query was planned on host {socket.gethostname()}"):
        batch.rows()
    Archive.create(options["archive"])
    with pytest.raises(ArchiveMissing, match="was expected"):
        batch.rows()


def expired(options: dict[str, str]) -> None:
    """An archive of offsets 0 to 299, of which those from 200 on are kept."""
    with Archive.create(options["archive"]).writer("host", limits=Limits(retain_bytes=0)) as writer:
        for begin in (0, 100, 200):
            append(writer, counted(100, begin))
            if begin < 200:
                writer.roll()
        writer.retain(0)
        assert writer.log.bounds() == (200, 300)


def test_offsets_that_are_no_longer_kept(options: dict[str, str], caplog: pytest.LogCaptureFixture) -> None:
    expired(options)
    more = {"startingOffsets": '{"t":{"0":150}}', "subscribe": "t"}
    with pytest.raises(OffsetsExpired, match=r"log host/0 .* kept from 200 on: offsets 150 to 199 \(50 rows\)"):
        Batch({**options, **more})
    with caplog.at_level(logging.WARNING):
        assert offsets(options, failOnDataLoss="false", **more) == list(range(200, 300))
    assert "offsets 150 to 199 (50 rows) are left out" in caplog.text
    assert offsets(options) == list(range(200, 300))  # the earliest is what is kept


def test_retention_overtakes_a_task(options: dict[str, str], caplog: pytest.LogCaptureFixture) -> None:
    with Archive.create(options["archive"]).writer("host", limits=Limits(retain_bytes=0)) as writer:
        for begin in (0, 100):
            append(writer, counted(100, begin))
            writer.roll()
        append(writer, counted(100, 200))
        strict = Batch(options)
        lenient = Batch({**options, "failOnDataLoss": "false", "includeEvents": "true"})
        writer.retain(0)
    with pytest.raises(OffsetsExpired):
        strict.rows()
    found = lenient.rows()
    assert [(row["offset"], row["type"], row["numbers"]) for row in found[:2]] == [(0, 254, 200), (200, 0, 1)]
    assert len(found) == 101
    assert "they are no longer kept: offsets 0 to 199 (200 rows) are left out" in caplog.text


@pytest.mark.parametrize(("suffix", "reason"), [(".dat", "checksum of its messages"), (".idx", "checksum of its rows")])
def test_damage_in_the_range(
    options: dict[str, str], suffix: str, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    record(options, counted(10), counted(10, 10), counted(10, 20))
    damage(options, suffix, (10 * 8 if suffix == ".dat" else 10 * 48) + 5)
    with pytest.raises(ArchiveDamaged, match=f"log host/0 .* rows 10 to 19 .* {reason}"):
        Batch(options).rows()
    good = [*range(10), *range(20, 30)]
    assert [row["offset"] for row in Batch({**options, "failOnDataLoss": "false"}).rows()] == good
    assert "offsets 10 to 19 (10 rows) are left out" in caplog.text
    with_events = Batch({**options, "failOnDataLoss": "false", "includeEvents": "true"}).rows()
    assert [row["offset"] for row in with_events] == [*range(10), 10, *range(20, 30)]
    assert [(row["type"], row["numbers"]) for row in with_events if row["type"]] == [(254, 10)]


def test_damage_at_the_end_of_the_range(options: dict[str, str]) -> None:
    record(options, counted(10), counted(10, 10))
    damage(options, ".idx", 10 * 48)
    more = {"failOnDataLoss": "false", "includeEvents": "true"}
    assert [row["offset"] for row in Batch({**options, **more}).rows()] == [*range(10), 10]


def test_a_torn_tail_is_above_the_watermark(options: dict[str, str]) -> None:
    record(options, counted(10))
    directory = os.path.join(options["archive"], "host", "0")
    for name in os.listdir(directory):
        if name.endswith((".idx", ".dat", ".blk")):
            with open(os.path.join(directory, name), "ab") as file:
                file.write(b"\xff" * 77)
    assert offsets(options) == list(range(10))


def test_a_hole_in_the_range(options: dict[str, str], caplog: pytest.LogCaptureFixture) -> None:
    """A segment that a disk lost: the one before it ends early."""
    with Archive.create(options["archive"]).writer("host") as writer:
        for begin in (0, 10, 20):
            append(writer, counted(10, begin))
            writer.roll()
    lose_in_power_loss(Path(options["archive"], "host", "0"), 10, 20)
    with pytest.raises(OffsetsExpired, match="lost offsets 10 to 19: power was lost"):
        Batch(options).rows()
    found = Batch({**options, "failOnDataLoss": "false", "includeEvents": "true"}).rows()
    assert [row["offset"] for row in found] == [*range(10), 10, *range(20, 30)]
    assert [(row["type"], row["numbers"]) for row in found if row["type"]] == [(254, 10)]
    assert "a hole: offsets 10 to 19 (10 rows) are left out" in caplog.text


def test_a_log_that_is_gone(options: dict[str, str]) -> None:
    record(options, counted(10))
    record(options, counted(10), stream="other")
    archive = Archive(options["archive"])
    text = f'{{"archive":"{archive.id}","o":{{"host/0":3,"other/1":3}},"v":1}}'
    shutil.rmtree(os.path.join(options["archive"], "other", "1"))
    with pytest.raises(ArchiveMissing, match="offsets name log other/1"):
        offsets(options, startingOffsets=text)


# ------------------------------------------------------------------------------------------ filters

FILTERS: list[tuple[ds.Filter, list[int]]] = [
    (ds.EqualTo(("topic",), "a.1"), [0, 3]),
    (ds.Not(ds.EqualTo(("topic",), "a.1")), [1, 2, 4, 5]),
    (ds.In(("topic",), ("a.2", "b")), [1, 2, 4, 5]),
    (ds.StringStartsWith(("topic",), "a."), [0, 1, 3, 4]),
    (ds.StringEndsWith(("topic",), "2"), [1, 4]),
    (ds.StringContains(("topic",), "."), [0, 1, 3, 4]),
    (ds.GreaterThan(("topic",), "a.1"), [1, 2, 4, 5]),
    (ds.EqualTo(("offset",), 4), [4]),
    (ds.EqualNullSafe(("seq",), 4), [4]),
    (ds.GreaterThan(("seq",), 3), [4, 5]),
    (ds.GreaterThanOrEqual(("receiveTimeNs",), 3 * 10**9), [3, 4, 5]),
    (ds.LessThan(("partition",), 0), []),
    (ds.LessThanOrEqual(("timestamp",), datetime(1970, 1, 1, 0, 0, 2, tzinfo=UTC)), [0, 1, 2]),
    (ds.Not(ds.In(("seq",), (1, 2))), [0, 3, 4, 5]),
    (ds.EqualTo(("session",), 0x6481F8D4), [0, 1, 2, 3, 4, 5]),
]


@pytest.mark.parametrize(("given", "expected"), FILTERS, ids=lambda each: str(each)[:50])
def test_filters_that_are_taken_over(options: dict[str, str], given: ds.Filter, expected: list[int]) -> None:
    record(
        options, [Record(topic=topic, seq=n, receive_ns=n * 10**9) for n, topic in enumerate(("a.1", "a.2", "b") * 2)]
    )
    batch = Batch({**options, "pushdown": "true"}, filters=[given])
    assert batch.left == []
    assert [row["offset"] for row in batch.rows()] == expected


@pytest.mark.parametrize(
    "given",
    [
        ds.EqualTo(("value",), b"x"),
        ds.IsNotNull(("topic",)),
        ds.IsNull(("key",)),
        ds.EqualTo(("headers", "key"), "x"),
        ds.EqualTo(("nothing",), 1),
        ds.EqualTo(("seq",), 1.5),
        ds.EqualTo(("seq",), True),
        ds.EqualTo(("topic",), None),
        ds.In(("seq",), (1, None)),
        ds.EqualTo(("timestamp",), datetime(1970, 1, 1)),
        ds.EqualTo(("source",), "x"),
        ds.StringContains(("source",), "x"),
    ],
    ids=str,
)
def test_filters_that_are_left_to_spark(options: dict[str, str], given: ds.Filter) -> None:
    record(options, counted(3))
    batch = Batch({**options, "pushdown": "true"}, filters=[given])
    assert batch.left == [given]
    assert len(batch.rows()) == 3


def test_filters_together_with_topics(options: dict[str, str]) -> None:
    record(options, [Record(topic=topic, seq=n) for n, topic in enumerate("abcabc")])
    given = [ds.GreaterThan(("seq",), 1), ds.Not(ds.EqualTo(("topic",), "b"))]
    batch = Batch({**options, "pushdown": "true", "subscribe": "a,b"}, filters=given)
    assert [row["offset"] for row in batch.rows()] == [3]


@pytest.mark.parametrize(
    ("given", "expected"),
    [(ds.EqualTo(("topic",), "a"), [0]), (ds.Not(ds.EqualTo(("topic",), "a")), [1]), (ds.EqualTo(("topic",), ""), [1])],
    ids=str,
)
def test_a_loss_of_no_one_topic_passes_filters_as_its_empty_topic_does(
    options: dict[str, str], given: ds.Filter, expected: list[int]
) -> None:
    """Whichever topics were subscribed to: as Spark, which would look at the row."""
    record(options, [Record(topic="a"), Record(topic="", source="", type=255, numbers=9), Record(topic="b")])
    asked = {**options, "pushdown": "true", "includeEvents": "true", "subscribe": "a"}
    assert [row["offset"] for row in Batch(asked, filters=[given]).rows()] == expected


SECOND_US = timedelta(seconds=1)


@pytest.mark.parametrize(
    ("given", "blocks", "expected"),
    [
        ([ds.LessThan(("offset",), 10)], 1, range(10)),
        ([ds.GreaterThanOrEqual(("offset",), 195), ds.Not(ds.GreaterThan(("offset",), 996))], 81, range(195, 997)),
        ([ds.In(("offset",), (15, 12))], 1, [12, 15]),
        ([ds.EqualTo(("offset",), 5000)], 0, []),
        ([ds.LessThan(("receiveTimeNs",), 21 * 10**9)], 3, range(21)),
        ([ds.GreaterThan(("timestamp",), datetime(1970, 1, 1, tzinfo=UTC) + 989 * SECOND_US)], 1, range(990, 1000)),
        ([ds.EqualTo(("partition",), 1)], 0, []),
        ([ds.EqualTo(("topic",), "t"), ds.EqualTo(("offset",), 3)], 1, [3]),
    ],
    ids=str,
)
def test_filters_leave_blocks_unread(
    options: dict[str, str],
    given: list[ds.Filter],
    blocks: int,
    expected: Sequence[int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of 100 blocks of 10 messages with 100 bytes: those that the block table excludes are not read."""
    record(options, *(counted(10, start, size=100) for start in range(0, 1000, 10)))
    watch = Watch(monkeypatch)
    batch = Batch({**options, "pushdown": "true"}, filters=given)
    watch.bytes.clear()  # planning looks at single rows
    assert [row["offset"] for row in batch.rows()] == list(expected)
    assert watch.bytes[".dat"] == blocks * 1000
    assert watch.bytes[".idx"] <= 2 * blocks * 480  # looked at, and then read with their messages


def test_messages_that_no_filter_lets_pass_are_not_read(
    options: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No block table knows of topics; but rows are small, and messages large."""
    record(options, counted(100, size=1000), counted(100, 100, "u", size=1000), counted(1, 200, size=1000))
    watch = Watch(monkeypatch)
    more = {**options, "pushdown": "true", "batchRows": "100"}
    found = Batch(more, filters=[ds.EqualTo(("topic",), "u")]).rows()
    assert [row["seq"] for row in found] == list(range(100, 200))
    assert watch.bytes[".dat"] == 100_000
    watch.bytes.clear()
    assert len(Batch({**options, "subscribe": "u", "batchRows": "100"}).rows()) == 100
    assert watch.bytes[".dat"] == 100_000


def test_losses_are_found_by_their_blocks(options: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    record(options, *([*counted(10, n), *([Record(type=4)] if n == 50 else [])] for n in range(0, 100, 10)))
    more = {**options, "pushdown": "true", "includeEvents": "true"}
    schema = StructType().add("offset", "long").add("type", "integer")
    batch = Batch(more, schema, filters=[ds.In(("type",), (4, 5, 254, 255))])
    watch = Watch(monkeypatch)
    assert [row["offset"] for row in batch.rows()] == [60]
    assert watch.bytes[".idx"] == 11 * 48
    assert len(Batch(more, schema, filters=[ds.In(("type",), (0, 4))]).rows()) == 101


def test_without_the_option_nothing_is_taken_over(options: dict[str, str]) -> None:
    """A reader that could is refused by a session that has it switched off, which is Spark's default."""
    record(options, counted(1))
    assert type(Batch(options).reader).pushFilters is ds.DataSourceReader.pushFilters
