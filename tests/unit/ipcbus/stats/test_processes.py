from __future__ import annotations

import os
import signal
import subprocess
import time

import psutil
import pytest

from ipcbus.stats import Processes
from ipcbus.stats.processes import user_name

MINE = os.getpid()


def test_commands() -> None:
    processes = Processes()
    assert processes.command(MINE, time.time_ns()) == " ".join(psutil.Process().cmdline())
    assert processes.command(2**22 + 1, time.time_ns()) == ""
    assert processes.command(2**63, time.time_ns()) == ""


def test_a_process_that_began_later_is_another_one() -> None:
    began = round(psutil.Process().create_time() * 1e9)
    assert Processes().command(MINE, began - 60_000_000_000) == ""


def test_looked_up_once(monkeypatch: pytest.MonkeyPatch) -> None:
    processes, now = Processes(), time.time_ns()
    known = processes.command(MINE, now)
    processes.forget_unused()
    monkeypatch.setattr(psutil, "Process", None)
    assert processes.command(MINE, now) == known
    processes.forget_unused()
    processes.forget_unused()
    with pytest.raises(TypeError):
        processes.command(MINE, now)


def test_users() -> None:
    assert user_name(0) == "root"
    assert user_name(2**31 - 7) == str(2**31 - 7)
    assert user_name(2**40) == str(2**40)


def test_stopped() -> None:
    with subprocess.Popen(["sleep", "60"]) as child:
        processes = Processes()
        assert not processes.stopped(child.pid, time.time_ns())
        os.kill(child.pid, signal.SIGSTOP)
        os.waitpid(child.pid, os.WUNTRACED)
        processes.forget_unused()
        assert processes.stopped(child.pid, time.time_ns())
        child.kill()
    assert not Processes().stopped(2**22 + 1, time.time_ns())
