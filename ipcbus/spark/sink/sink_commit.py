"""Commit, abort, and the removal of files that no process will commit."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from typing import TYPE_CHECKING, Final, Protocol

from ipcbus.errors import SinkError, StorageError
from ipcbus.spark.identity import POSSIBLE_DUPLICATE_HEADER
from ipcbus.spark.sink.outgoing_messages import OutgoingMessages, Stamp
from ipcbus.spark.sink.publish_ledger import LEDGER, PROGRESS, PublishLedger
from ipcbus.spark.sink.staged_rows import JOB_PREFIX, Staged, check, parse_name, read

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from ipcbus.embedding import Files
    from ipcbus.spark.sink.publish_ledger import Decision, Progress

log = logging.getLogger("ipcbus")

LOCK: Final = "lock"

ORPHAN_AGE_S: Final = 7 * 86400
"""Age in s from which a staged file outside any decision counts as left over by a query or job that ended."""

_TEMPORARY: Final = (f".{LEDGER}.", f".{PROGRESS}")
_LOCK_POLL_S: Final = 0.02

SWEEP_EVERY: Final = 64
"""An application removes the orphans of all applications once in this many batches."""


class MessageSource(Protocol):
    """A source of the bus."""

    def send(self, data: bytes, *, headers: tuple[tuple[str, bytes], ...], flush: bool) -> None:
        """Sends a message; with `flush` it is published when the call returns."""


class Bus(Protocol):
    """The bus on which a batch is published."""

    def ready(self, topic: str) -> MessageSource:
        """Returns the source of a topic, when its receivers have joined."""


class Application:
    """The staged and published batches of one application."""

    def __init__(self, files: Files, staging: Path, name: str) -> None:
        """Opens an application, which may be new.

        Args:
            files: the storage.
            staging: the staging directory.
            name: name of the application.
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
        lock_timeout_s: float = 0.0,
    ) -> None:
        """Publishes a batch, unless it is published already; first publishes what an earlier commit left unfinished.

        Args:
            query: id of the query of Spark; empty for a batch job outside a query.
            batch: the micro-batch.
            staged: its files.
            open_bus: opens the bus; called only when there is something to publish.
            lock_timeout_s: how long to wait for another process that commits; it may be the last commit of a query that
                was stopped.

        Raises:
            SinkError: another query uses this name, or still commits; a file is on another host; receivers are missing.
            StorageError: the disk refuses, or has damaged a file.
            ipcbus.IpcBusError: the bus refuses a message.
        """
        with self._locked(lock_timeout_s):
            last = self._ledger.load()
            if last is not None and last.query != query:
                raise SinkError(self._wrong_query(last, query))
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
                # This is right for a batch that Spark repeats; for another frame under the same name it is a loss.
                log.warning(
                    "sink ipcbus: %s: batch %d is published already (the last one is %d): %d rows that were staged "
                    "again for it are left out; a frame that was never written needs its own txnAppId",
                    self.directory,
                    batch,
                    last.batch if last is not None else batch,
                    sum(each.rows for each in staged),
                )
            if last is not None:
                self._clear(last)
        if self.name.startswith(JOB_PREFIX):
            self._remove_all()

    def abort(self, staged: Sequence[Staged]) -> None:
        """Removes files that no commit has decided to publish.

        Raises:
            StorageError: the disk refuses, or has damaged the ledger.
        """
        lock = self._files.lock(self.directory / LOCK) if self._files.names(self.directory) else None
        if lock is None:
            return  # nothing is staged, or a commit runs; a later commit removes what it leaves
        try:
            last = self._ledger.load()
            decided = {each.name for each in last.files} if last is not None else set()
            for each in staged:
                if each.name not in decided:
                    self._files.remove(self.directory / each.name)
        finally:
            lock.release()
        if self.name.startswith(JOB_PREFIX):
            self._remove_all()

    @contextlib.contextmanager
    def _locked(self, lock_timeout_s: float) -> Iterator[None]:
        self._files.make_dir(self.directory)
        path = self.directory / LOCK
        deadline = time.monotonic() + lock_timeout_s
        while (lock := self._files.lock(path)) is None and time.monotonic() < deadline:
            threading.Event().wait(_LOCK_POLL_S)  # the system does not signal a released lock
        if lock is None:
            raise SinkError(
                f"sink ipcbus: {self.directory} is in use by {self._files.holder(path) or 'another process'}: two "
                "queries write with this txnAppId at once; give each its own"
            )
        try:
            yield
        finally:
            lock.release()

    def _wrong_query(self, last: Decision, query: str) -> str:
        return (
            f"sink ipcbus: {self.directory} belongs to query {last.query or '(a batch job)'}, which has reached batch "
            f"{last.batch}, not to {query or '(a batch job)'}: a new checkpoint counts batches from 0, so the sink "
            "cannot know what is published already; set another txnAppId"
        )

    # ------------------------------------------------------------------ publishing

    def _publish(self, decision: Decision, open_bus: Callable[[], AbstractContextManager[Bus]]) -> Decision:
        with self._ledger.progress(decision) as progress, open_bus() as bus:
            first = 0
            for staged in decision.files:
                if first + staged.rows > progress.published:
                    self._publish_file(decision, first, staged, progress, bus)
                first += staged.rows
        return self._ledger.finish(decision)

    def _publish_file(self, decision: Decision, first: int, staged: Staged, progress: Progress, bus: Bus) -> None:
        messages = OutgoingMessages(Stamp(self.name, decision.batch, staged.partition))
        number = first
        for content in read(self._files, self.directory, staged):
            for message in messages.of(content):
                if number >= progress.published:
                    headers = message.headers
                    if number < progress.started:
                        headers = (*headers, POSSIBLE_DUPLICATE_HEADER)
                    source = bus.ready(message.topic)
                    progress.begin(number)
                    source.send(message.value, headers=headers, flush=True)
                number += 1
        if number - first != staged.rows:
            raise StorageError(
                f"{self.directory / staged.name} has {number - first} rows, but "
                f"{staged.rows} were staged: the file is damaged; restore it, or use another txnAppId"
            )

    # ------------------------------------------------------------------ clearing up

    def _clear(self, last: Decision) -> None:
        """Removes files of published batches, and temporary files of a killed process."""
        for name in self._files.names(self.directory):
            if _batch_of(name, last.batch + 1) <= last.batch or name.startswith(_TEMPORARY):
                self._files.remove(self.directory / name)

    def _remove_all(self) -> None:
        """Removes all files of a job that no process will continue."""
        for name in self._files.names(self.directory):
            self._files.remove(self.directory / name)
        with contextlib.suppress(OSError):  # the directory has other files
            self.directory.rmdir()

    def sweep(self, now_s: float) -> int:
        """Removes old staged files outside any decision; for a job also those of a decision.

        Returns:
            How many files were removed.
        """
        old = [name for name in self._files.names(self.directory) if _time_of(name, now_s) < now_s - ORPHAN_AGE_S]
        lock = self._files.lock(self.directory / LOCK) if old else None
        if lock is None:
            return 0
        try:
            if self.name.startswith(JOB_PREFIX):
                self._remove_all()
                return len(old)
            last = self._ledger.load()
            orphans = set(old) - {each.name for each in last.files} if last is not None else set(old)
            for name in orphans:
                self._files.remove(self.directory / name)
            return len(orphans)
        finally:
            lock.release()


def sweep(files: Files, staging: Path, now_s: float) -> int:
    """Removes orphans of all applications of a staging directory; damage in one of them does not stop it.

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
        return parse_name(name).batch
    except ValueError:
        return otherwise


def _time_of(name: str, otherwise: float) -> float:
    try:
        return parse_name(name).time_s
    except ValueError:
        return otherwise
