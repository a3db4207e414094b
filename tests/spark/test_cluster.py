"""Pipelines on a standalone cluster: a master and two workers, each with executors of its own."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyspark
import pytest

from benchmarks.traffic import Traffic, Truth
from ipcbus.archive import Archive
from ipcbus.spark.pipelines.reading import Selection, read
from tests.kit.cluster import LOOPBACK, SPARK_CLASS, Cluster
from tests.kit.records import append, counted
from tests.spark import cluster_driver
from tests.spark.cluster_driver import PIPELINES
from tests.spark.test_pipeline_streams import lines
from tests.system.test_docs import PAGES, blocks
from tests.unit.sources import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.stress, pytest.mark.timeout(900)]

PAGE = "how-to/cluster.md"
ROWS = 30_000
SECOND_RECORDER = 5_000
CONFS = {
    "spark.cores.max": "2",
    "spark.driver.bindAddress": LOOPBACK,
    "spark.driver.host": LOOPBACK,
    "spark.driver.memory": "600m",
    "spark.executor.memory": "512m",
    # All executors are there before the first task is given to one.
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "120s",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
}


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Truth]:
    """What two recorders wrote into the same archive; one of them had a bad day."""
    path = tmp_path_factory.mktemp("traffic") / "archive"
    truth = Traffic(ROWS, topics=4, sessions=2, disturbances=300).write(path)
    with Archive(path).writer("second") as writer:
        append(writer, counted(SECOND_RECORDER))
    return path, truth


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("cluster"), CONFS) as started, started.workers([], []):
        yield started


def run(command: Sequence[str | Path], cluster: Cluster, log: Path, python: str = sys.executable) -> None:
    """Runs a program that submits an application to the cluster; its executors have this Python."""
    env = {**cluster.env, "PYSPARK_PYTHON": python}
    with log.open("w") as output:
        done = subprocess.run(command, cwd=log.parent, env=env, stdout=output, stderr=output, check=False)
    assert done.returncode == 0, log.read_text()[-5000:]


def submit(
    cluster: Cluster, do: str, archive: Path, out: Path, python: str = sys.executable, **confs: str
) -> dict[str, Any]:
    """Runs an application on the cluster; returns what it has found."""
    out.mkdir()
    request, answer, log = (out / name for name in ("request.json", "answer.json", "log"))
    given = {"do": do, "master": cluster.url, "archive": str(archive), "out": str(out), "confs": confs}
    request.write_text(json.dumps(given))
    run([sys.executable, cluster_driver.__file__, request, answer], cluster, log, python)
    found: dict[str, Any] = json.loads(answer.read_text())
    return found


def results(spark: SparkSession, path: Path) -> dict[str, dict[str, DataFrame]]:
    """What the pipelines find in the session of this process."""
    found = {}
    for pipeline in PIPELINES:
        found[pipeline.name] = pipeline.run(read(spark, Selection(path), pipeline.columns, events=pipeline.events))
    return found


def test_pipelines_find_what_they_find_in_one_process(
    spark: SparkSession, cluster: Cluster, archive: tuple[Path, Truth], tmp_path: Path
) -> None:
    path, truth = archive
    out = tmp_path / "out"
    told = submit(cluster, "pipelines", path, out)
    for name, expected in results(spark, path).items():
        for table, frame in expected.items():
            assert lines(spark.read.parquet(str(out / name / table))) == lines(frame)
    (line,) = spark.read.parquet(str(out / "audit" / "summary")).collect()
    for name in ("missing", "duplicates", "late", "lost_bus", "lost_recorder"):
        assert line[name] == getattr(truth, name) > 0
    assert told["manager"] == ""
    assert len(told["read"]) == 2
    assert sum(told["read"].values()) == truth.messages + SECOND_RECORDER
    assert min(told["read"].values()) > 0


@pytest.mark.long
def test_a_stream_finds_what_it_finds_in_one_process(
    spark: SparkSession, cluster: Cluster, archive: tuple[Path, Truth], tmp_path: Path
) -> None:
    path, out = archive[0], tmp_path / "out"
    submit(cluster, "streamed", path, out)
    for table, frame in results(spark, path)["throughput"].items():
        assert lines(spark.read.parquet(str(out / "stream" / table))) == lines(frame)


@pytest.mark.long
def test_commands_of_the_page(
    spark: SparkSession, cluster: Cluster, archive: tuple[Path, Truth], tmp_path: Path
) -> None:
    """That of the CLI, and a program for spark-submit over two archives."""
    path, truth = archive
    for folder in ("traffic", "reports"):
        (tmp_path / folder).mkdir()
    shutil.copytree(path, tmp_path / "traffic" / "desk1")
    with Archive.create(tmp_path / "traffic" / "desk2").writer("desk2") as writer:
        append(writer, counted(SECOND_RECORDER))
    (program,) = blocks(PAGE, "py")
    (tmp_path / "desks.py").write_text(program.replace("/mnt", str(tmp_path)))
    text = PAGES[PAGE]
    tools = (("ipcbus pipeline throughput", Path(sys.executable).parent), ("spark-submit", SPARK_CLASS.parent))
    for command, directory in tools:
        (line,) = re.findall(rf"^head\$ ({command} .*?)$", text, re.MULTILINE)
        words = line.replace("spark://head:7077", cluster.url).replace("/mnt", str(tmp_path)).split()
        run([directory / words[0], *words[1:]], cluster, tmp_path / f"{words[0]}.log")
    totals = spark.read.parquet(str(tmp_path / "reports" / "desk1" / "throughput" / "totals"))
    (one,) = totals.where("topic IS NULL").collect()
    (both,) = spark.read.parquet(str(tmp_path / "reports" / "desks" / "summary")).collect()
    assert one["messages"] == truth.messages + SECOND_RECORDER
    assert both["messages"] == truth.messages + 2 * SECOND_RECORDER
    assert both["duplicates"] == truth.duplicates
    assert both["missing"] == truth.missing


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives a worker a host name and a file system of its own")
@pytest.mark.long
@pytest.mark.parametrize("there", ["nothing", "another"])
def test_archive_that_is_not_where_an_executor_runs(
    cluster: Cluster, archive: tuple[Path, Truth], tmp_path: Path, there: str
) -> None:
    path, _ = archive
    other = tmp_path / "other"
    other.mkdir()
    if there == "another":
        with Archive.create(other).writer("second") as writer:
            append(writer, counted(SECOND_RECORDER))
    script = f'hostname elsewhere && mount --bind "{other}" "{path}" && exec "$0" "$@"'
    # The only worker that is large enough for such an executor.
    with cluster.workers(["unshare", "--mount", "--uts", "sh", "-c", script], cores=2):
        told = submit(cluster, "refused", path, tmp_path / "out", **{"spark.executor.cores": "2"})
    assert os.uname().nodename != "elsewhere"
    reason = "is not an archive" if there == "nothing" else f"is archive {Archive(other).id}, but archive"
    for text in (told["batch"], told["stream"]):
        assert f"ArchiveMissing: {path} on host elsewhere {reason}" in text
        assert f"the query was planned on host {os.uname().nodename}, which has it: run Spark's executors there" in text


@pytest.mark.long
def test_executor_and_worker_that_are_killed_change_nothing(
    spark: SparkSession, cluster: Cluster, archive: tuple[Path, Truth], tmp_path: Path
) -> None:
    """The last one: it leaves the cluster with one worker. The Python of its executors has no packages of its own."""
    path, _ = archive
    out = tmp_path / "out"
    packages = f"{Path(pyspark.__path__[0]).parent}:{ROOT}"
    bare = str(Path(sys.executable).resolve())
    confs = {
        "spark.executorEnv.PYTHONPATH": packages,
        # Several batches from a task, so that it can end in the middle.
        "spark.sql.execution.arrow.maxRecordsPerBatch": "1000",
    }
    submit(cluster, "killed", path, out, bare, **confs)
    for table, frame in results(spark, path)["audit"].items():
        for kill in ("executor", "worker"):
            assert (out / f"{kill}.killed").exists()
            assert lines(spark.read.parquet(str(out / kill / table))) == lines(frame)
