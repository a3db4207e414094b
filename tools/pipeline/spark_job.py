"""Spark for the command line: shows its start and its progress, and reports a failure in one line."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from ipcbus_tools.common import Failure, Misuse, number
from ipcbus_tools.pipeline.job_progress import JobProgress, Stages
from ipcbus_tools.signals import Stopped

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from ipcbus_tools.signals import SignalHandler

_Result = TypeVar("_Result")

_POLL_S: Final = 0.2

_IPCBUS_ERROR: Final = re.compile(r"ipcbus\.errors\.(\w+): ([^\n]+)")
_PYTHON_ERROR: Final = re.compile(r"^(?:\w+\.)*\w*(?:Error|Exception): ([^\n]+)$", re.MULTILINE)
_JAVA_ERROR: Final = re.compile(r"^Caused by: [\w.$]+: ([^\n]+)$", re.MULTILINE)
_STACK: Final = re.compile(r"\s*\n\s*at .*", re.DOTALL)
_LINE_MAX: Final = 500


class Spark:
    """A Spark session whose progress is shown.

    Attributes:
        session: the session.
    """

    def __init__(self, session: SparkSession, signals: SignalHandler, progress: JobProgress) -> None:
        """Wraps a session; use `spark` to make one."""
        self.session = session
        self._signals = signals
        self._progress = progress
        self._stream_ended = False  # by a signal; the jobs that write its results then run to their end

    def run(self, name: str, work: Callable[[], _Result]) -> _Result:
        """Calls a function that runs jobs, and shows their progress; a signal cancels the jobs.

        Raises:
            Exception: what the function raises.
        """
        from pyspark import InheritableThread

        done: dict[str, Any] = {}
        self._progress.begin(name)
        stages = Stages(self.session.sparkContext)

        def target() -> None:
            try:
                done["result"] = work()
            except BaseException as error:  # the calling thread raises it
                done["error"] = error

        thread = InheritableThread(target=target)
        thread.start()
        try:
            while thread.is_alive():
                # A signal may interrupt only the wait: an interrupted call to the JVM would leave its answer unread.
                with contextlib.nullcontext() if self._stream_ended else self._signals.interruptible():
                    self._signals.wait(_POLL_S)
                self._progress.show(*stages.progress())
        finally:
            while thread.is_alive():
                with contextlib.suppress(Exception):  # the signal may have ended the JVM too; then the function fails
                    self.session.sparkContext.cancelAllJobs()  # in a loop, as the next job may begin right after it
                thread.join(_POLL_S)
            self._progress.end()
        if "error" in done:
            raise done["error"]
        if "result" not in done:
            raise ConnectionError("the Java process of Spark has ended")
        result: _Result = done["result"]
        return result

    def describe(self, name: str) -> None:
        """Names the part that begins."""
        self._progress.describe(name)

    def follow(self, query: StreamingQuery, meanwhile: Callable[[], None] = lambda: None) -> None:
        """Shows the progress of a stream until it ends; a signal stops it after its current micro-batch.

        Args:
            query: the stream.
            meanwhile: called several times a second; a signal waits until it returns.

        Raises:
            Stopped: a signal ended the stream; further signals do not cancel the jobs that follow.
            StreamingQueryException: the stream failed.
        """
        self._progress.begin(query.name or "stream")
        try:
            while query.isActive:
                with self._signals.interruptible():
                    self._signals.wait(_POLL_S)
                self._show_stream(query)
                meanwhile()
        except Stopped:
            self._stream_ended = True
            raise
        finally:
            if query.isActive:
                query.stop()
            self._progress.end()
        query.awaitTermination()

    def _show_stream(self, query: StreamingQuery) -> None:
        last = query.lastProgress
        if last is None:
            self._progress.show("")
        else:
            self._progress.show(f"micro-batch {last.batchId}, {number(last.processedRowsPerSecond or 0)} rows/s")


@contextlib.contextmanager
def spark(
    name: str, master: str, confs: Mapping[str, str], signals: SignalHandler, *, quiet: bool = False
) -> Iterator[Spark]:
    """Opens a Spark session for a command; its log file stays only after a failure.

    Args:
        name: name of the application.
        master: the Spark master.
        confs: settings of Spark.
        signals: catches the signals.
        quiet: do not show the progress.

    Raises:
        Stopped: a signal came, also when it has ended Spark's own processes first.
        Failure: pyspark or Java is missing, Spark does not start, or a job fails; one line with the cause.
    """
    from pyspark.errors import PySparkException

    from ipcbus import ConfigError, IpcBusError
    from ipcbus.spark.launcher import logged_session
    from ipcbus.spark.session import check_java

    try:
        check_java()
    except ConfigError as error:
        raise Failure(str(error)) from error
    # py4j logs a traceback for each try to reach a JVM that has ended; the failure below says it in one line.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    handle, path = tempfile.mkstemp(prefix="ipcbus-spark-", suffix=".log")
    keep = False
    try:
        with contextlib.ExitStack() as until_done:
            log = until_done.enter_context(os.fdopen(handle, "wb"))
            progress = until_done.enter_context(JobProgress(quiet=quiet))
            progress.begin(f"starting Spark ({master})")
            # A signal waits until Spark is up and can be ended.
            session = until_done.enter_context(logged_session(name, master=master, confs=confs, log=log))
            with signals.interruptible():
                pass
            progress.end()
            yield Spark(session, signals, progress)
    except IpcBusError:
        raise
    except Exception as error:
        if signals.signum:
            # A terminal, systemd and `timeout` send the signal to the JVM too, which ends at once.
            raise Stopped(signals.signum) from None
        jvm_ended = isinstance(error, (ConnectionError, EOFError))
        if jvm_ended or isinstance(error, PySparkException) or type(error).__module__.startswith("py4j"):
            keep = True
            raise _failure(error, path) from error
        raise
    finally:
        if not keep:
            Path(path).unlink(missing_ok=True)


def cause(error: BaseException) -> tuple[str, str]:
    """Returns the name of the ipcbus error that Spark wraps, or an empty text, and a line that says what happened."""
    text = str(error)
    own_errors = _IPCBUS_ERROR.findall(text)
    if own_errors:
        name, line = own_errors[-1]
        return name, line
    found = _PYTHON_ERROR.findall(text) or _JAVA_ERROR.findall(text)
    line = found[-1] if found else _STACK.sub("", text).strip()
    return "", " ".join(line.split())[:_LINE_MAX] or type(error).__name__


def _failure(error: BaseException, log: str) -> Failure:
    name, line = cause(error)
    if name == "ConfigError":
        return Misuse(line)
    return Failure(line if name else f"Spark failed: {line}; its log is {log}")
