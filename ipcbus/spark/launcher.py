"""Starts a Spark session that prints nothing: the output of its processes goes into a file."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from typing import IO, TYPE_CHECKING, Any, Final

from ipcbus.spark.session import CONFS, LOCAL_CONFS, check_java, session

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import SparkSession

_END_S: Final = 30.0
_LOOPBACK: Final = "127.0.0.1"


@contextlib.contextmanager
def logged_session(
    name: str, *, master: str, confs: Mapping[str, str] | None = None, log: IO[bytes]
) -> Iterator[SparkSession]:
    """Yields the Spark session of this process if there is one; else makes one, and ends it with its JVM.

    The caller must block signals while this begins: a signal handler that raises would leave a JVM behind which has not
    yet said where it listens.

    Args:
        name: name of the application.
        master: the cluster; a local one listens on the loopback interface only.
        confs: settings of Spark.
        log: gets the output of the JVM and its Python workers.

    Raises:
        ConfigError: there is no Java that Spark can run on.
    """
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    running = SparkSession.getActiveSession()
    if running is not None:
        yield running
        return
    check_java()
    settings = _settings(name, master, confs or {})
    # The JVM reads these from its environment.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    conf = SparkConf(loadDefaults=False).setAll(list(settings.items()))
    launch: Any = launch_gateway
    interrupt = signal.getsignal(signal.SIGINT)
    gateway = launch(conf, {"stdout": log, "stderr": log})
    SparkContext._gateway, SparkContext._jvm = gateway, gateway.jvm
    try:
        SparkContext(conf=conf)
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, interrupt)  # Spark has set its own handler, which raises anywhere
        made = session(name, master=master, confs=settings)
        try:
            yield made
        finally:
            made.stop()
    finally:
        SparkContext._gateway = SparkContext._jvm = None
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait(_END_S)


def _settings(name: str, master: str, confs: Mapping[str, str]) -> dict[str, str]:
    found = {**CONFS, "spark.app.name": name, "spark.master": master, "spark.ui.enabled": "false"}
    if master.startswith("local"):
        tasks = str(2 * (os.cpu_count() or 1))
        found |= {
            **LOCAL_CONFS,
            "spark.driver.host": _LOOPBACK,
            "spark.driver.bindAddress": _LOOPBACK,
            # As many partitions as one machine needs, not a cluster.
            "spark.sql.shuffle.partitions": tasks,
        }
    return {**found, **confs}
