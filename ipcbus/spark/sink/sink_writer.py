"""The sink as Spark calls it: `write` in a task on a worker, then `commit` or `abort` beside the driver.

Spark keeps nothing between two calls of a stream: each `commit` runs on an object of its own, in any process. What a
commit needs comes with the messages that the tasks return.
"""

from __future__ import annotations

import functools
import secrets
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from ipcbus.config import Config
from ipcbus.embedding import Disk
from ipcbus.errors import ConfigError, SinkError
from ipcbus.spark.sink.outgoing_messages import OutgoingMessages, Stamp, check_schema, check_sizes, plain
from ipcbus.spark.sink.sink_commit import SWEEP_EVERY, Application, sweep
from ipcbus.spark.sink.sink_publisher import publisher
from ipcbus.spark.sink.staged_rows import JOB_PREFIX, Staged, stage
from ipcbus.spark.sink.write_options import WriteOptions

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql.types import StructType

_BATCH_ID: Final = "streaming.sql.batchId"
_QUERY_ID: Final = "sql.streaming.queryId"


@dataclass(frozen=True, slots=True)
class Written(WriterCommitMessage):
    """What a task tells the commit.

    Attributes:
        application: whose rows they are: `txnAppId`, else the id of the query or job.
        query: id of the query, also of one whose `foreachBatch` writes; of any other batch job nothing.
        staged: what it has staged; None when there was no row, or it has sent them already.
    """

    application: str
    query: str
    staged: Staged | None = None


@dataclass(frozen=True, slots=True)
class SinkTask:
    """What a task knows of itself.

    Attributes:
        partition: of the frame.
        attempt: id of this attempt.
        query: id of the query; of a batch job nothing.
        batch: the micro-batch; None where Spark does not tell.
    """

    partition: int
    attempt: int
    query: str
    batch: int | None


def task_now() -> SinkTask:
    """Returns the task that this process runs.

    Raises:
        SinkError: it runs none.
    """
    context = TaskContext.get()
    if context is None:
        raise SinkError("sink ipcbus: write was called outside of a task of Spark, which alone knows the partition")
    batch = context.getLocalProperty(_BATCH_ID) or ""
    query = context.getLocalProperty(_QUERY_ID) or ""
    known = query and batch.isdecimal()
    return SinkTask(context.partitionId(), context.taskAttemptId(), query, int(batch) if known else None)


def write(options: WriteOptions, task: SinkTask, application: str, batches: Iterable[pa.RecordBatch]) -> Written:
    """Sends the rows of a task, or stages them.

    Args:
        options: of the sink.
        task: the task; its batch is known unless messages go unmarked.
        application: whose rows they are.
        batches: record batches of a checked schema.

    Raises:
        SinkError: a row is no message, or receivers are missing.
        ConfigError: a topic is none, or the config has something for it that the guarantee rules out.
        ipcbus.IpcBusError: the bus refuses a message, or the disk the rows.
    """
    rows = (plain(batch, options.topic) for batch in batches if batch.num_rows)
    # Exactly once the ledger sees to it that a name has one query. Here nothing does, and batches of another query with
    # this name have the same numbers and other rows.
    several = options.staging is None and options.app is not None and task.query
    who = f"{application}/{task.query}" if several else application
    stamp = Stamp(who, task.batch, task.partition) if options.identity and task.batch is not None else None
    if options.staging is None:
        _send(options, stamp, rows)
        return Written(application, task.query)
    if task.batch is None:
        raise SinkError(f"sink ipcbus: application {application!r} does not know its batch; use at-least-once")
    staged = stage(
        Disk(),
        options.staging / application,
        task.batch,
        task.partition,
        task.attempt,
        _checked(options, stamp, rows),
    )
    return Written(application, task.query, staged)


def _send(options: WriteOptions, stamp: Stamp | None, rows: Iterator[pa.RecordBatch]) -> None:
    first = next(rows, None)
    if first is None:
        return
    messages = OutgoingMessages(stamp)
    with publisher(options.bus) as bus:
        content = first
        while content is not None:
            for message in messages.of(content):
                bus.ready(message.topic).send(message.value, headers=message.headers)
            content = next(rows, None)
        bus.flush()


