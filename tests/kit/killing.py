"""Processes that kill themselves at a certain step of their work with files: before, in the middle of, or after it."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

from ipcbus.gmd import acknowledgement_file
from ipcbus.runtime import gmd_areas
from ipcbus.runtime.receiving import gmd_reception
from ipcbus.runtime.receiving.ack_sender import AckSender
from ipcbus.runtime.receiving.gmd_receptions import GmdReceptions
from ipcbus.storage.files import Disk, DiskFile
from ipcbus.wire import gmd_messages

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from typing_extensions import Buffer

    from ipcbus.gmd.acknowledged_floor import AcknowledgedFloor
    from ipcbus.transport.receiving_session import ReceivingSession
    from ipcbus.transport.ring.response_frames import ResponseWriter


class Steps:
    """Counts the steps of a process, which ends at one of them."""

    def __init__(self, kill_at: int, note: Callable[[int, str], object]) -> None:
        """Counts from 1.

        Args:
            kill_at: number of the step at which the process is killed; 0: at none.
            note: notes number and name of each step for the parent, before the kill.
        """
        self._kill_at, self._note, self._taken = kill_at, note, 0

    def take(self, name: str) -> None:
        """Takes a step."""
        self._taken += 1
        self._note(self._taken, name)
        if self._taken == self._kill_at:
            os.kill(os.getpid(), signal.SIGKILL)


class KillingFile(DiskFile):
    """A file of a `KillingDisk`."""

    disk: KillingDisk

    @property
    def descriptor(self) -> int:
        """Compiled code calls `write_at`."""
        return -1

    def write_at(self, offset: int, data: Buffer) -> None:
        self.disk.step("write", self.path)
        view = memoryview(data).cast("B")
        super().write_at(offset, view[: len(view) // 2])
        self.disk.step("half written", self.path)
        super().write_at(offset, view)
        self.disk.step("written", self.path)

    def append(self, *pieces: Buffer) -> int:
        self.disk.step("append", self.path)
        return super().append(*pieces)

    def allocate(self, offset: int, length: int) -> None:
        self.disk.step("allocate", self.path)
        super().allocate(offset, length)

    def truncate(self, size: int) -> None:
        self.disk.step("truncate", self.path)
        super().truncate(size)
        self.disk.step("truncated", self.path)

    def sync(self) -> None:
        self.disk.step("sync", self.path)  # it does not wait for the disk: a kill takes nothing of what was not synced


class KillingDisk(Disk):
    """Files whose process is killed before, in the middle of, or after each call that changes something."""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps

    def step(self, what: str, path: Path) -> None:
        """Takes a step with a file; a temporary file has the name of the file that it becomes."""
        self._steps.take(f"{what} {path.name.rpartition('.')[0] if path.name.startswith('.') else path.name}")

    def open(self, path: Path, *, write: bool = False, create: bool = False, exclusive: bool = False) -> KillingFile:
        self.step("open", path)
        file = super().open(path, write=write, create=create, exclusive=exclusive)
        file.__class__ = KillingFile
        assert isinstance(file, KillingFile)
        file.disk = self
        return file

    def rename(self, old: Path, new: Path) -> None:
        self.step("rename", old)
        super().rename(old, new)
        self.step("renamed", old)

    def remove(self, path: Path) -> None:
        self.step("remove", path)
        super().remove(path)
        self.step("removed", path)

    def make_dir(self, path: Path) -> None:
        super().make_dir(path)
        self.step("made", path)

    def sync_dir(self, path: Path) -> None:
        self._steps.take("sync directory")


def in_receivers(steps: Steps) -> None:
    """Has named receivers that this process makes from now on take steps; their areas are soon written new."""

    def send(self: GmdReceptions, session: ReceivingSession, message: bytes) -> bool:
        is_ack = isinstance(gmd_messages.decode(message), gmd_messages.Ack)
        if is_ack:
            steps.take("acknowledge")
        done = sent(self, session, message)
        if is_ack:
            steps.take("acknowledged")
        return done

    sent = GmdReceptions.send
    GmdReceptions.send = send  # type: ignore[method-assign]
    gmd_reception.AckSender = UnusedAckSender  # type: ignore[attr-defined, misc]
    gmd_areas.Disk = lambda: KillingDisk(steps)  # type: ignore[attr-defined, assignment]
    acknowledgement_file._GROWTH_MIN = 0  # type: ignore[misc]


class UnusedAckSender(AckSender):
    """Leaves all acknowledgements to code that is not compiled."""

    def use(self, floor: AcknowledgedFloor | None, incarnation: int, writer: ResponseWriter | None) -> None:
        """Takes nothing."""
