"""The ledger of an application: what it has decided to publish, and how much of it is published.

`ledger` is one checksummed record of JSON, replaced as a whole: the last batch that was decided, whether all of it is
published, and if not, its staged files. From the moment the ledger names them, the batch consists of these files: a
replay publishes them, whatever it has staged again.

`progress.<batch>` is two numbers of 8 bytes, little-endian, written before each message: how many messages are
published, and how many may be. A killed process leaves them as they were. They are not synced: after a power loss the
rings and their receivers no longer exist either, and all messages of the batch may be duplicates.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import logging
import struct
from typing import TYPE_CHECKING, Any, Final

from ipcbus.embedding import FileMissing, frame, scan
from ipcbus.errors import StorageError
from ipcbus.spark.sink.staged_rows import Staged, parse_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from ipcbus.embedding import File, Files

log = logging.getLogger("ipcbus")

LEDGER: Final = "ledger"
PROGRESS: Final = "progress."

_VERSION: Final = 1
_COUNTS: Final = struct.Struct("<QQ")
_BYTES_MAX: Final = 1 << 28


@dataclasses.dataclass(frozen=True, slots=True)
class Decision:
    """A batch that is published, or will be.

    Attributes:
        query: id of the query of Spark that writes; empty for a batch job outside a query.
        batch: the micro-batch.
        done: whether all of it is published.
        boot: `Files.boot_id` at the start of its progress, in hex.
        files: its files in the order of publishing; empty when it is done.
    """

    query: str
    batch: int
    done: bool
    boot: str
    files: tuple[Staged, ...]

    @property
    def rows(self) -> int:
        """Number of messages in the batch."""
        return sum(file.rows for file in self.files)

    def to_json(self) -> bytes:
        """Returns the record of the ledger."""
        return json.dumps({"v": _VERSION, **dataclasses.asdict(self)}).encode()

    @classmethod
    def from_json(cls, text: bytes) -> Decision:
        """Returns the decision in what `to_json` wrote.

        Raises:
            ValueError: `to_json` did not write this.
        """
        found = json.loads(text)
        if not isinstance(found, dict) or found.get("v") != _VERSION:
            raise ValueError(f"it is not of version {_VERSION}")
        types = {"query": str, "batch": int, "done": bool, "boot": str, "files": list}
        values: dict[str, Any] = {name: found.get(name) for name in types}
        if not all(isinstance(values[name], kind) for name, kind in types.items()) or not _is_count(values["batch"]):
            raise ValueError("it is not a decision")
        return cls(**{**values, "files": tuple(_staged(file) for file in values["files"])})


def _staged(found: Any) -> Staged:  # noqa: ANN401 - whatever JSON holds
    names = [field.name for field in dataclasses.fields(Staged)]
    if not isinstance(found, dict) or sorted(found) != sorted(names) or not isinstance(found["name"], str):
        raise ValueError("it names something that is not a staged file")
    if not all(_is_count(found[name]) for name in names if name != "name"):
        raise ValueError("it has impossible sizes")
    parse_name(found["name"])  # a plain name, so that no path leads out of the directory
    return Staged(**found)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 63


class Progress:
    """How much of a batch is published."""

    def __init__(self, file: File, published: int, started: int) -> None:
        """Continues from the present counts.

        Args:
            file: the file of the counts.
            published: messages that are published.
            started: messages that may be published; those from `published` on are in doubt.
        """
        self._file = file
        self.published, self.started = published, started

    def begin(self, number: int) -> None:
        """Notes that message `number`, from 0, is about to be sent, and that all before it are published."""
        self._file.write_at(0, _COUNTS.pack(number, max(number + 1, self.started)))


class PublishLedger:
    """The ledger of one application; the caller holds its lock."""

    def __init__(self, files: Files, directory: Path) -> None:
        """Takes an existing directory."""
        self._files, self._directory = files, directory
        self._path = directory / LEDGER

    def load(self) -> Decision | None:
        """Returns the last decision; None before the first.

        Raises:
            StorageError: the ledger is damaged.
        """
        try:
            with contextlib.closing(self._files.open(self._path)) as file:
                found = scan(file.read_at(0, _BYTES_MAX))
        except FileMissing:
            return None
        try:
            if found.damage is not None or len(found.records) != 1:
                raise ValueError(found.damage or f"{len(found.records)} records instead of one")
            return Decision.from_json(found.records[0][1])
        except (ValueError, RecursionError) as error:
            raise StorageError(
                f"{self._path}: {error}: the disk has damaged the ledger, so what is published is unknown; check what "
                "the receivers have, and start again with another txnAppId"
            ) from error

    def decide(self, query: str, batch: int, staged: Sequence[Staged]) -> Decision:
        """Decides that the batch consists of these files, and notes it."""
        decision = Decision(query, batch, False, self._files.boot_id().hex(), tuple(staged))
        self._write_progress(decision, 0)
        self._files.sync_dir(self._directory)  # the names of the files, before the ledger that names them
        self._write(decision)
        return decision

    def finish(self, decision: Decision) -> Decision:
        """Notes that all of the batch is published."""
        done = dataclasses.replace(decision, done=True, files=())
        self._write(done)
        self._files.remove(self._progress_path(decision))
        return done

    @contextlib.contextmanager
    def progress(self, decision: Decision) -> Iterator[Progress]:
        """Yields the progress of a decided batch; all of the batch is in doubt where the progress is unknown."""
        boot = self._files.boot_id().hex()
        counts = self._read_progress(decision) if decision.boot == boot else None
        if counts is None:
            log.warning(
                "sink ipcbus: %s: how far batch %d was published is not known (power loss?): all of its %d messages "
                "are sent, marked as possible duplicates",
                self._directory,
                decision.batch,
                decision.rows,
            )
            counts = (0, decision.rows)
            self._write_progress(decision, decision.rows)
            self._write(dataclasses.replace(decision, boot=boot))
        with contextlib.closing(self._files.open(self._progress_path(decision), write=True)) as file:
            yield Progress(file, *counts)

    def _write(self, decision: Decision) -> None:
        self._files.replace(self._path, frame(decision.to_json()))

    def _progress_path(self, decision: Decision) -> Path:
        return self._directory / f"{PROGRESS}{decision.batch}"

    def _write_progress(self, decision: Decision, started: int) -> None:
        self._files.replace(self._progress_path(decision), _COUNTS.pack(0, started), sync=False)

    def _read_progress(self, decision: Decision) -> tuple[int, int] | None:
        try:
            with contextlib.closing(self._files.open(self._progress_path(decision))) as file:
                data = file.read_at(0, _COUNTS.size + 1)
        except FileMissing:
            return None
        if len(data) != _COUNTS.size:
            return None
        published, started = _COUNTS.unpack(data)
        return (published, started) if published <= started <= decision.rows else None