def _checked(options: WriteOptions, stamp: Stamp | None, rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Rows that can be sent; what cannot fails the task, for a batch that is decided has to be published."""
    messages, config = OutgoingMessages(stamp), Config.load(options.bus.config)

    @functools.cache
    def longest(topic: str) -> int | None:
        options.bus.check(config, topic)  # a config may say for one topic what the guarantee rules out
        return options.bus.longest(config, topic)

    for content in rows:
        check_sizes(messages.of(content), longest)
        yield content


def commit(options: WriteOptions, messages: Sequence[WriterCommitMessage | None], batch: int) -> None:
    """Publishes what tasks have staged, unless that was done before; see `Application.commit`."""
    written = _told(messages)
    if options.staging is None or not written:
        return
    names = {(each.application, each.query) for each in written}
    if len(names) > 1:
        raise SinkError(f"sink ipcbus: batch {batch} has tasks of several writes: {sorted(names)}; start it anew")
    ((application, query),) = names
    staged = [each.staged for each in written if each.staged is not None]
    files = Disk()
    Application(files, options.staging, application).commit(
        query, batch, staged, lambda: publisher(options.bus), patience_s=options.bus.timeout_s
    )
    if batch % SWEEP_EVERY == 0:
        sweep(files, options.staging, time.time())


def abort(options: WriteOptions, messages: Sequence[WriterCommitMessage | None]) -> None:
    """Removes what tasks have staged, unless a commit has decided to publish it."""
    if options.staging is None:
        return
    by_name: dict[str, list[Staged]] = {}
    for each in _told(messages):
        by_name.setdefault(each.application, []).extend([each.staged] if each.staged is not None else [])
    for application, staged in by_name.items():
        Application(Disk(), options.staging, application).abort(staged)


def _told(messages: Sequence[WriterCommitMessage | None]) -> list[Written]:
    return [each for each in messages if isinstance(each, Written)]


class BatchWriter(DataSourceArrowWriter):
    """`df.write.format("ipcbus")`; carried from the planning to the tasks and the commit."""

    def __init__(self, schema: StructType, overwrite: bool, options: Mapping[str, str]) -> None:
        """Plans a write.

        Raises:
            ConfigError: columns, options or the mode do not fit.
        """
        self.options = WriteOptions.of(options, "batch")
        check_schema(schema, self.options.topic)
        if overwrite:
            raise ConfigError("sink ipcbus: mode overwrite: what was sent cannot be taken back; use mode('append')")
        self.application = self.options.app or JOB_PREFIX + secrets.token_hex(16)
        self.batch = self.options.version or 0

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Returns the rows of one task."""
        now = task_now()
        # The query of a foreachBatch: with a new checkpoint it is another one, which counts its batches anew.
        return write(
            self.options, SinkTask(now.partition, now.attempt, now.query, self.batch), self.application, iterator
        )

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """All tasks are through."""
        commit(self.options, messages, self.batch)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """A task, or the commit, has failed."""
        abort(self.options, messages)


class StreamWriter(DataSourceStreamArrowWriter):
    """`df.writeStream.format("ipcbus")`."""

    def __init__(self, schema: StructType, overwrite: bool, options: Mapping[str, str]) -> None:
        """Plans the writes of a query.

        Args:
            schema: of the frame.
            overwrite: in output mode `complete`, where each batch is the whole result: it is published each time.
            options: as they were given.

        Raises:
            ConfigError: columns or options do not fit.
        """
        self.options = WriteOptions.of(options, "stream")
        check_schema(schema, self.options.topic)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Returns the rows of one task of a micro-batch."""
        task = task_now()
        if task.batch is None and self.options.identity:
            raise SinkError(
                f"sink ipcbus: this Spark does not tell tasks their query and batch ({_QUERY_ID}, {_BATCH_ID}), by "
                "which messages are marked and committed; use another release of Spark, or "
                "option('includeIdentity', 'false') with at-least-once"
            )
        return write(self.options, task, self.options.app or task.query, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """All tasks of a micro-batch are through; called again with the same number after a failure."""
        commit(self.options, messages, batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """A task of a micro-batch, or its commit, has failed."""
        abort(self.options, messages)
