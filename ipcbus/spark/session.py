"""A Spark session with what the data source needs, and an error that helps where there is no Java."""

from __future__ import annotations

import importlib.util
import os
import pkgutil
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ipcbus.errors import ConfigError
from ipcbus.extras import how_to_install

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

DISCOVERED: Final = "pyspark_ipcbus"
"""The package in which Spark finds the data source by itself."""

JAVA_MIN: Final = 17
PACKAGE: Final = "openjdk-17-jre-headless"
"""What has Java on Debian and Ubuntu."""

# The checkpoint of a stream in a local directory: the usual way starts a process for each file's permissions, and
# takes twice as long. That of a cluster is on a file system of the cluster's, whose renames only the usual way knows.
CHECKPOINT_MANAGER: Final = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)
CONFS: Final[dict[str, str]] = {
    "spark.python.daemon.module": "ipcbus.spark.worker_daemon",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.showConsoleProgress": "false",
}
"""What a session is recommended to have; docs/how-to/spark.md says why."""

LOCAL_CONFS: Final = {"spark.sql.streaming.checkpointFileManagerClass": CHECKPOINT_MANAGER}
"""What a session on this machine alone is recommended to have besides."""

_SUBMITTED: Final = "PYSPARK_GATEWAY_PORT"
"""Variable of the environment that a program which spark-submit has started has."""


def session(name: str = "ipcbus", *, master: str | None = None, confs: Mapping[str, str] | None = None) -> SparkSession:
    """Returns the Spark session of this process, made now if there is none.

    Args:
        name: of the application.
        master: where it runs: `local[N]` for N threads on this machine, or the URL of a cluster; None: where
            spark-submit was told to run this program, else on all processors of this machine.
        confs: settings of Spark that are added to `CONFS` and `LOCAL_CONFS`, or take the place of one.

    Raises:
        ConfigError: pyspark is missing, or there is no Java that it could run on.
    """
    check_spark()
    from pyspark.sql import SparkSession

    from ipcbus.spark.data_source import IpcbusDataSource

    # A worker is `python3` of the path otherwise, which has other packages than a virtual environment.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(name)
    if master is None and _SUBMITTED not in os.environ:
        master = "local[*]"
    if master is not None:
        builder = builder.master(master)
    local = master is not None and master.startswith("local")
    for key, value in {**CONFS, **(LOCAL_CONFS if local else {}), **(confs or {})}.items():
        builder = builder.config(key, value)
    made = builder.getOrCreate()
    # Spark looks through the directories of the path, where an editable install has nothing of its own. And what it
    # finds there runs everywhere with the Python of this process's JVM, which need not be that of the executors.
    if not local or all(module.name != DISCOVERED for module in pkgutil.iter_modules()):
        made.dataSource.register(IpcbusDataSource)
    return made


def check_spark() -> None:
    """Makes sure that a session can be made.

    Raises:
        ConfigError: pyspark is missing, or there is no Java that it could run on.
    """
    if importlib.util.find_spec("pyspark") is None:
        raise ConfigError(f"Spark needs pyspark; {how_to_install('spark')}")
    check_java()


def check_java() -> str:
    """Makes sure that Spark will find a Java that is new enough.

    Returns:
        Which one it will find: version and path.

    Raises:
        ConfigError: it will not; the text names the package to install.
    """
    cure = (
        f"install Java {JAVA_MIN} or newer (Debian, Ubuntu: apt install {PACKAGE}), or set JAVA_HOME to where it lies"
    )
    home = os.environ.get("JAVA_HOME")
    java = Path(home, "bin", "java") if home else shutil.which("java")
    if java is None:
        raise ConfigError(f"Spark needs Java, and no java is on PATH and JAVA_HOME is not set; {cure}")
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ConfigError(f"Spark needs Java, and {java} cannot be run ({error}); {cure}") from error
    found = re.search(r'version "(?:1\.)?(\d+)', done.stderr + done.stdout)
    if done.returncode or found is None:
        raise ConfigError(f"Spark needs Java, and {java} -version failed: {done.stderr.strip()[:200]}; {cure}")
    if int(found[1]) < JAVA_MIN:
        raise ConfigError(f"Spark needs Java {JAVA_MIN}, and {java} is version {found[1]}; {cure}")
    return f"version {found[1]} ({java})"
