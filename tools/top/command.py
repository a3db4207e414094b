"""`ipcbus top`: every session live, read from the statistics alone."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console

from ipcbus import stats
from ipcbus.config import Config
from ipcbus_tools.common import Misuse, bus_options, json_option, output
from ipcbus_tools.stopping import Stopper
from ipcbus_tools.top import host
from ipcbus_tools.top import view as views
from ipcbus_tools.top.roster import Roster
from ipcbus_tools.top.screen import Frame, Size, page_rows, report, screen
from ipcbus_tools.top.terminal import Terminal
from ipcbus_tools.top.view import View
from ipcbus_tools.watching import interval_option, watch

if TYPE_CHECKING:
    from ipcbus.stats import DomainSnapshot

_PICTURE = (130, 22)


@click.command("top", short_help="Shows every session live.")
@interval_option()
@click.option("--once", is_flag=True, help="Print one look, of two snapshots --interval apart, and end.")
@click.option("-n", "--count", metavar="N", type=click.IntRange(min=1), help="End after N looks.")
@click.option("--svg", metavar="FILE", type=click.Path(dir_okay=False), help="Draw the last of --count looks to FILE.")
@bus_options
@json_option
def command(
    interval: float, once: bool, count: int | None, svg: str | None, domain: str, config: str | None, as_json: bool
) -> None:
    """Shows who sends what to whom, how fast, how late, what was lost, and who holds the others up.

    Only shared memory is read: nothing is subscribed, no slot is taken, no live process notices. The chosen session's
    receivers and topics stand below it; ? shows the keys.

    \b
    Examples:
      ipcbus top
      ipcbus top --interval 0.2 --domain trading
      ipcbus top --once | less
      ipcbus top --once --json | jq '.contexts[].sessions[] | {source, per_second}'
      ipcbus top --json -n 60 > minute.jsonl

    With --json each look is one line; its form is in docs/reference/json.md.
    """
    Config.load(config)  # nothing of it matters here, but a wrong file should not pass in silence
    looks = 1 if once else count
    if as_json:
        for found in watch(domain, interval, looks):
            sys.stdout.write(json.dumps(found.to_dict()) + "\n")
            sys.stdout.flush()
    elif svg is not None:
        if looks is None:
            raise Misuse("--svg needs --once or --count, to know when to draw")
        _picture(domain, interval, looks, svg)
    elif once:
        _once(domain, interval)
    else:
        _live(domain, interval, count)


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


def _live(domain: str, interval: float, count: int | None) -> None:
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


def _once(domain: str, interval: float) -> None:
    looks = Looks(domain, interval)
    console = output()
    for found in watch(domain, interval, 1):
        unicode = console.encoding.lower().startswith("utf")
        console.print(report(looks.frame(found), Size(console.width, console.height, unicode)), no_wrap=True)


def _picture(domain: str, interval: float, count: int, svg: str) -> None:
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
