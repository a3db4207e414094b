"""Spark from the command line as far as it goes without Spark: what a signal does, and when."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import threading
from typing import TYPE_CHECKING, Any

import pytest
from rich.progress import Progress

from ipcbus.spark import quiet
from ipcbus_tools.spark_job import Spark, spark
from ipcbus_tools.stopping import Stopped, Stopper
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
    monkeypatch.setattr("ipcbus.spark.quiet.quiet_session", starting)
    with Stopper() as stopper, pytest.raises(Stopped), spark("test", "local", {}, stopper):
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

    with Stopper() as stopper, pytest.raises(Stopped):
        Spark(session, stopper, Progress(disable=True)).run("work", work)


def test_ctrl_c_before_a_job_cancels_it_but_not_what_follows_a_stream() -> None:
    session: Any = Session()
    with Stopper() as stopper:
        job = Spark(session, stopper, Progress(disable=True))
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
    monkeypatch.setattr(quiet, "session", session)
    monkeypatch.setattr(quiet, "check_java", lambda: None)
    with (
        Stopper() as stopper,
        pytest.raises(RuntimeError, match="no session"),
        quiet.quiet_session("test", master="local", log=io.BytesIO()),
    ):
        pytest.fail("there is no session")
    assert stopper.signum == signal.SIGINT
    assert gateway.ended
    assert signal.getsignal(signal.SIGINT) is ours
