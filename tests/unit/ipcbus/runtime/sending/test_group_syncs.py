"""The syncs of durability `group`: a thread makes them, unless the application waits for its messages."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from ipcbus.delivery.received_message import Origin
from ipcbus.errors import GmdError
from ipcbus.gmd.gmd_settings import SenderSettings
from ipcbus.runtime.sending import guaranteed_source
from ipcbus.runtime.sending.guaranteed_source import GuaranteedSource
from tests.kit.bus import GIVE_UP_S
from tests.kit.gmd_areas import disk, opened, save
from tests.kit.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ipcbus.gmd.file_area import FileArea
    from tests.kit.disks import FaultyDisk


class Grouped:
    """A guaranteed source in durability `group`."""

    def __init__(self) -> None:
        self.files: FaultyDisk = disk()
        self.area: FileArea = opened(self.files, durability="group")
        self.syncs, self.fails = 0, False
        origin = Origin("t", "LBT-IPC:1:1")
        self.source = GuaranteedSource(self.area, 1, SenderSettings(), origin, lambda: None, opening=1)
        self._sync = self.area.sync
        self.area.sync = self._counted  # type: ignore[method-assign]
        self.source.start_syncing()

    def _counted(self) -> None:
        self.syncs += 1
        if self.fails:
            raise GmdError("a file cannot be opened at the moment")
        self._sync()

    def send(self, number: int) -> None:
        """Does what a send does with the area."""
        save(self.area, number)
        if not self.source.watches:
            self.source._after_send()


@pytest.fixture
def delay(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    return lambda delay_s: monkeypatch.setattr(guaranteed_source, "_SYNC_DELAY_S", delay_s)


@pytest.fixture
def grouped(delay: Callable[[float], None]) -> Iterator[Grouped]:
    delay(0)
    found = Grouped()
    yield found
    found.source.close()


def test_a_thread_syncs_what_nobody_waits_for(grouped: Grouped) -> None:
    for number in range(1, 20):
        grouped.send(number)
        if number % 3 == 0:
            until(lambda number=number: grouped.area.durable_number == number, "a sync")  # type: ignore[misc]


def test_a_group_that_is_waited_for_is_synced_once(grouped: Grouped, delay: Callable[[float], None]) -> None:
    delay(1e6)
    for number in range(1, 11):
        grouped.send(number)
    assert grouped.source.wait_durable(10, None)
    assert (grouped.area.durable_number, grouped.syncs) == (10, 1)


def test_the_thread_goes_on_after_an_error_that_passes(grouped: Grouped) -> None:
    grouped.fails = True
    grouped.send(1)
    until(lambda: grouped.syncs and not grouped.source.watches, "a sync that fails")
    grouped.fails = False
    grouped.send(2)
    until(lambda: grouped.area.durable_number == 2, "a sync")


def test_the_delay_ends_when_the_source_closes(delay: Callable[[float], None]) -> None:
    delay(1e6)
    grouped = Grouped()
    thread = next(each for each in threading.enumerate() if each.name == "ipcbus gmd t")
    grouped.send(1)
    grouped.source.close()
    thread.join(GIVE_UP_S)
    assert not thread.is_alive()
