"""Every offset is in the result exactly once, whatever is killed and whenever."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import psutil
import pytest

from ipcbus.archive import Archive
from tests.kit.archives import add
from tests.spark import crashing
from tests.spark.crashing import (
    DRIVER,
    FILES_WRITTEN,
    JVM,
    LAST_BATCH_COMMITTED,
    OFFSETS_LOGGED,
    READING,
    SINK_DONE,
    WORKER,
    Plan,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.stress]

ROOT = Path(__file__).parents[2]
STREAMS, TOPICS, BLOCK, BLOCKS = ("here", "there"), ("a", "b", "c"), 500, 12
A_BATCH = 2000
STRIKE_IN = 2
"""Of the six micro-batches that there are."""

QUICK = [(FILES_WRITTEN, DRIVER)]
ALL = [
    *((step, victim) for step in (OFFSETS_LOGGED, LAST_BATCH_COMMITTED, READING) for victim in (DRIVER, JVM, WORKER)),
    *((step, victim) for step in (FILES_WRITTEN, SINK_DONE) for victim in (DRIVER, JVM)),
]
CASES = [pytest.param(*each, marks=() if each in QUICK else pytest.mark.long) for each in ALL]

Key = tuple[str, int, int]


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    """Two logs whose messages are numbers, three topics in turn."""
    made = Archive.create(tmp_path / "archive")
    for stream in STREAMS:
        writer = made.writer(stream)
        for block in range(BLOCKS):
            first = block * BLOCK
            values = [b"%s %d" % (stream.encode(), first + i) for i in range(BLOCK)]
            add(writer, values, topic=TOPICS[block % len(TOPICS)], first=first)
        writer.close()
    return made


def expected(archive: Archive) -> dict[Key, bytes]:
    """What there is, as it was written."""
    return {
        (TOPICS[offset // BLOCK % len(TOPICS)], log.partition, offset): b"%s %d" % (log.stream.encode(), offset)
        for log in archive.logs()
        for offset in range(BLOCKS * BLOCK)
    }


def crash(plan: Plan) -> None:
    """Runs the query in processes of its own until it is killed, and looks that none of them lives on."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    arguments = [sys.executable, "-m", "tests.spark.crashing", json.dumps(dataclasses.asdict(plan))]
    with subprocess.Popen(
        arguments, cwd=ROOT, env=environment, start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as process:
        said, _ = process.communicate()
    psutil.wait_procs(list(members(process.pid)), timeout=30)
    alive = list(members(process.pid))
    for each in alive:
        each.kill()
    assert plan.struck, said.decode()
    assert process.returncode != 0
    assert not alive


def members(session: int) -> Iterator[psutil.Process]:
    """The processes of a session of the system."""
    for process in psutil.process_iter():
        with contextlib.suppress(ProcessLookupError, psutil.NoSuchProcess):
            # Of a zombie nothing is left but what its parent has not asked for.
            if os.getsid(process.pid) == session and process.status() != psutil.STATUS_ZOMBIE:
                yield process


@pytest.mark.parametrize(("step", "victim"), CASES)
def test_every_offset_is_there_once(
    spark: SparkSession, archive: Archive, tmp_path: Path, step: str, victim: str
) -> None:
    work = tmp_path / "work"
    work.mkdir()
    plan = Plan(str(archive.path), str(work), A_BATCH, STRIKE_IN, step, victim)
    crash(plan)
    before = sorted(path.name for path in plan.results.iterdir())
    crashing.run(spark, dataclasses.replace(plan, step=""))
    found = {}
    rows = spark.read.parquet(str(plan.results)).select("topic", "partition", "offset", "value").collect()
    for row in rows:
        found[row.topic, row.partition, row.offset] = bytes(row.value)
    assert len(rows) == len(found)
    assert found == expected(archive)
    glob = str(plan.results / "*" / "*.parquet")
    with duckdb.connect() as engine:
        duck = engine.execute('select topic, partition, "offset", value from read_parquet(?)', [glob]).fetchall()
    assert len(duck) == len(rows)
    assert {(topic, partition, offset): value for topic, partition, offset, value in duck} == found
    assert before[:STRIKE_IN] == [f"batch_id={number}" for number in range(STRIKE_IN)]
    # What the query has dealt with is given up, what it may ask for again is held.
    assert all(offset <= BLOCKS * BLOCK for offset in archive.cursors.all()["crash"].offsets.values())
