"""A standalone cluster of Spark: a master and workers, each a process of this machine, as the pip package has them."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pyspark

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Self

LOOPBACK = "127.0.0.1"
SPARK_CLASS = Path(pyspark.__path__[0], "bin", "spark-class")
GIVE_UP_S = 120.0

_MARK = "IPCBUS_TEST_CLUSTER"
_ENDING_S = 30.0


class Daemon:
    """A process that says in its output how far it is."""

    def __init__(self, command: Sequence[str | Path], env: Mapping[str, str]) -> None:
        """Starts it."""
        self._lines: list[str] = []
        self._ended = False
        self._told = threading.Condition()
        self._process = subprocess.Popen(
            command,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, name="output of a daemon")
        self._reader.start()

    def wait_for(self, pattern: str) -> str:
        """Waits for a line in which a regular expression is found; returns what its first group matched.

        Raises:
            RuntimeError: the process ended first, or said nothing of the kind for a long time.
        """

        def search() -> re.Match[str] | None:
            return next(filter(None, (re.search(pattern, line) for line in self._lines)), None)

        with self._told:
            self._told.wait_for(lambda: self._ended or search() is not None, GIVE_UP_S)
            found = search()
        if found is None:
            raise RuntimeError(f"no line has {pattern!r}:\n" + "".join(self._lines[-30:]))
        return found[1]

    def stop(self) -> None:
        """Ends it, and waits."""
        self._process.terminate()
        try:
            self._process.wait(_ENDING_S)
        finally:
            self._process.kill()
            self._process.wait()
            self._reader.join()

    def _read(self) -> None:
        with self._process.stdout as output:  # type: ignore[union-attr]
            for line in output:
                with self._told:
                    self._lines.append(line)
                    self._told.notify_all()
        with self._told:
            self._ended = True
            self._told.notify_all()


class Cluster:
    """A master with workers that come and go.

    Attributes:
        url: what an application takes as its master.
        env: of the processes, and of applications that are to be found among them.
    """

    def __init__(self, directory: Path, confs: Mapping[str, str]) -> None:
        """Starts the master.

        Args:
            directory: where files of all processes lie.
            confs: settings of every application.
        """
        self._directory = directory
        conf, local = directory / "conf", directory / "local"
        conf.mkdir()
        local.mkdir()
        (conf / "spark-defaults.conf").write_text("".join(f"{name} {value}\n" for name, value in confs.items()))
        kept = {name: os.environ[name] for name in ("PATH", "JAVA_HOME", "LANG") if name in os.environ}
        self.env = {
            **kept,
            _MARK: str(directory),
            "SPARK_CONF_DIR": str(conf),
            "SPARK_HOME": pyspark.__path__[0],
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_LOCAL_DIRS": str(local),
            "SPARK_LOCAL_IP": LOOPBACK,
            "SPARK_MASTER_OPTS": "-Dspark.master.rest.enabled=false",
        }
        self._master = self._start("org.apache.spark.deploy.master.Master")
        try:
            self.url = self._master.wait_for(r"Starting Spark master at (spark://\S+)")
            self._master.wait_for(r"(New state: ALIVE)")
        except BaseException:
            self._master.stop()
            raise

    @contextlib.contextmanager
    def workers(self, *several: Sequence[str], cores: int = 1) -> Iterator[None]:
        """Workers while the block runs.

        Args:
            several: for each worker, the command that starts another command, where it is on a host of its own.
            cores: of each.
        """
        options = ("--cores", str(cores), "--memory", "600m", "--work-dir", str(self._directory / "work"), self.url)
        with contextlib.ExitStack() as started:
            daemons = []
            for inside in several:
                daemons.append(self._start("org.apache.spark.deploy.worker.Worker", *options, inside=inside))
                started.callback(daemons[-1].stop)
            for daemon in daemons:
                daemon.wait_for(r"(Successfully registered with master)")
            yield

    def stop(self) -> list[str]:
        """Ends the master; returns what is left of it, its workers and their executors, which is ended too."""
        self._master.stop()
        _, left = psutil.wait_procs(self._processes(), timeout=_ENDING_S)
        described = [str(process) for process in left]
        for process in left:
            process.send_signal(signal.SIGKILL)
        psutil.wait_procs(left)
        return described

    def __enter__(self) -> Self:
        """It is there already."""
        return self

    def __exit__(self, *_: object) -> None:
        """Ends it, and fails where something is left."""
        left = self.stop()
        if left:
            raise RuntimeError(f"the cluster left processes behind: {left}")

    def _start(self, name: str, *options: str, inside: Sequence[str] = ()) -> Daemon:
        command = [*inside, SPARK_CLASS, name, "--host", LOOPBACK, "--port", "0", "--webui-port", "0", *options]
        return Daemon(command, self.env)

    def _processes(self) -> list[psutil.Process]:
        """Every process that was started with the environment of this cluster."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.environ().get(_MARK) == str(self._directory):
                    found.append(process)
        return found
