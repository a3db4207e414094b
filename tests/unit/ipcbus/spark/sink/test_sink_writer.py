from __future__ import annotations

import pickle
import threading
import time
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

import ipcbus
from ipcbus.errors import ConfigError, SinkError
from ipcbus.spark.data_source import IpcbusDataSource
from ipcbus.spark.identity import Deduplicator, Identity, identity_of
from ipcbus.spark.sink import sink_publisher
from ipcbus.spark.sink.sink_writer import BatchWriter, StreamWriter, Written
from tests.kit.bus import GIVE_UP_S

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SCHEMA = StructType([StructField("value", BinaryType()), StructField("topic", StringType())])
QUERY = "5f3c2a9e-0000-0000-0000-000000000000"


class FakeTask:
    """What a worker of Spark knows of its task."""

    def __init__(self, partition: int, properties: dict[str, str]) -> None:
        self._partition, self._properties = partition, properties

    def partitionId(self) -> int:
        return self._partition

    def taskAttemptId(self) -> int:
        return 99

    def getLocalProperty(self, name: str) -> str | None:
        return self._properties.get(name)


def rows(*values: bytes, topic: str = "t") -> pa.RecordBatch:
    """A batch as Spark gives it."""
    return pa.record_batch([pa.array(values, pa.binary()), pa.array([topic] * len(values))], ["value", "topic"])


