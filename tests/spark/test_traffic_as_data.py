"""What docs/how-to/traffic-as-data.md says runs: the commands, and the lines of Spark."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import ipcbus
from tests.kit.bus import GIVE_UP_S
from tests.kit.sink_taker import alone
from tests.kit.waiting import until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.long]

SECTION = (Path(__file__).parents[2] / "docs" / "how-to" / "traffic-as-data.md").read_text()
COMMANDS = {
    line.split()[1]: shlex.split(line, comments=True)[1:] for line in re.findall(r"^    (ipcbus .*)$", SECTION, re.M)
}
SYMBOLS = ("AAPL", "MSFT")


def command(name: str, *more: str) -> list[str]:
    """A command of the page."""
    return [sys.executable, "-m", "ipcbus_tools", *COMMANDS[name], *more]


def done(directory: Path, name: str, *more: str) -> None:
    """Runs one to its end."""
    ended = subprocess.run(command(name, *more), cwd=directory, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr


def record(directory: Path, domain: str) -> None:
    """Publishes quotes while they are recorded."""
    with subprocess.Popen(command("record", "--domain", domain), cwd=directory, stderr=subprocess.PIPE) as recorder:
        with ipcbus.Context(domain=domain) as context:
            sources = [context.source(f"quotes.{symbol}") for symbol in SYMBOLS]
            for source in sources:
                source.wait_for_receivers(1, GIVE_UP_S)
            for number in range(100):
                for source in sources:
                    source.send(b"%d" % number, flush=True)
            queued = context.source("quotes.end")
            queued.wait_for_receivers(1, GIVE_UP_S)
            queued.send(b"end", flush=True)
        recorder.terminate()
        recorder.communicate()


def test_traffic_is_data(spark: SparkSession, domain: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert set(COMMANDS) == {"record", "replay", "pipeline", "archive"}
    record(tmp_path, domain)
    done(tmp_path, "archive")
    assert spark.read.parquet(str(tmp_path / "traffic.parquet")).count() == len(SYMBOLS) * 100 + 1
    done(tmp_path, "replay", "--domain", domain, "--wait-receivers", "0")
    done(tmp_path, "pipeline")
    assert (tmp_path / "report" / "report.html").stat().st_size > 1000

    (block,) = re.findall(r"```py\n(.*?)```", SECTION, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    read, write = block.splitlines()
    # Spark's own directory is where its JVM was started.
    here = read.replace('"traffic"', repr(str(tmp_path / "traffic"))).replace(
        ".load()", '.option("startingOffsets", "earliest").load()'
    )
    names: dict[str, Any] = {"spark": spark}
    exec(here, names)
    got: list[bytes] = []
    with ipcbus.Context({"context": {"liveness_check_interval": 20}}, domain=domain) as context:
        context.receiver("signals", lambda message: got.append(message.data) if message.type == 0 else None)
        more = f'.option("domain", {domain!r}).option("linger", "1ms").trigger(availableNow=True).start()'
        query = eval(write.replace('"cp"', repr(str(tmp_path / "cp"))).replace(".start()", more), names)
        query.awaitTermination()
        until(lambda: len(got) == 100, "the rows as messages")
        alone(context)
    assert got == [b"%d" % number for number in range(100)]
