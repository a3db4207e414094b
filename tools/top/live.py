"""What `ipcbus top` does for people: on the screen, on paper, as a picture."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from ipcbus import stats
from ipcbus_tools.common import output
from ipcbus_tools.stopping import Stopper
from ipcbus_tools.top import host
from ipcbus_tools.top import view as views
from ipcbus_tools.top.roster import Roster
from ipcbus_tools.top.screen import Frame, Size, page_rows, report, screen
from ipcbus_tools.top.terminal import Terminal
from ipcbus_tools.top.view import View
from ipcbus_tools.watching import watch

if TYPE_CHECKING:
    from ipcbus.stats import DomainSnapshot

_PICTURE = (130, 22)


class Looks:
    """Takes looks at a domain, one after the other."""

    def __init__(self, domain: str, interval: float) -> None:
        """Has seen nothing yet."""
        self._domain = domain
        self._interval = interval
        self._processes, self._history, self._roster = stats.Processes(), stats.History(), Roster()

    def look(self) -> Frame:
        """What is there now, with rates since the look before."""
        return self.frame(self._history.add(stats.take_snapshot(self._domain, self._processes)))

    def frame(self, found: DomainSnapshot) -> Frame:
        """A snapshot with its rates, as the screen wants it."""
        rows = self._roster.rows(found, round(self._interval * 1e9))
        trails = {session.source: self._history.trail(session) for session in found.sessions}
        return Frame(host.look(), found, rows, trails, self._interval, self._roster.hidden_dead)


def run(domain: str, interval: float, count: int | None) -> None:
    """Shows the domain live until `q`, or for so many looks."""
    looks = Looks(domain, interval)
    with Stopper() as stopper, Terminal() as terminal, stopper.allowed():
        frame = shown = looks.look()
        # The first rates come soon, whatever the interval: an empty screen tells nothing.
        due = time.monotonic() + min(interval, 0.5)
        view, seen = View(), 0
        while not view.ended:
            width, height = terminal.console.size
            size = Size(width, height, terminal.unicode)
            terminal.show(screen(shown, view, size))
            keys = terminal.keys(due - time.monotonic())
            if keys is None:
                return
            for key in keys:
                view = views.press(view, key, views.shown(shown.rows, view), page_rows(size))
            if time.monotonic() >= due:
                frame = looks.look()
                due = max(due + interval, time.monotonic())
                seen += 1
                if seen == count:
                    return
            if not view.paused:
                shown = frame


def once(domain: str, interval: float) -> None:
    """Prints one look, all of it."""
    looks = Looks(domain, interval)
    console = output()
    for found in watch(domain, interval, 1):
        unicode = console.encoding.lower().startswith("utf")
        console.print(report(looks.frame(found), Size(console.width, console.height, unicode)), no_wrap=True)


def picture(domain: str, interval: float, count: int, svg: str) -> None:
    """Draws the last of so many looks to a file."""
    looks = Looks(domain, interval)
    frame = looks.look()
    with Stopper() as stopper, stopper.allowed():
        for _ in range(count):
            stopper.wait(interval)
            frame = looks.look()
    width, height = _PICTURE
    with Path("/dev/null").open("w") as nowhere:
        console = Console(file=nowhere, record=True, width=width, height=height, force_terminal=True, highlight=False)
        rows = views.shown(frame.rows, View())
        # The session with the most receivers says most.
        best = max(rows, key=lambda row: len(row.session.receivers) if row.session else 0, default=None)
        console.print(screen(frame, View(chosen=best.key if best else None), Size(width, height)))
        console.save_svg(svg, title="ipcbus top")
