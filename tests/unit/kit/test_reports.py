from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.unit.sources import ROOT

if TYPE_CHECKING:
    from pathlib import Path

# Those tests take five processes, one after the other, and each imports pytest.
pytestmark = pytest.mark.timeout(180)

CONFTEST = """
import threading
from tests.kit.reports import Reports

def pytest_configure(config):
    config.pluginmanager.register(Reports(grace_s=2))

def pytest_runtest_makereport(item, call):
    if item.name == "test_ends_just_in_time" and call.when == "call":
        threading.Event().wait(1.1)
"""

TESTS = """
import ctypes, os, signal, threading
import pytest

def lock_twice(library):
    mutex = ctypes.create_string_buffer(64)
    library.pthread_mutex_lock(mutex)
    library.pthread_mutex_lock(mutex)

def another_thread(begun):
    begun.set()
    lock_twice(ctypes.CDLL(None))

@pytest.mark.timeout(1)
def test_hangs():
    begun = threading.Event()
    threading.Thread(target=another_thread, args=[begun], daemon=True).start()
    begun.wait()
    lock_twice(ctypes.PyDLL(None))  # holds the interpreter lock, so that pytest-timeout cannot end it

def test_crashes():
    os.kill(os.getpid(), signal.SIGSEGV)

def test_exits():
    os._exit(3)

@pytest.mark.timeout(1)
def test_waits():
    threading.Event().wait()

@pytest.fixture
def ends_late():
    yield
    threading.Event().wait()

@pytest.mark.timeout(1)
def test_ends_just_in_time(ends_late):
    pass

@pytest.mark.parametrize("number", range(3))
def test_passes(number):
    pass
"""


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What pytest says of those tests."""
    home: Path = tmp_path_factory.mktemp("home")
    (home / "conftest.py").write_text(CONFTEST)
    (home / "test_them.py").write_text(TESTS)
    # The rest of the settings are pytest's own.
    (home / "pytest.ini").write_text("[pytest]\nmarkers =\n timeout\n")
    # Only the plugins that matter here: each of its processes imports them.
    plugins = ["-p", "xdist.plugin", "-p", "pytest_timeout", "-p", "no:cacheprovider"]
    command = [sys.executable, "-m", "pytest", *plugins, "-n", "1", "-v", str(home)]
    # It has no terminal, so that what its processes say comes in the order in which they say it.
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        check=False,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    return done.stdout


def test_a_test_that_hangs_in_compiled_code_is_ended_and_shown(output: str) -> None:
    assert "watchdog: test_them.py::test_hangs did not end 2 s after its limit of 1 s." in output
    frames = output.partition("watchdog: test_them.py::test_hangs")[2].partition("by SIGKILL")[0]
    assert frames.count("in lock_twice") == 2
    assert "in another_thread" in frames
    assert "in test_hangs" in frames


@pytest.mark.parametrize(
    ("test", "end"),
    [
        ("test_hangs", "killed with SIGKILL: by the watchdog"),
        ("test_crashes", "its interpreter crashed with SIGSEGV"),
        ("test_exits", "its process ended itself with exit code 3"),
    ],
)
def test_the_report_says_how_the_process_of_a_test_ended(output: str, test: str, end: str) -> None:
    _, _, report = output.partition(f"crashed while running 'test_them.py::{test}'\n")
    assert end in report.partition("\n")[0]


def test_the_others_go_on(output: str) -> None:
    assert "4 failed, 4 passed" in output
    assert "Failed: Timeout" in output


def test_time_that_is_over_while_pytest_works_counts_for_the_test(output: str) -> None:
    assert "INTERNALERROR" not in output
    assert "ERROR at teardown of test_ends_just_in_time" in output


def test_each_part_has_its_time(output: str) -> None:
    assert "time of each part" in output
    assert any(line.split()[:3] == ["test_them.py", "5", "tests"] for line in output.splitlines())
