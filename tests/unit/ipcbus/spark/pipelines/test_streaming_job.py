"""When a stream writes its results, without a stream."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from ipcbus.spark.pipelines import streaming_job
from ipcbus.spark.pipelines.batch_files import BatchFiles
from ipcbus.spark.pipelines.pipeline import Pipeline
from ipcbus.spark.pipelines.streaming_job import StreamingJob

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


class Rows:
    """A micro-batch, and its session."""

    @property
    def sparkSession(self) -> Rows:
        return self


def test_results_are_written_while_no_micro_batch_comes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now, written = 1000.0, 0
    rows: Any = Rows()
    inside: list[StreamingJob] = []

    def write(job: StreamingJob, spark: object) -> dict[str, Path]:
        nonlocal written
        written += 1
        return {}

    def write_batch(*_: object) -> None:
        before = written
        for job in inside:
            job.refresh(rows)
        assert written == before, "what it reads is being written"

    monkeypatch.setattr(time, "monotonic", lambda: now)
    monkeypatch.setattr(StreamingJob, "write_results", write)
    monkeypatch.setattr(streaming_job, "_stream_id", lambda _: "id")
    for name in ("write", "merge"):
        monkeypatch.setattr(BatchFiles, name, write_batch)
    pipeline = Pipeline("none", (), False, lambda _: {}, {}, lambda _: {})
    job = StreamingJob(pipeline, tmp_path, refresh_seconds=10)
    job._refreshed = now
    job.refresh(rows)
    assert written == 0, "it is not time"
    now += 10
    job.refresh(rows)
    assert written == 1, "what was written before this start may not be in the results"
    now += 10
    job.refresh(rows)
    assert written == 1, "nothing is new"
    job._write(rows, 0)
    assert written == 2, "a micro-batch does it itself when it is time"
    now += 5
    job._write(rows, 1)
    assert written == 2
    now += 5
    job.refresh(rows)
    assert written == 3, "and else it is done when the time has come"
    inside.append(job)
    now += 10
    job._write(rows, 2)
    assert written == 4
    inside.clear()
    never = StreamingJob(pipeline, tmp_path)
    now += 1000
    never._write(rows, 3)
    never.refresh(rows)
    assert written == 4
