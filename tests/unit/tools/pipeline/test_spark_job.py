"""Spark from the command line as far as it goes without Spark: what a signal does, and when."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import threading
from typing import TYPE_CHECKING, Any

import pytest
from py4j.protocol import Py4JError  # type: ignore[import-untyped]

from ipcbus.spark import launcher
from ipcbus_tools.common import Failure
from ipcbus_tools.pipeline.job_progress import JobProgress, Stages
from ipcbus_tools.pipeline.spark_job import Spark, spark
from ipcbus_tools.signals import SignalHandler, Stopped
from tests.kit.bus import GIVE_UP_S

if TYPE_CHECKING:
    from collections.abc import Iterator


def test_a_signal_waits_until_spark_is_up_and_then_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody could end a JVM that is cut off while it starts."""
    events = []

    @contextlib.contextmanager
    def starting(*_: object, **__: object) -> Iterator[object]:
        os.kill(os.getpid(), signal.SIGTERM)
        events.append("up")
        try:
            yield object()
        finally:
            events.append("ended")

    monkeypatch.setattr("ipcbus.spark.session.check_java", lambda: None)
    monkeypatch.setattr("ipcbus.spark.launcher.logged_session", starting)
    with SignalHandler() as signals, pytest.raises(Stopped), spark("test", "local", {}, signals):
        pytest.fail("began although a signal had come")
    assert events == ["up", "ended"]


class Session:
    """A session whose jobs can be cancelled, as their own context."""

    def __init__(self) -> None:
        self.cancelled = threading.Semaphore(0)

    @property
    def sparkContext(self) -> Session:
        return self

    def statusTracker(self) -> Session:
        return self

    def getActiveStageIds(self) -> list[int]:
        return []

    def cancelAllJobs(self) -> None:
        self.cancelled.release()


class Stream:
    """A stream that goes on until it is stopped."""

    name = "stream"
    lastProgress = None
    isActive = True

    def stop(self) -> None:
        self.isActive = False

    def awaitTermination(self) -> None:
        assert not self.isActive


def test_ctrl_c_cancels_jobs_that_begin_after_it_too() -> None:
    session: Any = Session()

    def work() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        for _ in range(3):  # the first cancellation may come between two jobs
            assert session.cancelled.acquire(timeout=GIVE_UP_S)

    with SignalHandler() as signals, pytest.raises(Stopped):
        Spark(session, signals, JobProgress(quiet=True)).run("work", work)


def test_ctrl_c_before_a_job_cancels_it_but_not_what_follows_a_stream() -> None:
    session: Any = Session()
    with SignalHandler() as signals:
        job = Spark(session, signals, JobProgress(quiet=True))
        os.kill(os.getpid(), signal.SIGINT)
        with pytest.raises(Stopped):
            job.run("work", lambda: session.cancelled.acquire(timeout=GIVE_UP_S))
        with pytest.raises(Stopped):
            job.follow(Stream())  # type: ignore[arg-type]
        assert job.run("results", lambda: 7) == 7
    assert not session.cancelled.acquire(timeout=0)


def test_ctrl_c_is_ours_as_soon_as_there_is_a_context(monkeypatch: pytest.MonkeyPatch) -> None:
    class Gateway:
        jvm = None
        ended = False

        def shutdown(self) -> None:
            self.ended = True

        @property
        def proc(self) -> Any:  # noqa: ANN401
            return self

        stdin = io.BytesIO()

        def wait(self, seconds: float) -> None:
            pass

    class Context:
        _gateway = _jvm = _active_spark_context = None

        def __init__(self, conf: object) -> None:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    gateway, ours = Gateway(), signal.getsignal(signal.SIGINT)

    def session(*_: object, **__: object) -> object:
        os.kill(os.getpid(), signal.SIGINT)
        raise RuntimeError("no session")

    monkeypatch.setattr("pyspark.SparkContext", Context)
    monkeypatch.setattr("pyspark.java_gateway.launch_gateway", lambda *_: gateway)
    monkeypatch.setattr(launcher, "session", session)
    monkeypatch.setattr(launcher, "check_java", lambda: None)
    with (
        SignalHandler() as signals,
        pytest.raises(RuntimeError, match="no session"),
        launcher.logged_session("test", master="local", log=io.BytesIO()),
    ):
        pytest.fail("there is no session")
    assert signals.signum == signal.SIGINT
    assert gateway.ended
    assert signal.getsignal(signal.SIGINT) is ours


@pytest.mark.parametrize(
    "error", [ConnectionRefusedError(111, "Connection refused"), Py4JError("Answer from Java side")]
)
def test_a_signal_that_ends_the_jvm_too_is_a_signal_and_no_failure(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """`timeout`, systemd and terminals send it to all processes of a group."""

    @contextlib.contextmanager
    def running(*_: object, **__: object) -> Iterator[object]:
        try:
            yield Session()
        finally:
            raise error

    monkeypatch.setattr("ipcbus.spark.session.check_java", lambda: None)
    monkeypatch.setattr("ipcbus.spark.launcher.logged_session", running)
    with SignalHandler() as signals, pytest.raises(Stopped) as caught, spark("test", "local", {}, signals, quiet=True):
        os.kill(os.getpid(), signal.SIGTERM)
    assert (caught.value.exit_code, str(caught.value)) == (143, "SIGTERM")
    with SignalHandler() as signals, pytest.raises(Failure, match="Spark failed"), spark("test", "local", {}, signals):
        pass  # without a signal it is one


def test_progress_is_a_line_now_and_then_where_there_is_no_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = [100.0]
    monkeypatch.setattr("ipcbus_tools.pipeline.job_progress.time.monotonic", lambda: now[0])
    for silent in (False, True):
        with JobProgress(quiet=silent) as progress:
            progress.begin("report")
            for second in range(25):
                now[0] += 1
                progress.describe("audit" if second > 15 else "latency")
                progress.show(f"{second} of 40 tasks")
            progress.end()
        said = capsys.readouterr().err.splitlines()
        assert said == ([] if silent else ["latency: 9 of 40 tasks, after 10 s", "audit: 19 of 40 tasks, after 20 s"])


def test_stages_tasks_and_rows_of_jobs_are_counted() -> None:
    class Jobs:
        """Two stages, of which the first ends with rows that nobody has seen while it was active."""

        active = (1,)
        rows = {1: 100, 2: 0}  # noqa: RUF012

        def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever leads to the tracker and to the store
            return lambda: self

        @property
        def _jsc(self) -> Jobs:
            return self

        def getActiveStageIds(self) -> tuple[int, ...]:
            return self.active

        def getStageInfo(self, stage: int) -> Any:  # noqa: ANN401
            return type("Info", (), {"numTasks": 4, "numCompletedTasks": stage})

        def lastStageAttempt(self, stage: int) -> Any:  # noqa: ANN401
            return type("Data", (), {"inputRecords": lambda _: self.rows[stage]})()

    jobs: Any = Jobs()
    stages = Stages(jobs)
    assert stages.progress() == ("1 stage, 1 of 4 tasks, 100 rows read", 1, 4)
    jobs.active, jobs.rows = (2,), {1: 1500, 2: 0}
    assert stages.progress() == ("2 stages, 2 of 4 tasks, 1,500 rows read", 2, 4)
    jobs.active = ()
    assert stages.progress() == ("2 stages, 1,500 rows read", 0, None)
