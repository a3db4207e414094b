"""The directories of GMD areas: `directory/<gmd_name>/<topic>/source` and `.../receiver`."""

from __future__ import annotations

import hashlib
import re
import urllib.parse
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ipcbus.storage.files import Files

SOURCE: Final = "source"
RECEIVER: Final = "receiver"
_NAME_MAX: Final = 200  # Linux refuses a name of more than 255 bytes
_PLAIN: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*")


def default_directory(environment: Mapping[str, str], home: Path) -> Path:
    """Returns the directory of areas unless an option names another one: the state directory of the user.

    Args:
        environment: the variables; an absolute XDG_STATE_HOME counts.
        home: the home directory of the user.
    """
    state = environment.get("XDG_STATE_HOME", "")
    return (Path(state) if state.startswith("/") else home / ".local" / "state") / "ipcbus" / "gmd"


def area_folder(directory: Path, name: str, topic: str, role: str) -> Path:
    """Returns the directory of an area.

    Args:
        directory: that of all areas.
        name: the `gmd_name`.
        topic: the topic.
        role: SOURCE or RECEIVER.
    """
    return directory / escaped(name) / escaped(topic) / role


def area_folders(files: Files, directory: Path) -> Iterator[Path]:
    """Yields the directories of all areas, in order."""
    for name in files.names(directory):
        for topic in files.names(directory / name):
            there = files.names(directory / name / topic)
            for role in (SOURCE, RECEIVER):
                if role in there:
                    yield directory / name / topic / role


def escaped(name: str) -> str:
    """Returns a name as the name of a directory; no two names give the same result.

    Letters, digits, `_`, `-` and `.` stay, but for a `.` at the begin; other bytes become `%XX`. A longer result than
    200 characters is cut, and a checksum of the whole name follows; the file `area` has the whole name.
    """
    if _PLAIN.fullmatch(name):
        text = name
    else:
        text = urllib.parse.quote(name, safe="").replace("~", "%7E")
        text = "%2E" + text[1:] if text.startswith(".") else text or "%"
    if len(text) <= _NAME_MAX:
        return text
    return text[: _NAME_MAX - 41].rstrip("%") + "~" + hashlib.sha256(name.encode()).hexdigest()[:40]
