"""The sink in a Spark session: frames and streams become messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException
from pyspark.errors.exceptions.captured import StreamingQueryException

from ipcbus.archive import Archive
from ipcbus.spark.identity import identity_of
from tests.kit.records import Record, append
from tests.kit.sink_taker import Taker

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = pytest.mark.spark

GUARANTEES = ("at-least-once", "exactly-once")
each_guarantee = pytest.mark.parametrize("guarantee", GUARANTEES)


@pytest.fixture
def taker(domain: str) -> Iterator[Taker]:
    with Taker(domain) as taking:
        yield taking


class Sink:
    """Writes with the options of a test."""

    def __init__(self, spark: SparkSession, domain: str, directory: Path) -> None:
        self.spark, self.staging, self.checkpoint = spark, directory / "staging", directory / "checkpoint"
        self.lines = directory / "lines"
        self.lines.mkdir()
        self.options = {"domain": domain, "linger": "1ms", "stagingDir": str(self.staging)}

    def batch(self, frame: DataFrame, **options: str) -> None:
        """Writes a frame."""
        frame.write.format("ipcbus").mode("append").options(**{**self.options, **options}).save()

    def add(self, number: int, rows: int = 100) -> list[bytes]:
        """One more file of lines, which will be a micro-batch; returns them."""
        lines = [f"{number}-{row}" for row in range(rows)]
        (self.lines / f"{number}.txt").write_text("\n".join(lines) + "\n")
        return [line.encode() for line in lines]

    def stream(self, **options: str) -> StreamingQuery:
        """Writes the files that there are, one a micro-batch and two tasks for each, from the checkpoint on."""
        lines = self.spark.readStream.format("text").option("maxFilesPerTrigger", "1").load(str(self.lines))
        writer = lines.repartition(2).writeStream.format("ipcbus").options(**{**self.options, **options})
        query = writer.option("checkpointLocation", str(self.checkpoint)).trigger(availableNow=True).start()
        query.awaitTermination()
        return query


@pytest.fixture
def sink(spark: SparkSession, domain: str, tmp_path: Path) -> Sink:
    return Sink(spark, domain, tmp_path)


@each_guarantee
def test_a_frame(sink: Sink, taker: Taker, guarantee: str) -> None:
    columns = (
        "concat('t', id % 3) topic",
        "concat('v', id) value",
        "if(id = 7, null, encode(string(id), 'utf-8')) key",
        "array(struct('n' AS key, binary('x') AS value)) headers",
    )
    sink.batch(sink.spark.range(0, 1000, 1, 4).selectExpr(*columns), deliveryGuarantee=guarantee)
    assert sorted(taker.settled(1000)) == sorted(b"v%d" % number for number in range(1000))
    assert len(taker.every) == 1000
    assert sorted(taker.of("t2"), key=lambda value: int(value[1:])) == [b"v%d" % n for n in range(2, 1000, 3)]
    named = {message.data: message.headers for message in taker.once}
    assert named[b"v8"][:2] == (("n", b"x"), ("key", b"8"))
    assert [name for name, _ in named[b"v7"]] == ["n", "ipcbus.query", "ipcbus.batch", "ipcbus.partition", "ipcbus.row"]
    assert not sink.staging.exists() or list(sink.staging.iterdir()) == []


@each_guarantee
def test_a_stream_goes_on_from_its_checkpoint(sink: Sink, taker: Taker, guarantee: str) -> None:
    lines = sink.add(0) + sink.add(1)
    sink.stream(topic="t", deliveryGuarantee=guarantee)
    lines += sink.add(2)
    query = sink.stream(topic="t", deliveryGuarantee=guarantee)
    assert sorted(taker.settled(300)) == sorted(lines)
    assert len(taker.every) == 300
    found = [identity_of(message.headers) for message in taker.once]
    assert {(each.query, each.batch, each.partition) for each in found if each} == {
        (query.id, batch, partition) for batch in range(3) for partition in range(2)
    }
    if guarantee == "exactly-once":
        assert sorted(path.name for path in sink.staging.glob("*/*")) == ["ledger", "lock"]


def test_a_commit_that_fails_is_done_again_with_the_same_batch(sink: Sink, domain: str) -> None:
    lines = sink.add(0)
    options = {"topic": "t", "deliveryGuarantee": "exactly-once"}
    with Taker(domain) as taker:
        sink.stream(**options)
        assert sorted(taker.settled(100)) == sorted(lines)
    more = sink.add(1)
    with pytest.raises(StreamingQueryException, match="0 of 1 receiving contexts of topic 't'"):
        sink.stream(**options, receiverTimeout="1ms")
    assert len(list(sink.staging.glob("*/*.arrow"))) == 2, "what is decided survives the abort"
    assert not (sink.checkpoint / "commits" / "1").exists()
    with Taker(domain) as taker:
        sink.stream(**options)
        assert sorted(taker.settled(100)) == sorted(more)
        assert {each.batch for message in taker.every if (each := identity_of(message.headers))} == {1}
        assert not taker.flagged
    assert sorted(path.name for path in sink.staging.glob("*/*")) == ["ledger", "lock"]


def test_a_new_checkpoint_needs_a_new_name(sink: Sink, taker: Taker, tmp_path: Path) -> None:
    sink.add(0)
    options = {"topic": "t", "deliveryGuarantee": "exactly-once", "txnAppId": "app"}
    sink.stream(**options)
    sink.checkpoint = tmp_path / "other"
    with pytest.raises(StreamingQueryException, match="set another txnAppId"):
        sink.stream(**options)
    sink.stream(**{**options, "txnAppId": "app2"})
    assert len(taker.settled(200)) == 200


def test_for_each_batch(sink: Sink, taker: Taker, tmp_path: Path) -> None:
    sink.add(0)
    sink.add(1)
    written = []

    def write(frame: DataFrame, batch: int) -> None:
        for topic in ("t", "u"):
            for _ in range(2):  # as after a failure
                version = {"txnAppId": f"app-{topic}", "txnVersion": str(batch)}
                sink.batch(frame, topic=topic, deliveryGuarantee="exactly-once", **version)
        written.append(batch)

    frame = sink.spark.readStream.format("text").option("maxFilesPerTrigger", "1").load(str(sink.lines))
    writer = frame.writeStream.foreachBatch(write).option("checkpointLocation", str(sink.checkpoint))
    writer.trigger(availableNow=True).start().awaitTermination()
    assert written == [0, 1]
    taker.settled(400)
    assert len(taker.every) == 400
    assert sorted(taker.of("t")) == sorted(taker.of("u"))
    # The batches of a new checkpoint count anew.
    writer = frame.writeStream.foreachBatch(write).option("checkpointLocation", str(tmp_path / "other"))
    with pytest.raises(StreamingQueryException, match="set another txnAppId"):
        writer.trigger(availableNow=True).start().awaitTermination()
    assert written == [0, 1]


def test_what_was_read_is_sent_as_it_came(sink: Sink, taker: Taker, tmp_path: Path) -> None:
    all_headers = [(), (("key", b"k"),), (("a", b""), ("key", b"k"), ("b", b"\xff")), (("a", b"1"), ("a", b"2"))]
    records = [Record(b"%d" % n, f"t{n % 3}", headers=headers) for n, headers in enumerate(all_headers)]
    with Archive.create(tmp_path / "archive").writer("host") as writer:
        append(writer, records)
    rows = sink.spark.read.format("ipcbus").option("includeHeaders", "true").load(str(tmp_path / "archive"))
    sink.batch(rows.select("topic", "value", "key", "headers"), includeIdentity="false")
    taker.settled(len(records))
    assert {(message.topic, message.data, message.headers) for message in taker.every} == {
        (record.topic, record.value, record.headers) for record in records
    }


def test_messages_may_go_as_they_are(sink: Sink, taker: Taker) -> None:
    sink.batch(sink.spark.range(10).selectExpr("string(id) value"), topic="t", includeIdentity="false")
    taker.settled(10)
    assert {message.headers for message in taker.every} == {()}


@pytest.mark.parametrize("transport", ["lbtsmx", "lbtru"])
def test_other_transports(sink: Sink, taker: Taker, transport: str) -> None:
    frame = sink.spark.range(500).selectExpr("string(id) value")
    sink.batch(frame, topic="t", transport=transport, linger="1s")
    assert sorted(taker.settled(500), key=int) == [b"%d" % number for number in range(500)]


@pytest.mark.parametrize(
    ("columns", "options", "says"),
    [
        (["id"], {"topic": "t"}, "column id is not part of a message; select only value, topic, key, headers"),
        (["id value"], {"topic": "t"}, "column value is bigint; cast it to binary or string"),
        (["string(id) value"], {}, "column topic and option topic are both missing"),
        (["string(id) value"], {"topic": "t", "tpoic": "u"}, "option tpoic is unknown; did you mean topic?"),
        (["string(id) value"], {"topic": "t", "deliveryGuarantee": "exactly-once", "stagingDir": "x"}, "absolute path"),
        (["if(id = 3, null, 'x') value"], {"topic": "t"}, "value is null in 1 of 10 rows"),
    ],
)
def test_what_is_wrong_is_said(sink: Sink, columns: list[str], options: dict[str, str], says: str) -> None:
    with pytest.raises(PySparkException) as caught:
        sink.batch(sink.spark.range(0, 10, 1, 1).selectExpr(*columns), **options)
    assert says in str(caught.value)


def test_what_was_sent_cannot_be_overwritten(sink: Sink) -> None:
    frame = sink.spark.range(10).selectExpr("string(id) value")
    with pytest.raises(PySparkException) as caught:
        frame.write.format("ipcbus").mode("overwrite").options(topic="t", **sink.options).save()
    assert "use mode('append')" in str(caught.value)
