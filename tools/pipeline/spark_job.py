"""Spark from the command line: started with a note, watched while it works, its failures in one line."""

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

_OURS: Final = re.compile(r"ipcbus\.errors\.(\w+): ([^\n]+)")
_PYTHON: Final = re.compile(r"^(?:\w+\.)*\w*(?:Error|Exception): ([^\n]+)$", re.MULTILINE)
_JAVA: Final = re.compile(r"^Caused by: [\w.$]+: ([^\n]+)$", re.MULTILINE)
_AT: Final = re.compile(r"\s*\n\s*at .*", re.DOTALL)
_LONGEST: Final = 500


class Spark:
    """A session, and what is shown of it.

    Attributes:
        session: the session.
    """

    def __init__(self, session: SparkSession, signals: SignalHandler, progress: JobProgress) -> None:
        """Use `spark`."""
        self.session = session
        self._signals = signals
        self._progress = progress
        self._followed = False  # a stream until a signal came: what is run now is to be done all the same

    def run(self, name: str, work: Callable[[], _Result]) -> _Result:
        """Does something that runs jobs, and shows how far they are; a signal cancels them.

        Raises:
            Whatever the work raises.
        """
        from pyspark import InheritableThread

        done: dict[str, Any] = {}
        self._progress.begin(name)
        stages = Stages(self.session.sparkContext)

        def target() -> None:
            try:
                done["result"] = work()
            except BaseException as error:  # it is raised where it was asked for
                done["error"] = error

        thread = InheritableThread(target=target)
        thread.start()
        try:
            while thread.is_alive():
                # Only the waiting may be cut off: what is cut off talking to the JVM leaves an answer unread there.
                with contextlib.nullcontext() if self._followed else self._signals.interruptible():
                    self._signals.wait(_POLL_S)
                self._progress.show(*stages.progress())
        finally:
            while thread.is_alive():
                with contextlib.suppress(Exception):  # the signal may have ended the JVM too; then the work fails
                    self.session.sparkContext.cancelAllJobs()  # those of now; the next one may begin right after it
                thread.join(_POLL_S)
            self._progress.end()
        if "error" in done:
            raise done["error"]
        if "result" not in done:
            raise ConnectionError("the Java process of Spark has ended")
        result: _Result = done["result"]
        return result

    def describe(self, name: str) -> None:
        """Names what begins, while something runs."""
        self._progress.describe(name)

    def follow(self, query: StreamingQuery, meanwhile: Callable[[], None] = lambda: None) -> None:
        """Shows how far a stream is until it ends; a signal stops it after the micro-batch that it works on.

        Args:
            query: the stream.
            meanwhile: is called now and then; a signal waits until it is done.

        Raises:
            Stopped: by a signal; nothing that is run from now on is cancelled by another one.
            StreamingQueryException: it failed.
        """
        self._progress.begin(query.name or "stream")
        try:
            while query.isActive:
                with self._signals.interruptible():
                    self._signals.wait(_POLL_S)
                self._show_stream(query)
                meanwhile()
        except Stopped:
            self._followed = True
            raise
        finally:
            if query.isActive:
                query.stop()
            self._progress.end()
        query.awaitTermination()

    def _show_stream(self, query: StreamingQuery) -> None:
        told = query.lastProgress
        if told is None:
            self._progress.show("")
        else:
            self._progress.show(f"micro-batch {told.batchId}, {number(told.processedRowsPerSecond or 0)} rows/s")


@contextlib.contextmanager
def spark(
    name: str, master: str, confs: Mapping[str, str], signals: SignalHandler, *, quiet: bool = False
) -> Iterator[Spark]:
    """A session for a command; its log is kept only where something fails.

    Args:
        name: of the application.
        master: where it runs.
        confs: settings of Spark.
        signals: catches the signals.
        quiet: do not show how far it is.

    Raises:
        Stopped: by a signal, also where the signal has ended Spark's own processes first.
        Failure: pyspark or Java is missing, Spark does not start, or a job fails; one line with the cause.
    """
    from pyspark.errors import PySparkException

    from ipcbus import ConfigError, IpcBusError
    from ipcbus.spark.launcher import quiet_session
    from ipcbus.spark.session import check_java

    try:
        check_java()
    except ConfigError as error:
        raise Failure(str(error)) from error
    # It logs each try to reach a JVM that has ended, with a traceback; what that means is told in one line here.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    handle, path = tempfile.mkstemp(prefix="ipcbus-spark-", suffix=".log")
    keep = False
    try:
        with contextlib.ExitStack() as until_done:
            log = until_done.enter_context(os.fdopen(handle, "wb"))
            progress = until_done.enter_context(JobProgress(quiet=quiet))
            progress.begin(f"starting Spark ({master})")
            # A signal waits until Spark is up and can be ended.
            session = until_done.enter_context(quiet_session(name, master=master, confs=confs, log=log))
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
        gone = isinstance(error, (ConnectionError, EOFError))
        if gone or isinstance(error, PySparkException) or type(error).__module__.startswith("py4j"):
            keep = True
            raise _failure(error, path) from error
        raise
    finally:
        if not keep:
            Path(path).unlink(missing_ok=True)


def cause(error: BaseException) -> tuple[str, str]:
    """Name of our error in what Spark raised, empty where it is none of ours, and a line that says what happened."""
    text = str(error)
    ours = _OURS.findall(text)
    if ours:
        name, line = ours[-1]
        return name, line
    found = _PYTHON.findall(text) or _JAVA.findall(text)
    line = found[-1] if found else _AT.sub("", text).strip()
    return "", " ".join(line.split())[:_LONGEST] or type(error).__name__


def _failure(error: BaseException, log: str) -> Failure:
    name, line = cause(error)
    if name == "ConfigError":
        return Misuse(line)
    return Failure(line if name else f"Spark failed: {line}; its log is {log}")
