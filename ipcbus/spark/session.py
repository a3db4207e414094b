"""Makes a Spark session with what the data source needs, and checks that Java is there."""

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
"""The package in which Spark finds the data source."""

JAVA_MIN: Final = 17
PACKAGE: Final = "openjdk-17-jre-headless"
"""The package with Java on Debian and Ubuntu."""

# For checkpoints in a local directory: Spark's default manager starts a process for each file's permissions, and takes
# twice as long. Checkpoints of a cluster are on its file system, whose renames need the default manager.
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
"""Recommended settings of a session; docs/how-to/spark.md says why."""

LOCAL_CONFS: Final = {"spark.sql.streaming.checkpointFileManagerClass": CHECKPOINT_MANAGER}
"""More recommended settings, for a session on this machine alone."""

_SUBMITTED: Final = "PYSPARK_GATEWAY_PORT"
"""Environment variable that spark-submit sets for the programs it starts."""


def session(name: str = "ipcbus", *, master: str | None = None, confs: Mapping[str, str] | None = None) -> SparkSession:
    """Returns the Spark session of this process, or makes one.

    Args:
        name: name of the application.
        master: where it runs: `local[N]` for N threads on this machine, or the URL of a cluster; None: the master that
            was given to spark-submit, else all processors of this machine.
        confs: settings of Spark, in addition to `CONFS` and `LOCAL_CONFS` or instead of theirs.

    Raises:
        ConfigError: pyspark is missing, or there is no Java that it can run on.
    """
    check_spark()
    from pyspark.sql import SparkSession

    from ipcbus.spark.data_source import IpcbusDataSource

    # The default is `python3` on the path, which lacks the packages of a virtual environment.
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
    # Spark searches the directories of the path, where it does not find an editable install. And a source that it finds
    # runs everywhere with the Python of this process's JVM, which need not be that of the executors.
    if not local or all(module.name != DISCOVERED for module in pkgutil.iter_modules()):
        made.dataSource.register(IpcbusDataSource)
    return made


def check_spark() -> None:
    """Checks that a session can be made.

    Raises:
        ConfigError: pyspark is missing, or there is no Java that it can run on.
    """
    if importlib.util.find_spec("pyspark") is None:
        raise ConfigError(f"Spark needs pyspark; {how_to_install('spark')}")
    check_java()


def check_java() -> str:
    """Checks that Spark finds a Java that is new enough.

    Returns:
        The version and path of that Java.

    Raises:
        ConfigError: there is no such Java; the text names the package to install.
    """
    cure = (
        f"install Java {JAVA_MIN} or newer (Debian, Ubuntu: apt install {PACKAGE}), or set JAVA_HOME to its directory"
    )
    home = os.environ.get("JAVA_HOME")
    java = Path(home, "bin", "java") if home else shutil.which("java")
    if java is None:
        raise ConfigError(f"Spark needs Java, but PATH has no java and JAVA_HOME is not set; {cure}")
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ConfigError(f"Spark needs Java, but {java} cannot be run ({error}); {cure}") from error
    found = re.search(r'version "(?:1\.)?(\d+)', done.stderr + done.stdout)
    if done.returncode or found is None:
        raise ConfigError(f"Spark needs Java, but {java} -version failed: {done.stderr.strip()[:200]}; {cure}")
    if int(found[1]) < JAVA_MIN:
        raise ConfigError(f"Spark needs Java {JAVA_MIN}, but {java} is version {found[1]}; {cure}")
    return f"version {found[1]} ({java})"
