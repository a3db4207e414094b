"""What an application has decided to publish, and how far it has come.

`ledger` is one checksummed record of JSON, replaced at once: the last batch that was decided, whether it is published
whole, and else which staged files it consists of. From the moment it names them, these files are what the batch is: a
replay goes on with them, whatever it has staged anew.

`progress.<batch>` is two numbers of 8 bytes, little-endian, written before each message: how many are published for
sure, and how many may be. A process that is killed leaves them as they were. They are not synced: after a power loss
the rings and their receivers are gone too, and all messages of the batch are in doubt.
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
from ipcbus.spark.sink.staged_rows import Staged, told_by

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
        query: id of the query of Spark that writes; of a batch job outside of any nothing.
        batch: the micro-batch.
        done: whether it is published whole.
        boot: `Files.boot_id` of when its progress was begun, in hex.
        files: what it consists of, in the order of publishing; none when it is done.
    """

    query: str
    batch: int
    done: bool
    boot: str
    files: tuple[Staged, ...]

    @property
    def rows(self) -> int:
        """How many messages it is."""
        return sum(file.rows for file in self.files)

    def to_json(self) -> bytes:
        """As it stands in the ledger."""
        return json.dumps({"v": _VERSION, **dataclasses.asdict(self)}).encode()

    @classmethod
    def from_json(cls, text: bytes) -> Decision:
        """Reads what `to_json` made.

        Raises:
            ValueError: it is something else.
        """
        found = json.loads(text)
        if not isinstance(found, dict) or found.get("v") != _VERSION:
            raise ValueError(f"it is not of version {_VERSION}")
        types = {"query": str, "batch": int, "done": bool, "boot": str, "files": list}
        values: dict[str, Any] = {name: found.get(name) for name in types}
        if not all(isinstance(values[name], kind) for name, kind in types.items()) or not _is_count(values["batch"]):
            raise ValueError("it is no decision")
        return cls(**{**values, "files": tuple(_staged(file) for file in values["files"])})


def _staged(found: Any) -> Staged:  # noqa: ANN401 - whatever JSON holds
    names = [field.name for field in dataclasses.fields(Staged)]
    if not isinstance(found, dict) or sorted(found) != sorted(names) or not isinstance(found["name"], str):
        raise ValueError("it names something that is no staged file")
    if not all(_is_count(found[name]) for name in names if name != "name"):
        raise ValueError("it tells of impossible sizes")
    told_by(found["name"])  # a plain name: no path leads out of the directory
    return Staged(**found)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 63


class Progress:
    """How far a batch is published."""

    def __init__(self, file: File, sure: int, possible: int) -> None:
        """Goes on where it stands.

        Args:
            file: where it is kept.
            sure: messages that are published.
            possible: messages that may be; those from `sure` on are in doubt.
        """
        self._file = file
        self.sure, self.possible = sure, possible

    def begin(self, number: int) -> None:
        """Message `number`, from 0, is about to be sent, and all before it are published."""
        self._file.write_at(0, _COUNTS.pack(number, max(number + 1, self.possible)))


class PublishLedger:
    """The ledger of one application; its lock is held while it is used."""

    def __init__(self, files: Files, directory: Path) -> None:
        """In a directory that exists."""
        self._files, self._directory = files, directory
        self._path = directory / LEDGER

    def load(self) -> Decision | None:
        """Returns the last decision; None before the first.

        Raises:
            StorageError: the ledger is damaged.
        """
        try:
            file = self._files.open(self._path)
        except FileMissing:
            return None
        try:
            found = scan(file.read_at(0, _BYTES_MAX))
        finally:
            file.close()
        try:
            if found.damage is not None or len(found.records) != 1:
                raise ValueError(found.damage or f"{len(found.records)} records instead of one")
            return Decision.from_json(found.records[0][1])
        except (ValueError, RecursionError) as error:
            raise StorageError(
                f"{self._path}: {error}: the disk has damaged the ledger, and what is published cannot be told; look "
                "what the receivers have, and begin anew with another txnAppId"
            ) from error

    def decide(self, query: str, batch: int, staged: Sequence[Staged]) -> Decision:
        """From now on the batch consists of these files."""
        decision = Decision(query, batch, False, self._files.boot_id().hex(), tuple(staged))
        self._write_progress(decision, 0)
        self._files.sync_dir(self._directory)  # the names of the files, before the ledger that names them
        self._write(decision)
        return decision

    def finish(self, decision: Decision) -> Decision:
        """Returns the batch is published whole."""
        done = dataclasses.replace(decision, done=True, files=())
        self._write(done)
        self._files.remove(self._progress_path(decision))
        return done

    @contextlib.contextmanager
    def progress(self, decision: Decision) -> Iterator[Progress]:
        """How far a decided batch has come; in doubt altogether where that cannot be told."""
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
        file = self._files.open(self._progress_path(decision), write=True)
        try:
            yield Progress(file, *counts)
        finally:
            file.close()

    def _write(self, decision: Decision) -> None:
        self._files.replace(self._path, frame(decision.to_json()))

    def _progress_path(self, decision: Decision) -> Path:
        return self._directory / f"{PROGRESS}{decision.batch}"

    def _write_progress(self, decision: Decision, possible: int) -> None:
        self._files.replace(self._progress_path(decision), _COUNTS.pack(0, possible), sync=False)

    def _read_progress(self, decision: Decision) -> tuple[int, int] | None:
        try:
            file = self._files.open(self._progress_path(decision))
        except FileMissing:
            return None
        try:
            data = file.read_at(0, _COUNTS.size + 1)
        finally:
            file.close()
        if len(data) != _COUNTS.size:
            return None
        sure, possible = _COUNTS.unpack(data)
        return (sure, possible) if sure <= possible <= decision.rows else None
