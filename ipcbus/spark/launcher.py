"""A Spark session that prints nothing: what its processes have to say goes into a file."""

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
def quiet_session(
    name: str, *, master: str, confs: Mapping[str, str] | None = None, log: IO[bytes]
) -> Iterator[SparkSession]:
    """The session of this process if there is one, which goes on; else one made now and ended with its JVM.

    What a signal raises must not be raised while this begins: a JVM that has not yet told where it listens would stay.

    Args:
        name: of the application.
        master: where it runs; a local one listens on no interface but the loopback.
        confs: settings of Spark.
        log: what the JVM and its Python workers print goes here.

    Raises:
        ConfigError: there is no Java that Spark could run on.
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
    # The JVM takes them from its environment.
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
            signal.signal(signal.SIGINT, interrupt)  # Spark has put its own in this place, which raises anywhere
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
            # As many pieces as a laptop has use for, not as a cluster.
            "spark.sql.shuffle.partitions": tasks,
        }
    return {**found, **confs}
