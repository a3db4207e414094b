"""Where the GMD areas of sources and receivers are, and how they are opened."""

from __future__ import annotations

import hashlib
import os
import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from ipcbus.gmd.acknowledgement_file import FileReceiverArea
from ipcbus.gmd.area_identity import AreaIdentity
from ipcbus.gmd.file_area import FileArea
from ipcbus.gmd.memory_area import MemoryArea
from ipcbus.gmd.receiver_area import MemoryReceiverArea
from ipcbus.storage.files import Disk

if TYPE_CHECKING:
    from ipcbus.config import ReceiverOptions, SourceOptions
    from ipcbus.gmd.receiver_area import ReceiverArea
    from ipcbus.gmd.sender_area import SenderArea

_LONGEST: Final = 200
"""Longest name of a directory in bytes; the system has a limit of 255."""


def directory_of(option: str) -> Path:
    """Returns the directory of GMD areas: that of option ipc_gmd_directory, or the user's."""
    if option:
        return Path(option).absolute()
    state = os.environ.get("XDG_STATE_HOME", "")
    return (Path(state) if state else Path.home() / ".local" / "state") / "ipcbus" / "gmd"


def escaped(name: str) -> str:
    """Returns the name of a directory for the name of a sender, a receiver or a topic.

    Other characters than letters, digits and `_.-~` become their bytes as %XX. A long name is cut, and ends in a hash
    of the whole.
    """
    found = quote(name, safe="")
    if found[:1] == ".":
        found = "%2E" + found[1:]
    if len(found) > _LONGEST:
        found = found[: _LONGEST - 33].rstrip("%") + "%" + hashlib.sha256(name.encode()).hexdigest()[:32]
    return found


def folder_of(directory: str, gmd_name: str, topic: str, role: str) -> Path:
    """Returns the directory of one area; `role` is `source` or `receiver`."""
    return directory_of(directory) / escaped(gmd_name) / escaped(topic) / role


def open_sender_area(domain: str, topic: str, options: SourceOptions) -> SenderArea:
    """Opens the GMD area of a source.

    Raises:
        ipcbus.GmdError: it cannot be opened: a live source has it, it is damaged, or the system refuses.
    """
    incarnation = secrets.randbits(64) | 1
    if options.ipc_gmd_type == "memory":
        return MemoryArea(options.gmd_name, topic, incarnation, options.gmd_max_size)
    given = {name: value for name, value in options.items() if value != options.rows[name].default}
    return FileArea.open(
        Disk(),
        folder_of(options.ipc_gmd_directory, options.gmd_name, topic, "source"),
        AreaIdentity(options.gmd_name, topic, domain, incarnation, given),
        durability=options.gmd_durability,
        max_size=options.gmd_max_size,
        fresh=options.gmd_fresh,
    )


def open_receiver_area(domain: str, topic: str, options: ReceiverOptions) -> ReceiverArea:
    """Opens the GMD area of a named receiver for one topic; raises errors as `open_sender_area`."""
    if options.ipc_gmd_type == "memory":
        return MemoryReceiverArea()
    return FileReceiverArea.open(
        Disk(),
        folder_of(options.ipc_gmd_directory, options.gmd_name, topic, "receiver"),
        AreaIdentity(options.gmd_name, topic, domain),
    )
