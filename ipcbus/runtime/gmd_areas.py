"""Where the GMD areas of sources and receivers are, and how they are opened."""

from __future__ import annotations

import os
import secrets
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ipcbus.errors import GmdAreaLocked
from ipcbus.gmd import area_yielding
from ipcbus.gmd.acknowledgement_file import FileReceiverArea
from ipcbus.gmd.area_folders import RECEIVER, SOURCE, area_folder, default_directory
from ipcbus.gmd.area_identity import AreaIdentity
from ipcbus.gmd.file_area import FileArea
from ipcbus.gmd.memory_area import MemoryArea
from ipcbus.gmd.receiver_area import MemoryReceiverArea
from ipcbus.storage.files import Disk

if TYPE_CHECKING:
    from collections.abc import Callable

    from ipcbus.config import ContextOptions, ReceiverOptions, SourceOptions
    from ipcbus.config.option_values import OptionValues
    from ipcbus.gmd.receiver_area import ReceiverArea

CHECK_NS: Final = 1_000_000_000
"""Time in ns between two looks whether the files of an open area are still there."""
_YIELD_S: Final = 5.0
"""Time in which an agent closes an area that its owner wants; it takes less than a second where it can run."""
_LOOK_S: Final = 0.01
_FILES: Final = ("network_key_file", "tls_certificate", "tls_certificate_key", "tls_trusted_certificates")
"""Options that name a file; an agent runs in another directory."""
_ONLY_THE_OWNERS: Final = frozenset(
    {
        *("context_name", "operational_mode", "thread_cpu", "transport_lbtipc_receiver_operational_mode"),
        *("transport_lbtipc_receiver_thread_behavior", "transport_lbtsmx_receiver_thread_behavior"),
        *("gmd_name", "gmd_fresh", "gmd_reconnect_timeout", "ipc_gmd_directory", "ipc_gmd_type"),
    }
)
"""Options that an agent does not take over: how the owner's process runs, and where the area is. An agent waits for a
receiver that went away for ever, because no application hears of a failure."""


def directory_of(option: str) -> Path:
    """Returns the directory of GMD areas: that of option ipc_gmd_directory, or the user's."""
    return Path(option).absolute() if option else default_directory(os.environ, Path.home())


def open_sender_area(domain: str, topic: str, options: SourceOptions, context: ContextOptions) -> MemoryArea | FileArea:
    """Opens the GMD area of a source; waits for an agent that has it.

    Raises:
        ipcbus.GmdError: it cannot be opened: a live source has it, it is damaged, or the system refuses.
    """
    incarnation = secrets.randbits(64) | 1
    if options.ipc_gmd_type == "memory":
        return MemoryArea(options.gmd_name, topic, incarnation, options.gmd_max_size)
    directory = directory_of(options.ipc_gmd_directory)
    folder = area_folder(directory, options.gmd_name, topic, SOURCE)
    given = {"context": _for_agents(context), "source": _for_agents(options)}

    def opened() -> FileArea:
        return FileArea.open(
            Disk(),
            folder,
            AreaIdentity(options.gmd_name, topic, domain, incarnation, given),
            durability=options.gmd_durability,
            max_size=options.gmd_max_size,
            fresh=options.gmd_fresh,
        )

    try:
        return opened()
    except GmdAreaLocked:
        if not area_yielding.is_with_agent(Disk(), directory, folder):
            raise
        return _wait_for_agent(folder, opened)


def _wait_for_agent(folder: Path, opened: Callable[[], FileArea]) -> FileArea:
    """Opens an area when the agent that has it has closed it.

    Raises:
        ipcbus.GmdError: the agent does not close it, or the area cannot be opened.
    """
    wish, pause = area_yielding.want(Disk(), folder), threading.Event()
    deadline = time.monotonic() + _YIELD_S
    try:
        while True:
            pause.wait(_LOOK_S)
            try:
                return opened()
            except GmdAreaLocked:
                if time.monotonic() > deadline:
                    raise
    finally:
        if wish is not None:
            wish.release()


def _for_agents(options: OptionValues) -> dict[str, object]:
    """Returns the options with which an agent sends in the place of an owner."""
    given: dict[str, object] = {
        name: value
        for name, value in options.items()
        if value != options.rows[name].default and name not in _ONLY_THE_OWNERS
    }
    for name in _FILES:
        if given.get(name):
            given[name] = str(Path(str(given[name])).absolute())
    return given


def open_receiver_area(domain: str, topic: str, options: ReceiverOptions) -> ReceiverArea:
    """Opens the GMD area of a named receiver for one topic; raises errors as `open_sender_area`."""
    if options.ipc_gmd_type == "memory":
        return MemoryReceiverArea()
    return FileReceiverArea.open(
        Disk(),
        area_folder(directory_of(options.ipc_gmd_directory), options.gmd_name, topic, RECEIVER),
        AreaIdentity(options.gmd_name, topic, domain),
        durability=options.gmd_durability,
    )
