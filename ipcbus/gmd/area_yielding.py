"""How an agent, which delivers what an owner has left, gives an area back when the owner returns.

An agent holds the lock of its directory (`.agent`), and the locks of the areas that it has opened. An owner that finds
its area in the hands of the agent holds the lock `wanted` of the area, until the agent has closed the area.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ipcbus.errors import GmdAreaLocked
from ipcbus.gmd.area_folders import area_folders
from ipcbus.gmd.area_identity import LOCK, gmd_errors
from ipcbus.storage.locks import UNKNOWN

if TYPE_CHECKING:
    from pathlib import Path

    from ipcbus.storage.files import Files, Lock

AGENT: Final = ".agent"
"""In the directory of all areas; no name of a sender gives this name."""
WANTED: Final = "wanted"


def lock_directory(files: Files, directory: Path) -> Lock:
    """Makes this process the agent of a directory.

    Raises:
        GmdAreaLocked: another process is its agent.
        GmdError: the system refuses.
    """
    with gmd_errors():
        files.make_dir(directory)
        lock = files.lock(directory / AGENT)
        if lock is None:
            holder = files.holder(directory / AGENT) or "a process that has just ended"
            raise GmdAreaLocked(f"{directory}: {holder} is the agent of this directory already; one is enough")
        return lock


def is_with_agent(files: Files, directory: Path, folder: Path) -> bool:
    """Returns whether the agent of a directory uses this area of it."""
    with gmd_errors():
        agent = files.holder(directory / AGENT)
        # Without a text, the holder has just taken the lock, or the disk is full; without a holder, the agent has just
        # closed the area.
        return agent == UNKNOWN or (agent is not None and files.holder(folder / LOCK) in (agent, UNKNOWN, None))


def want(files: Files, folder: Path) -> Lock | None:
    """Lets the agent see that the owner of an area has returned; None if another process wants the area too."""
    with gmd_errors():
        return files.lock(folder / WANTED)


def is_wanted(files: Files, folder: Path) -> bool:
    """Returns whether the owner of an area waits for it."""
    with gmd_errors():
        return files.holder(folder / WANTED) is not None


def yield_if_wanted(files: Files, folder: Path) -> None:
    """Ends the opening of a large area, if this process opens it as an agent, when an owner waits for the agent.

    Raises:
        GmdAreaLocked: the owner of this area, or of another one of the directory, has returned.
    """
    directory = folder.parents[2]
    if is_with_agent(files, directory, folder) and any(
        is_wanted(files, each) for each in area_folders(files, directory)
    ):
        raise GmdAreaLocked(f"{folder}: not opened now, as the agent gives an area back to its sender; try it again")
