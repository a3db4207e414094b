"""The sink as Spark calls it: `write` in a task on a worker, then `commit` or `abort` beside the driver.

Spark keeps no object between two calls of a stream: each `commit` runs on its own object, in any process. What a commit
needs is in the messages that the tasks return.
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
    """The message of a task to the commit.

    Attributes:
        application: name of the writer: `txnAppId`, else the id of the query or job.
        query: id of the query, also of one whose `foreachBatch` writes; empty for any other batch job.
        staged: the file that the task has staged; None when it had no rows, or has sent them already.
    """

    application: str
    query: str
    staged: Staged | None = None


@dataclass(frozen=True, slots=True)
class SinkTask:
    """A task of the sink.

    Attributes:
        partition: the partition of the frame.
        attempt: id of this attempt.
        query: id of the query; empty for a batch job.
        batch: the micro-batch; None where Spark does not say.
    """

    partition: int
    attempt: int
    query: str
    batch: int | None


def task_now() -> SinkTask:
    """Returns the task that this process runs.

    Raises:
        SinkError: the process runs no task.
    """
    context = TaskContext.get()
    if context is None:
        raise SinkError("sink ipcbus: write was called outside a task of Spark; only a task has a partition")
    batch = context.getLocalProperty(_BATCH_ID) or ""
    query = context.getLocalProperty(_QUERY_ID) or ""
    known = query and batch.isdecimal()
    return SinkTask(context.partitionId(), context.taskAttemptId(), query, int(batch) if known else None)


def write(options: WriteOptions, task: SinkTask, application: str, batches: Iterable[pa.RecordBatch]) -> Written:
    """Sends the rows of a task, or stages them.

    Args:
        options: options of the sink.
        task: the task; its batch is known, unless messages carry no identity.
        application: name of the writer.
        batches: record batches of a checked schema.

    Raises:
        SinkError: a row cannot become a message, or receivers are missing.
        ConfigError: a topic is invalid, or the config has an option for it that the guarantee rules out.
        ipcbus.IpcBusError: the bus refuses a message, or the disk the rows.
    """
    rows = (plain(batch, options.topic) for batch in batches if batch.num_rows)
    # With exactly-once, the ledger makes sure that a name belongs to one query. Without it, another query with this
    # name has batches of the same numbers with other rows.
    several = options.staging is None and options.app is not None and task.query
    writer = f"{application}/{task.query}" if several else application
    stamp = Stamp(writer, task.batch, task.partition) if options.identity and task.batch is not None else None
    if options.staging is None:
        _send(options, stamp, rows)
        return Written(application, task.query)
    if task.batch is None:
        raise SinkError(
            f"sink ipcbus: Spark does not say which batch application {application!r} writes; use at-least-once"
        )
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
    """Yields rows that can be sent; others fail the task, as a batch that is decided has to be published."""
    messages, config = OutgoingMessages(stamp), Config.load(options.bus.config)

    @functools.cache
    def longest(topic: str) -> int | None:
        options.bus.check(config, topic)  # a config may have an option for one topic that the guarantee rules out
        return options.bus.longest(config, topic)

    for content in rows:
        check_sizes(messages.of(content), longest)
        yield content


def commit(options: WriteOptions, messages: Sequence[WriterCommitMessage | None], batch: int) -> None:
    """Publishes what tasks have staged, unless it is published already; see `Application.commit`."""
    written = _written(messages)
    if options.staging is None or not written:
        return
    names = {(each.application, each.query) for each in written}
    if len(names) > 1:
        raise SinkError(
            f"sink ipcbus: batch {batch} has tasks of several writes: {sorted(names)}; start the write again"
        )
    ((application, query),) = names
    staged = [each.staged for each in written if each.staged is not None]
    files = Disk()
    Application(files, options.staging, application).commit(
        query, batch, staged, lambda: publisher(options.bus), lock_timeout_s=options.bus.timeout_s
    )
    if batch % SWEEP_EVERY == 0:
        sweep(files, options.staging, time.time())


def abort(options: WriteOptions, messages: Sequence[WriterCommitMessage | None]) -> None:
    """Removes what tasks have staged, unless a commit has decided to publish it."""
    if options.staging is None:
        return
    by_name: dict[str, list[Staged]] = {}
    for each in _written(messages):
        by_name.setdefault(each.application, []).extend([each.staged] if each.staged is not None else [])
    for application, staged in by_name.items():
        Application(Disk(), options.staging, application).abort(staged)


def _written(messages: Sequence[WriterCommitMessage | None]) -> list[Written]:
    return [each for each in messages if isinstance(each, Written)]


class BatchWriter(DataSourceArrowWriter):
    """The writer behind `df.write.format("ipcbus")`; Spark sends it to the tasks and the commit."""

    def __init__(self, schema: StructType, overwrite: bool, options: Mapping[str, str]) -> None:
        """Plans a write.

        Raises:
            ConfigError: columns, options or the mode are invalid.
        """
        self.options = WriteOptions.of(options, "batch")
        check_schema(schema, self.options.topic)
        if overwrite:
            raise ConfigError("sink ipcbus: mode overwrite: messages cannot be taken back; use mode('append')")
        self.application = self.options.app or JOB_PREFIX + secrets.token_hex(16)
        self.batch = self.options.version or 0

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Writes the rows of one task."""
        now = task_now()
        # The query of a foreachBatch, if any: a new checkpoint makes another query, which counts batches from 0.
        return write(
            self.options, SinkTask(now.partition, now.attempt, now.query, self.batch), self.application, iterator
        )

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Commits the write when all tasks are complete."""
        commit(self.options, messages, self.batch)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Aborts the write when a task or the commit has failed."""
        abort(self.options, messages)


class StreamWriter(DataSourceStreamArrowWriter):
    """The writer behind `df.writeStream.format("ipcbus")`."""

    def __init__(self, schema: StructType, overwrite: bool, options: Mapping[str, str]) -> None:
        """Plans the writes of a query.

        Args:
            schema: the schema of the frame.
            overwrite: true in output mode `complete`, where each batch is the whole result, and is published each time.
            options: the options as they were given.

        Raises:
            ConfigError: columns or options are invalid.
        """
        self.options = WriteOptions.of(options, "stream")
        check_schema(schema, self.options.topic)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Writes the rows of one task of a micro-batch."""
        task = task_now()
        if task.batch is None and self.options.identity:
            raise SinkError(
                f"sink ipcbus: this Spark does not give tasks their query and batch ({_QUERY_ID}, {_BATCH_ID}), "
                "which mark messages and commits; use another release of Spark, or "
                "option('includeIdentity', 'false') with at-least-once"
            )
        return write(self.options, task, self.options.app or task.query, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Commits a micro-batch when all its tasks are complete; Spark repeats the call after a failure."""
        commit(self.options, messages, batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Aborts a micro-batch when a task or its commit has failed."""
        abort(self.options, messages)
