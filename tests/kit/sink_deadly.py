"""The data source, with tasks that fail and a commit that kills the whole application at a given point.

The first attempt at task 1 of each micro-batch fails behind two batches of rows, which it has sent or staged.

Option `kill` names it: `send BATCH ROW` is in the middle of the commit of a micro-batch, with that row of it begun;
`committed BATCH` is behind the sink's commit, before Spark notes it.
"""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import psutil
from pyspark import TaskContext

from ipcbus.spark.data_source import IpcbusDataSource
from ipcbus.spark.sink.publish_ledger import Progress
from ipcbus.spark.sink.sink_writer import StreamWriter, Written

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from pyspark.sql.datasource import WriterCommitMessage
    from pyspark.sql.types import StructType


def kill_the_application() -> None:
    """Kills the driver, its JVM, the parent of the workers and this worker."""
    worker = psutil.Process()
    daemon, jvm, driver = worker.parents()[:3]
    for process in (driver, jvm, daemon, worker):
        os.kill(process.pid, signal.SIGKILL)


def stumbling(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows, which end in an error in the first attempt at task 1."""
    context = TaskContext.get()
    assert context is not None
    for number, batch in enumerate(batches):
        if number == 2 and context.partitionId() == 1 and context.attemptNumber() == 0:
            raise RuntimeError("the first attempt fails")
        yield batch


class DeadlyWriter(StreamWriter):
    """A writer whose commit may not come back."""

    def __init__(self, schema: StructType, overwrite: bool, options: dict[str, str], kill: str) -> None:
        super().__init__(schema, overwrite, options)
        what, *numbers = kill.split()
        self._what, self._at = what, [int(number) for number in numbers]

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        return super().write(stumbling(iterator))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        begin = Progress.begin

        def begin_and_die(progress: Progress, number: int) -> None:
            begin(progress, number)
            if self._what == "send" and self._at == [batchId, number]:
                kill_the_application()

        Progress.begin = begin_and_die  # type: ignore[assignment, method-assign]
        try:
            super().commit(messages, batchId)
        finally:
            Progress.begin = begin  # type: ignore[method-assign]
        if self._what == "committed" and self._at == [batchId]:
            kill_the_application()


class DeadlySource(IpcbusDataSource):
    """What `format("deadly")` leads to."""

    @classmethod
    def name(cls) -> str:
        return "deadly"

    def streamWriter(self, schema: StructType, overwrite: bool) -> DeadlyWriter:
        options = dict(self.options)
        return DeadlyWriter(schema, overwrite, options, options.pop("kill", "never"))
