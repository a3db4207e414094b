"""Delivers guaranteed messages whose senders are gone: opens their GMD areas under the senders' identity."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import ipcbus
from ipcbus.config import Config
from ipcbus.errors import GmdAreaLocked, GmdError, IpcBusError
from ipcbus.gmd import area_yielding
from ipcbus.gmd.area_folders import SOURCE, area_folder, area_folders
from ipcbus.gmd.area_identity import LOCK
from ipcbus.gmd.area_inspection import failed, inspect, is_area, names_of
from ipcbus_tools.common import Failure

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ipcbus import Context, SourceEvent
    from ipcbus.gmd.area_identity import AreaIdentity
    from ipcbus.storage.files import Files

_RETRY_S: Final = 5.0
_PROGRESS_S: Final = 5.0
_DAMAGED: Final = "{}: the area is damaged; 'ipcbus gmd verify' says where, and what to do"


@dataclass(frozen=True, slots=True)
class AgentEvent:
    """An event of the agent.

    Attributes:
        time_ns: when it happened, in ns since the epoch.
        event: `opened`, `progress`, `delivered`, `failed`, `yielded`, `closed` or `refused`.
        area: the directory of the area.
        pending: messages that are not acknowledged.
        failed: those of them that failed; they stay until 'ipcbus gmd resend', or until their sender decides.
        text: what happened, for people.
    """

    time_ns: int
    event: str
    area: str
    pending: int
    failed: int
    text: str


class LeftArea:
    """An area that is open in the place of its sender."""

    def __init__(self, context: Context, folder: Path, identity: AreaIdentity) -> None:
        """Opens it; what is pending there is sent from now on.

        Raises:
            IpcBusError: it cannot be opened.
        """
        directory = folder.parents[2]
        if area_folder(directory, identity.name, identity.topic, SOURCE) != folder:
            raise GmdError(
                f"{folder}: this is the area of sender {identity.name} and topic {identity.topic}, but in another "
                "place; move it to directory/gmd_name/topic/source"
            )
        self._failures: set[int] = set()
        options: dict[str, Any] = dict(_options(identity, "source"))
        options |= {"gmd_name": identity.name, "ipc_gmd_directory": str(directory), "gmd_reconnect_timeout": 0}
        self.folder, self.context = folder, context
        self.source = context.source(identity.topic, on_event=self._on_event, **options)
        self.opened_with = self.source.gmd_num_pending

    def _on_event(self, event: SourceEvent) -> None:
        if event.type is ipcbus.SourceEventType.GMD_FAILURE:
            self._failures.add(event.gmd_sequence_number)

    @property
    def pending(self) -> int:
        """The number of messages that are not acknowledged."""
        return self.source.gmd_num_pending

    def failed(self) -> int:
        """Returns how many messages have failed for a receiver, and stay pending."""
        return sum(bool(self.source.gmd_status(number).failed) for number in self._failures.copy())

    @property
    def rests(self) -> bool:
        """Whether no message is pending, but for those that have failed for all that have not acknowledged them."""
        pending, failures = self.pending, self._failures.copy()
        if not pending or pending > len(failures):
            return not pending
        found = [self.source.gmd_status(number) for number in failures]
        return pending == sum(bool(each.failed) and not each.pending for each in found)

    def close(self) -> None:
        """Closes it; what is pending stays."""
        self.source.close()


class Agent:
    """Opens the areas of a directory whose senders are gone, and closes those whose senders return."""

    def __init__(self, files: Files, directory: Path, say: Callable[[AgentEvent], None]) -> None:
        """Becomes the agent of the directory.

        Args:
            files: the storage.
            directory: that of all areas.
            say: is called with each event.

        Raises:
            GmdError: the directory has another agent, or cannot be used.
        """
        self._files, self._directory, self._say = files, directory.absolute(), say
        self._lock = area_yielding.lock_directory(files, self._directory)
        self._areas: dict[Path, LeftArea] = {}
        self._contexts: dict[str, Context] = {}
        self._settled: dict[Path, int] = {}
        self._refused: dict[Path, tuple[str, float]] = {}
        self._told: dict[Path, tuple[int, float]] = {}

    def look(self) -> None:
        """Gives back the areas that their senders want, closes those without pending messages, and opens others."""
        for area in list(self._areas.values()):
            self._watch(area)
        for folder in area_folders(self._files, self._directory):
            if folder.name == SOURCE and folder not in self._areas:
                self._consider(folder)
        used = {id(area.context) for area in self._areas.values()}
        for key, context in list(self._contexts.items()):
            if id(context) not in used:
                self._contexts.pop(key).close()

    @property
    def rests(self) -> bool:
        """Whether nothing is pending that the agent could deliver."""
        return all(area.rests for area in self._areas.values())

    @property
    def troubles(self) -> int:
        """The number of areas that it cannot open, or whose messages have failed."""
        return len(self._refused) + sum(area.pending > 0 for area in self._areas.values())

    def close(self) -> None:
        """Closes all areas; what is pending stays."""
        for area in list(self._areas.values()):
            self._close(area, "closed", "the agent ends")
        for context in self._contexts.values():
            context.close()
        self._lock.release()

    def _watch(self, area: LeftArea) -> None:
        if area_yielding.is_wanted(self._files, area.folder):
            self._close(area, "yielded", "given back to its sender")
            return
        pending, now = area.pending, time.monotonic()
        if not pending:
            self._close(area, "delivered", f"{area.opened_with} delivered")
            self._settled[area.folder] = self._mark(area.folder)
            return
        before, then = self._told[area.folder]
        if pending != before and now - then >= _PROGRESS_S:
            self._tell("progress", area, f"{area.opened_with - pending} of {area.opened_with} delivered")
        elif then and area.rests:
            self._tell("failed", area, "what is left has failed; 'ipcbus gmd resend' sends it again")
            self._told[area.folder] = pending, 0.0  # said once

    def _consider(self, folder: Path) -> None:
        if area_yielding.is_wanted(self._files, folder) or self._files.holder(folder / LOCK) is not None:
            self._refused.pop(folder, None)
            return
        mark, (text, until) = self._mark(folder), self._refused.get(folder, ("", 0.0))
        try:
            if not is_area(self._files.names(folder)):  # it was purged, or its first owner is just making it
                self._refused.pop(folder, None)
                return
            if self._settled.get(folder) == mark or time.monotonic() < until:
                return
            yields = partial(area_yielding.yield_if_wanted, self._files, folder)
            found = inspect(self._files, folder, before_each=yields)
            if found.recovery is None or (not found.recovery.index.count and not found.faults):
                self._settled[folder] = mark
                return
            if found.identity is None or found.faults:
                raise GmdError(_DAMAGED.format(folder))
            area = LeftArea(self._context_of(found.identity), folder, found.identity)
        except GmdAreaLocked:
            return  # its sender was faster, or waits for the agent
        except IpcBusError as error:
            self._refused[folder] = str(error), time.monotonic() + _RETRY_S
            if str(error) != text:
                self._say(AgentEvent(time.time_ns(), "refused", str(folder), 0, 0, f"not opened: {error}"))
            return
        self._refused.pop(folder, None)
        self._areas[folder] = area
        # As the area says: the source tells its failures only a little later.
        self._tell("opened", area, "opened", failed(found, names_of(found)))

    def _context_of(self, identity: AreaIdentity) -> Context:
        options = _options(identity, "context")
        key = json.dumps([identity.domain, options], sort_keys=True)
        if key not in self._contexts:
            self._contexts[key] = open_context(identity)
        return self._contexts[key]

    def _close(self, area: LeftArea, event: str, text: str) -> None:
        pending, failures = area.pending, area.failed()
        area.close()
        del self._areas[area.folder]
        self._say(AgentEvent(time.time_ns(), event, str(area.folder), pending, failures, text))

    def _tell(self, event: str, area: LeftArea, text: str, failures: int | None = None) -> None:
        self._told[area.folder] = area.pending, time.monotonic()
        count = area.failed() if failures is None else failures
        self._say(AgentEvent(time.time_ns(), event, str(area.folder), area.pending, count, text))

    def _mark(self, folder: Path) -> int:
        """Returns a number that changes when a process takes the lock of an area."""
        try:
            return (folder / LOCK).stat().st_mtime_ns
        except OSError:
            return 0


def open_context(identity: AreaIdentity) -> Context:
    """Opens a context with the domain and the options of an area's sender.

    Raises:
        IpcBusError: it cannot be opened.
    """
    return ipcbus.Context(
        Config({"context": _options(identity, "context")}),
        name=f"agent of {identity.name}"[:31],
        domain=identity.domain,
    )


def left_identity(files: Files, folder: Path) -> AreaIdentity:
    """Returns the sender of an area.

    Raises:
        Failure: it is not a sender's area, or it is damaged.
        GmdError: there is no area.
    """
    found = inspect(files, folder)
    if found.identity is None or found.faults:
        raise Failure(_DAMAGED.format(folder))
    if found.recovery is None:
        raise Failure(f"{folder}: this is the area of a receiver; give the area of a source")
    return found.identity


def _options(identity: AreaIdentity, scope: str) -> dict[str, object]:
    given = identity.options.get(scope)
    return dict(given) if isinstance(given, dict) else {}
