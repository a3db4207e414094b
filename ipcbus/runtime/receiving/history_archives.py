"""Opens the archives of option history_archive; what reads them stands above this floor, and is loaded when needed."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from ipcbus.errors import ConfigError

if TYPE_CHECKING:
    from ipcbus.recovery.older_messages import History

_READER = "ipcbus.archive.recorded_history"


def open_history(path: str) -> History | None:
    """Returns the archive in a directory as a history of receivers; None for an empty path.

    Raises:
        ArchiveMissing, ArchiveDamaged, StorageError: the directory has no archive that can be read; the text has the
            cure.
        ConfigError: the path has a zero byte.
    """
    if not path:
        return None
    if "\0" in path:
        raise ConfigError(f"option history_archive = {path!r} has a zero byte; give the path of a directory")
    reader = importlib.import_module(_READER)
    history: History = reader.RecordedHistory(path)
    return history
