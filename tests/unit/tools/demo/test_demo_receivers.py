from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from ipcbus import stats
from ipcbus_tools.common import Failure
from ipcbus_tools.demo import demo_receivers
from ipcbus_tools.demo.demo_receivers import DemoReceivers
from tests.kit.bus import LBTIPC, Bus

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """The demo waits until its processes end: on a busy machine they have not started yet when they are to end."""
    monkeypatch.setattr(demo_receivers, "_TIMEOUT_S", 600.0)


def receivers(domain: str) -> int:
    return sum(len(context.receivers) for context in stats.take_snapshot(domain).contexts)


def test_counts_and_ends(domain: str) -> None:
    bus = Bus(domain, LBTIPC, "embedded")
    try:
        with DemoReceivers(["one", "two"], ["t"], domain, None) as crew:
            source = bus.source("t")
            bus.joined(source, 2)
            crew.check()
            for _ in range(10):
                source.send(b"x")
            source.flush()
            bus.until(lambda: all(s.counters["lbm_msgs_rcved"] == 10 for s in _slots(domain)), "10 messages")
            assert {context.name for context in stats.take_snapshot(domain).contexts} == {"sending", "one", "two"}
            assert crew.counts() == {"one": {source.source: 10}, "two": {source.source: 10}}
        assert all(process.poll() == 0 for process in crew.processes.values())
    finally:
        bus.close()


def _slots(domain: str) -> list[stats.SlotStats]:
    return [slot for session in stats.take_snapshot(domain).sessions for slot in session.receivers]


def test_member_that_dies_is_noticed(domain: str) -> None:
    with DemoReceivers(["one"], ["t"], domain, None) as crew:
        (process,) = crew.processes.values()
        process.kill()
        process.wait()
        with pytest.raises(Failure, match="ended early with code -9"):
            crew.check()
        with pytest.raises(Failure, match="printed no counts"):
            crew.counts()


def test_bad_config_is_noticed(domain: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "bus.toml"
    config.write_text("[context]\nno_such_option = 1\n")
    with DemoReceivers(["one"], ["t"], domain, str(config)) as crew:
        (process,) = crew.processes.values()
        assert process.wait() == 2
        with pytest.raises(Failure, match="ended early with code 2"):
            crew.check()
    assert "no_such_option" in capfd.readouterr().err


def test_error_ends_them_too(domain: str) -> None:
    crew = DemoReceivers(["one", "two"], ["t"], domain, None)
    with pytest.raises(RuntimeError, match="in between"), crew:
        raise RuntimeError("in between")
    assert [process.poll() for process in crew.processes.values()] == [0, 0]


def test_start_that_fails_leaves_none(domain: str, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[subprocess.Popen[bytes]] = []
    real = subprocess.Popen

    def start(*args: Any, **options: Any) -> subprocess.Popen[bytes]:  # noqa: ANN401 - as Popen
        if started:
            raise OSError("no more processes")
        started.append(real(*args, **options))
        return started[0]

    monkeypatch.setattr(subprocess, "Popen", start)
    with pytest.raises(OSError, match="no more processes"):
        DemoReceivers(["one", "two"], ["t"], domain, None)
    assert started[0].poll() == 0
