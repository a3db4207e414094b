"""Commit, abort and the clearing up of what nobody will commit."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from typing import TYPE_CHECKING, Final, Protocol

from ipcbus.errors import SinkError, StorageError
from ipcbus.spark.identity import DOUBT
from ipcbus.spark.sink.outgoing_messages import OutgoingMessages, Stamp
from ipcbus.spark.sink.publish_ledger import LEDGER, PROGRESS, PublishLedger
from ipcbus.spark.sink.staged_rows import JOB_PREFIX, Staged, check, read, told_by

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from ipcbus.embedding import Files
    from ipcbus.spark.sink.publish_ledger import Decision, Progress

log = logging.getLogger("ipcbus")

LOCK: Final = "lock"

ORPHAN_S: Final = 7 * 86400
"""What was staged so long ago, and is part of no decision, was forgotten by a query or job that ended."""

_HALF: Final = (f".{LEDGER}.", f".{PROGRESS}")
_LOOK_S: Final = 0.02

SWEEP_EVERY: Final = 64
"""How many batches an application commits between two looks at the others."""


class Outlet(Protocol):
    """A source of the bus."""

    def send(self, data: bytes, *, headers: tuple[tuple[str, bytes], ...], flush: bool) -> None:
        """Sends a message; with `flush` it is published when this returns."""


class Bus(Protocol):
    """What a batch is published on."""

    def ready(self, topic: str) -> Outlet:
        """Returns the source of a topic, when its receivers are there."""


class Application:
    """What one application has staged and published."""

    def __init__(self, files: Files, staging: Path, name: str) -> None:
        """One that may have nothing yet.

        Args:
            files: where files are.
            staging: the staging directory.
            name: of the application.
        """
        self._files, self._staging, self.name = files, staging, name
        self.directory = staging / name
        self._ledger = PublishLedger(files, self.directory)

    def commit(
        self,
        query: str,
        batch: int,
        staged: Sequence[Staged],
        open_bus: Callable[[], AbstractContextManager[Bus]],
        *,
        patience_s: float = 0.0,
    ) -> None:
        """Publishes a batch, if it is not published already, and what an earlier commit has left undone before it.

        Args:
            query: id of the query of Spark; of a batch job outside of any nothing.
            batch: the micro-batch.
            staged: its files.
            open_bus: gives what to publish on; called only when there is something to publish.
            patience_s: so long it waits for another process that commits: of a query that was stopped it may be the
                last that it did.

        Raises:
            SinkError: another query has this name, or commits still; a file is on another host; receivers are missing.
            StorageError: the disk refuses, or has damaged something.
            ipcbus.IpcBusError: the bus refuses a message.
        """
        with self._locked(patience_s):
            last = self._ledger.load()
            if last is not None and last.query != query:
                raise SinkError(self._of_another(last, query))
            if last is not None and not last.done:
                for each in last.files:
                    check(self._files, self.directory, each)
                last = self._publish(last, open_bus)
            if staged and (last is None or batch > last.batch):
                ordered = sorted(staged, key=lambda each: each.partition)
                for each in ordered:
                    check(self._files, self.directory, each)
                last = self._publish(self._ledger.decide(query, batch, ordered), open_bus)
            elif staged:
                # Of a batch that Spark does again it has to be so; of another frame with the same name it is a loss.
                log.warning(
                    "sink ipcbus: %s: batch %d is published already (the last one is %d): %d rows that were staged for "
                    "it again are left out; a frame that was never written needs a txnAppId of its own",
                    self.directory,
                    batch,
                    last.batch if last is not None else batch,
                    sum(each.rows for each in staged),
                )
            if last is not None:
                self._clear(last)
        if self.name.startswith(JOB_PREFIX):
            self._vanish()

    def abort(self, staged: Sequence[Staged]) -> None:
        """Removes files that no commit has decided to publish.

        Raises:
            StorageError: the disk refuses, or has damaged the ledger.
        """
        lock = self._files.lock(self.directory / LOCK) if self._files.names(self.directory) else None
        if lock is None:
            return  # nothing is there, or a commit is at work, and what it leaves is cleared up by a later one
        try:
            last = self._ledger.load()
            decided = {each.name for each in last.files} if last is not None else set()
            for each in staged:
                if each.name not in decided:
                    self._files.remove(self.directory / each.name)
        finally:
            lock.release()
        if self.name.startswith(JOB_PREFIX):
            self._vanish()

    @contextlib.contextmanager
    def _locked(self, patience_s: float) -> Iterator[None]:
        self._files.make_dir(self.directory)
        path = self.directory / LOCK
        deadline = time.monotonic() + patience_s
        while (lock := self._files.lock(path)) is None and time.monotonic() < deadline:
            threading.Event().wait(_LOOK_S)  # the system tells nobody when a lock is free
        if lock is None:
            raise SinkError(
                f"sink ipcbus: {self.directory} is in use by {self._files.holder(path) or 'another process'}: two "
                "queries write with this txnAppId at once; give each its own"
            )
        try:
            yield
        finally:
            lock.release()

    def _of_another(self, last: Decision, query: str) -> str:
        return (
            f"sink ipcbus: {self.directory} is of query {last.query or '(a batch job)'}, which has come to batch "
            f"{last.batch}, and not of {query or '(a batch job)'}: batches count anew with a new checkpoint, so that "
            "what is published already cannot be told; set another txnAppId"
        )

    # ------------------------------------------------------------------ publishing

    def _publish(self, decision: Decision, open_bus: Callable[[], AbstractContextManager[Bus]]) -> Decision:
        with self._ledger.progress(decision) as progress, open_bus() as bus:
            first = 0
            for staged in decision.files:
                if first + staged.rows > progress.sure:
                    self._publish_file(decision, first, staged, progress, bus)
                first += staged.rows
        return self._ledger.finish(decision)

    def _publish_file(self, decision: Decision, first: int, staged: Staged, progress: Progress, bus: Bus) -> None:
        messages = OutgoingMessages(Stamp(self.name, decision.batch, staged.partition))
        number = first
        for content in read(self._files, self.directory, staged):
            for message in messages.of(content):
                if number >= progress.sure:
                    headers = message.headers
                    if number < progress.possible:
                        headers = (*headers, DOUBT)
                    source = bus.ready(message.topic)
                    progress.begin(number)
                    source.send(message.value, headers=headers, flush=True)
                number += 1
        if number - first != staged.rows:
            raise StorageError(f"{self.directory / staged.name}: {number - first} rows, not the {staged.rows} staged")

    # ------------------------------------------------------------------ clearing up

    def _clear(self, last: Decision) -> None:
        """Removes what belongs to batches that are published, and what a killed process has left half replaced."""
        for name in self._files.names(self.directory):
            if _batch_of(name, last.batch + 1) <= last.batch or name.startswith(_HALF):
                self._files.remove(self.directory / name)

    def _vanish(self) -> None:
        """Removes all of a job that nobody will go on with."""
        for name in self._files.names(self.directory):
            self._files.remove(self.directory / name)
        with contextlib.suppress(OSError):  # somebody has put something else there
            self.directory.rmdir()

    def sweep(self, now_s: float) -> int:
        """Removes what was staged long ago and is part of no decision; of a job also what is.

        Returns:
            How many files were removed.
        """
        old = [name for name in self._files.names(self.directory) if _time_of(name, now_s) < now_s - ORPHAN_S]
        lock = self._files.lock(self.directory / LOCK) if old else None
        if lock is None:
            return 0
        try:
            if self.name.startswith(JOB_PREFIX):
                self._vanish()
                return len(old)
            last = self._ledger.load()
            orphans = set(old) - {each.name for each in last.files} if last is not None else set(old)
            for name in orphans:
                self._files.remove(self.directory / name)
            return len(orphans)
        finally:
            lock.release()


def sweep(files: Files, staging: Path, now_s: float) -> int:
    """Removes orphans of all applications of a staging directory, however damaged one of them is.

    Returns:
        How many files were removed.
    """
    removed = 0
    for name in files.names(staging):
        try:
            removed += Application(files, staging, name).sweep(now_s)
        except StorageError as error:
            log.warning("sink ipcbus: orphans of %s stay: %s", staging / name, error)
    return removed


def _batch_of(name: str, otherwise: int) -> int:
    """Returns the batch that a file belongs to."""
    if name.startswith(PROGRESS) and name.removeprefix(PROGRESS).isdecimal():
        return int(name.removeprefix(PROGRESS))
    try:
        return told_by(name).batch
    except ValueError:
        return otherwise


def _time_of(name: str, otherwise: float) -> float:
    try:
        return told_by(name).time_s
    except ValueError:
        return otherwise
