"""Each program of examples/ runs alone, ends by itself, and prints what it is about."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from ipcbus.resolution.local import stale_objects
from tests.kit.bus import GIVE_UP_S
from tests.unit.sources import ROOT

PRINTS = {
    "prometheus_grafana": "ipcbus_receiver_lbm_msgs_rcved_total 200",
    "spark_stream": "trades.MSFT: 1000 trades, volume 48777, average price 100.03",
    "hello": "bye",
    "market_data": "20000 trades, 0 lost, volume 400.541, average price 60947.21",
    "frames": "100 frames of 6220800 bytes, brightness from 0 to 198",
    "asyncio_service": "30 answers",
    "guaranteed_orders": "10 orders are booked",
    "work_queue": "300 jobs are done, 0 lost, 2 workers are left",
    "wildcard_logger": "INFO app.prices: the source has ended",
}


def test_every_example_is_run() -> None:
    assert {path.parent.name for path in (ROOT / "examples").glob("*/*.py")} == PRINTS.keys()
    listed = re.findall(r"^\| \[(\w+)\]", (ROOT / "examples" / "README.md").read_text(), re.MULTILINE)
    assert sorted(listed) == sorted(PRINTS)


NEEDS_SPARK = pytest.param("spark_stream", marks=[pytest.mark.spark, pytest.mark.timeout(600)])


@pytest.mark.parametrize("name", [NEEDS_SPARK, *sorted(PRINTS.keys() - {"spark_stream"})])
def test_an_example_runs_and_leaves_nothing(name: str) -> None:
    program = ROOT / "examples" / name / f"{name}.py"
    pipe = subprocess.PIPE
    # Unbuffered, as in many containers: a line and its end are two writes, and what two processes print at once mixes.
    with subprocess.Popen(
        [sys.executable, "-W", "error", str(program)],
        stdout=pipe,
        stderr=pipe,
        text=True,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
    ) as process:
        try:
            out, err = process.communicate(timeout=GIVE_UP_S * (10 if name == "spark_stream" else 2))
        finally:
            process.kill()
    assert process.returncode == 0, err
    assert PRINTS[name] in out.splitlines()
    assert "Traceback" not in err
    assert stale_objects.look(f"{name.replace('_', '-')}-{process.pid}") == ()