class Cluster:
    """Runs tasks and commits as Spark does: with nothing kept but what is carried."""

    def __init__(self, domain: str, staging: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.once = {"domain": domain, "deliveryGuarantee": "exactly-once", "stagingDir": str(staging)}
        self.often = {"domain": domain}
        self._monkeypatch = monkeypatch

    def task(self, partition: int, **properties: str) -> None:
        """This process is a task from now on."""
        self._monkeypatch.setattr("pyspark.TaskContext.get", lambda: FakeTask(partition, properties))

    def write(self, options: dict[str, str], batch: int, *partitions: list[pa.RecordBatch]) -> list[Any]:
        """The tasks of a micro-batch; returns their messages."""
        messages = []
        for number, content in enumerate(partitions):
            self.task(number, **{"streaming.sql.batchId": str(batch), "sql.streaming.queryId": QUERY})
            sink = pickle.loads(pickle.dumps(IpcbusDataSource(options).streamWriter(SCHEMA, False)))
            messages.append(pickle.loads(pickle.dumps(sink.write(iter(content)))))
        return messages

    def commit(self, options: dict[str, str], batch: int, messages: list[Any]) -> None:
        """The commit of a micro-batch, on an object of its own."""
        IpcbusDataSource(options).streamWriter(SCHEMA, False).commit(messages, batch)


@pytest.fixture
def cluster(domain: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    yield Cluster(domain, tmp_path / "staging", monkeypatch)
    sink_publisher.close_all()


class Got:
    """What a receiver of all topics gets."""

    def __init__(self) -> None:
        self.messages: list[ipcbus.Message] = []
        self._began = self._ended = 0

    def __call__(self, message: ipcbus.Message) -> None:
        if message.type == ipcbus.MessageType.DATA:
            self.messages.append(message)
        self._began += message.type == ipcbus.MessageType.BOS
        self._ended += message.type == ipcbus.MessageType.EOS

    def all_of(self, count: int) -> list[ipcbus.Message]:
        """All messages, of which there have to be so many, when those who sent them have gone."""
        sink_publisher.close_all()
        deadline = time.monotonic() + GIVE_UP_S
        while len(self.messages) < count or self._began > self._ended:
            assert time.monotonic() < deadline, f"{len(self.messages)} of {count} messages came"
            threading.Event().wait(0.001)
        assert len(self.messages) == count
        return self.messages


@pytest.fixture
def got(domain: str) -> Iterator[Got]:
    found = Got()
    with ipcbus.Context(domain=domain) as context:
        context.wildcard_receiver(".*", found)
        yield found


def identities(messages: list[ipcbus.Message]) -> list[Identity | None]:
    return [identity_of(message.headers) for message in messages]


def test_each_committed_batch_is_published_once(cluster: Cluster, got: Got) -> None:
    first = cluster.write(cluster.once, 0, [rows(b"a", b"b"), rows(b"c")], [], [rows(b"d")])
    assert not got.messages
    assert max(len(pickle.dumps(message)) for message in first) < 500
    cluster.commit(cluster.once, 0, first)
    cluster.commit(cluster.once, 0, cluster.write(cluster.once, 0, [rows(b"a")], [rows(b"d", b"b")]))
    cluster.commit(cluster.once, 1, cluster.write(cluster.once, 1, [rows(b"e")]))
    found = got.all_of(5)
    assert [message.data for message in found] == [b"a", b"b", b"c", b"d", b"e"]
    assert identities(found) == [
        *(Identity(QUERY, 0, 0, row) for row in range(3)),
        Identity(QUERY, 0, 2, 0),
        Identity(QUERY, 1, 0, 0),
    ]


def test_rows_of_tasks_that_failed_are_never_published(cluster: Cluster, got: Got, tmp_path: Path) -> None:
    lost, kept = cluster.write(cluster.once, 0, [rows(b"a")], [rows(b"b")])
    IpcbusDataSource(cluster.once).streamWriter(SCHEMA, False).abort([lost, None], 0)
    staging = tmp_path / "staging" / QUERY
    assert [path.name for path in staging.glob("*.arrow")] == [kept.staged.name]
    cluster.commit(cluster.once, 0, [None, kept])
    assert [message.data for message in got.all_of(1)] == [b"b"]


def test_at_least_once_sends_as_rows_come_and_doubles_are_dropped(cluster: Cluster, got: Got) -> None:
    options = {**cluster.often, "topic": "u"}
    for _ in range(2):
        cluster.commit(options, 4, cluster.write(options, 4, [rows(b"a", b"b")], [rows(b"c")]))
    found = got.all_of(6)
    assert {message.topic for message in found} == {"u"}
    assert sorted(message.data for message in found) == [b"a", b"a", b"b", b"b", b"c", b"c"]
    fresh = Deduplicator()
    assert sorted(message.data for message in found if fresh.is_new(message)) == [b"a", b"b", b"c"]
    assert set(identities(found)) == {Identity(QUERY, 4, 0, 0), Identity(QUERY, 4, 0, 1), Identity(QUERY, 4, 1, 0)}


def test_an_application_may_have_a_name(cluster: Cluster, got: Got) -> None:
    for options in (cluster.often, cluster.once):
        named = {**options, "txnAppId": "prices"}
        cluster.commit(named, 0, cluster.write(named, 0, [rows(b"a")]))
    assert identities(got.all_of(2)) == [Identity(f"prices/{QUERY}", 0, 0, 0), Identity("prices", 0, 0, 0)]


def test_rows_of_a_new_checkpoint_are_no_doubles(cluster: Cluster, got: Got) -> None:
    """Its query has the name of the old one and counts from 0 again; a task that is done again is a double still."""
    stream = {**cluster.often, "txnAppId": "app"}
    for query, value in (("query-1", b"a"), ("query-2", b"b"), ("query-2", b"b")):
        cluster.task(0, **{"streaming.sql.batchId": "0", "sql.streaming.queryId": query})
        StreamWriter(SCHEMA, False, stream).write(iter([rows(value)]))
        job(cluster, {**stream, "txnVersion": "0"}, rows(value + b" in foreachBatch", topic="u"), query)
    fresh = Deduplicator()
    kept = [message.data for message in got.all_of(6) if fresh.is_new(message)]
    assert kept == [b"a", b"a in foreachBatch", b"b", b"b in foreachBatch"]


def test_messages_may_go_unmarked(cluster: Cluster, got: Got) -> None:
    options = {**cluster.often, "includeIdentity": "false"}
    cluster.task(0)
    StreamWriter(SCHEMA, False, options).write(iter([rows(b"a")]))
    (message,) = got.all_of(1)
    assert message.headers == ()


@pytest.mark.parametrize("known", [{}, {"sql.streaming.queryId": QUERY}, {"streaming.sql.batchId": "1"}])
def test_a_spark_that_does_not_tell_the_batch_is_an_error(cluster: Cluster, known: dict[str, str]) -> None:
    cluster.task(0, **known)
    for options in (cluster.often, cluster.once):
        with pytest.raises(SinkError, match="does not give tasks their query and batch"):
            StreamWriter(SCHEMA, False, options).write(iter([rows(b"a")]))


def test_outside_of_a_task_nothing_is_written(cluster: Cluster) -> None:
    with pytest.raises(SinkError, match="outside a task"):
        StreamWriter(SCHEMA, False, cluster.often).write(iter([rows(b"a")]))


def test_tasks_of_two_queries_are_no_batch(cluster: Cluster) -> None:
    messages = [Written("a", "q"), Written("b", "q")]
    with pytest.raises(SinkError, match="tasks of several writes"):
        cluster.commit(cluster.once, 0, messages)


def test_a_commit_without_rows_does_nothing(cluster: Cluster, tmp_path: Path) -> None:
    cluster.commit(cluster.once, 0, [])
    cluster.commit(cluster.once, 0, [None])
    assert not (tmp_path / "staging").exists()


def test_what_cannot_be_sent_fails_the_task_before_anything_is_staged(cluster: Cluster, tmp_path: Path) -> None:
    small = {**cluster.once, "transport": "lbtsmx", "source.transport_lbtsmx_datagram_max_size": "256"}
    with pytest.raises(SinkError, match="limit of the transport"):
        cluster.write(small, 0, [rows(b"a"), rows(b"x" * 200)])
    with pytest.raises(ConfigError, match="is not a valid name"):
        cluster.write(cluster.once, 0, [rows(b"a", topic="")])
    assert list((tmp_path / "staging").glob("*/*")) == []


def test_what_a_config_says_for_one_topic_counts_before_anything_is_staged(cluster: Cluster, tmp_path: Path) -> None:
    """The topics of a column are known only then; a batch that is decided would fail for ever."""
    config = tmp_path / "bus.toml"
    config.write_text(
        '[[topics]]\nname = "short"\n[topics.source]\ntransport = "lbtsmx"\n'
        '[[topics]]\nname = "risky"\n[topics.source]\nslow_receiver_behavior = "evict"\n'
    )
    options = {**cluster.once, "config": str(config)}
    with pytest.raises(SinkError, match="topic 'short': a message of .* exceeds 8176"):
        cluster.write(options, 0, [rows(b"x" * 20_000, topic="long"), rows(b"x" * 20_000, topic="short")])
    with pytest.raises(ConfigError, match="slow_receiver_behavior is 'evict'"):
        cluster.write(options, 0, [rows(b"a", topic="risky")])
    assert list((tmp_path / "staging").glob("*/*")) == []


def test_planning_refuses_columns_and_options(cluster: Cluster) -> None:
    source = IpcbusDataSource(cluster.often)
    only_topic = StructType([StructField("topic", StringType())])
    for plan in (source.writer, source.streamWriter):
        with pytest.raises(ConfigError, match="column value is missing"):
            plan(only_topic, False)
    with pytest.raises(ConfigError, match="option nonsense is unknown"):
        IpcbusDataSource({"nonsense": "1"}).writer(SCHEMA, False)


# Batch jobs.


def test_what_was_sent_cannot_be_overwritten(cluster: Cluster) -> None:
    with pytest.raises(ConfigError, match="use mode\\('append'\\)"):
        BatchWriter(SCHEMA, True, cluster.often)
    StreamWriter(SCHEMA, True, cluster.often)


def job(cluster: Cluster, options: dict[str, str], content: pa.RecordBatch, query: str = "") -> BatchWriter:
    """Writes a frame of one partition; with a query, in its foreachBatch."""
    planned = IpcbusDataSource(options).writer(SCHEMA, False)
    assert isinstance(planned, BatchWriter)
    cluster.task(0, **({"sql.streaming.queryId": query, "streaming.sql.batchId": "7"} if query else {}))
    message = pickle.loads(pickle.dumps(planned)).write(iter([content]))
    pickle.loads(pickle.dumps(planned)).commit([message])
    return planned


def test_jobs_have_identities_of_their_own_and_leave_nothing(cluster: Cluster, got: Got, tmp_path: Path) -> None:
    names = [job(cluster, options, rows(b"a")).application for options in (cluster.often, cluster.once) * 2]
    assert len(set(names)) == 4
    assert identities(got.all_of(4)) == [Identity(name, 0, 0, 0) for name in names]
    assert list((tmp_path / "staging").iterdir()) == []


def test_a_version_is_published_once(cluster: Cluster, got: Got) -> None:
    for version, value in (("3", b"a"), ("3", b"again"), ("2", b"older"), ("4", b"b")):
        job(cluster, {**cluster.once, "txnAppId": "app", "txnVersion": version}, rows(value))
    found = got.all_of(2)
    assert [message.data for message in found] == [b"a", b"b"]
    assert identities(found) == [Identity("app", 3, 0, 0), Identity("app", 4, 0, 0)]


def test_in_foreach_batch_a_new_checkpoint_needs_a_new_name(cluster: Cluster, got: Got) -> None:
    """Versions count anew with it, and would be taken for published ones."""
    options = {**cluster.once, "txnAppId": "app", "txnVersion": "0"}
    job(cluster, options, rows(b"a"), "query-1")
    with pytest.raises(SinkError, match="belongs to query query-1, .*, not to query-2"):
        job(cluster, options, rows(b"b"), "query-2")
    job(cluster, {**options, "txnAppId": "another"}, rows(b"b"), "query-2")
    assert [message.data for message in got.all_of(2)] == [b"a", b"b"]


def test_a_job_that_fails_leaves_nothing(cluster: Cluster, tmp_path: Path) -> None:
    planned = BatchWriter(SCHEMA, False, cluster.once)
    cluster.task(0)
    message = planned.write(iter([rows(b"a")]))
    planned.abort([message, None])
    assert list((tmp_path / "staging").iterdir()) == []
