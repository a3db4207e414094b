"""Which topics the recorder of a log records, and how soon: a note beside the lock, for readers that wait for it."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

from ipcbus.archive import json_files
from ipcbus.errors import IpcBusError
from ipcbus.wildcard import compile_pattern

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from ipcbus.archive.archive import Archive

NAME: Final = "recording.json"
"""Name of the note in the stream's directory."""
_SIZE_MAX: Final = 1 << 20
_UNKNOWN_S: Final = 10.0
_FLUSH_MAX_S: Final = 60.0


def note(archive: Archive, stream: str, topics: Sequence[str], *, pattern: bool, flush_s: float) -> None:
    """Notes what is recorded from now on; the calling process holds the lock of the stream.

    Without the note readers wait a little longer, so an error is not raised.
    """
    found = {"topics": list(topics), "pattern": pattern, "flush_s": flush_s, "holder": archive.writing(stream)}
    with suppress(IpcBusError):
        archive.files.replace(_path(archive, stream), json_files.pack(found), sync=False)


def forget(archive: Archive, stream: str) -> None:
    """Removes the note, before the lock is released."""
    with suppress(IpcBusError):
        archive.files.remove(_path(archive, stream))


def delay_s(archive: Archive, stream: str, topic: str) -> float | None:
    """Returns how long after their arrival messages of a topic may be added to the log of a stream.

    Returns:
        The time in seconds; 10 where it is not known. None: no process writes the log, or the one that does records
        other topics.

    Raises:
        StorageError: the system refuses.
    """
    holder = archive.writing(stream)
    if holder is None:
        return None
    try:
        found = json_files.read(archive.files, _path(archive, stream), _SIZE_MAX, older=False)
        topics, flush_s = found["topics"], float(found["flush_s"])
        # Another process may write the log without a note, after one that was killed.
        if found["holder"] != holder or not isinstance(topics, list) or not 0 <= flush_s <= _FLUSH_MAX_S:
            return _UNKNOWN_S
        if found["pattern"] is True:
            is_recorded = any(compile_pattern(each).fullmatch(topic) is not None for each in topics)
        else:
            is_recorded = topic in topics
    except (IpcBusError, KeyError, TypeError, ValueError):
        return _UNKNOWN_S
    return flush_s if is_recorded else None


def _path(archive: Archive, stream: str) -> Path:
    return archive.path / stream / NAME
