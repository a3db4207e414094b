"""What every test gets: a runtime domain of its own, and a look around when it has ended."""

from __future__ import annotations

import gc
import multiprocessing.resource_tracker
import os
import secrets
import signal
import string
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from ipcbus.resolution.local.stale_cleanup import OTHERS_OFF
from tests.kit.leftovers import looking_around
from tests.kit.reports import Reports

if TYPE_CHECKING:
    from collections.abc import Iterator

LONG_TIMEOUT = 3600.0
"""Seconds; five times what the longest test takes on an idle machine, as a busy one has to get through too."""
CONFORMANCE_TIMEOUT = 180.0
"""Seconds for each test of `tests/conformance` in the modes that only `make stress` runs."""

# Speed is no property of a test here: machines that run several at once are slow in spurts.
settings.register_profile("ipcbus", deadline=None, print_blob=True)
settings.load_profile("ipcbus")


def pytest_configure(config: pytest.Config) -> None:
    """Starts multiprocessing's resource tracker, else it looks like a leak of its first user.

    And forgets the config file of whoever runs the tests: the tests are about the defaults, in child processes too. No
    context clears other domains away, in which another worker's test may be looking at what a dead process left.
    """
    os.environ.pop("IPCBUS_CONFIG", None)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # A shell starts what it runs in the background like that. Processes of tests would inherit it, and not end.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ[OTHERS_OFF] = "0"
    multiprocessing.resource_tracker.ensure_running()
    gc.disable()  # until everything is collected: a fifth of that time, for nothing to collect
    config.pluginmanager.register(Reports(), "ipcbus-reports")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Gives the long tests the time they need, unless they say themselves how much that is.

    Those of `tests/conformance` are long for their number only: each of them has a little more time than a short test.
    """
    for item in items:
        if item.get_closest_marker("long") and not item.get_closest_marker("timeout"):
            conformance = "conformance" in item.path.parts
            item.add_marker(pytest.mark.timeout(CONFORMANCE_TIMEOUT if conformance else LONG_TIMEOUT))


def pytest_collection_finish() -> None:
    """Keeps what was collected out of the collector's way: tests collect often, and children end with a collection."""
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.fixture
def domain() -> str:
    """A bus domain that no other test uses.

    Its length and letters let it appear literally in the names of shared memory objects: `ipcbus.<domain>.`
    """
    return "t" + "".join(secrets.choice(string.ascii_lowercase + string.digits) for _ in range(7))


@pytest.fixture(autouse=True)
def leaves_nothing(domain: str) -> Iterator[None]:
    """Fails a test that leaves shared memory, child processes or file descriptors behind."""
    yield from looking_around(domain)
