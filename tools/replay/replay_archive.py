"""`ipcbus replay` of an archive."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from rich import box
from rich.progress import Progress
from rich.table import Table

import ipcbus
from ipcbus.archive import Archive
from ipcbus.archive.player import Boundary, Player
from ipcbus.config import Config
from ipcbus_tools.common import notes, number, output, plural, print_json, safe, size, source_options
from ipcbus_tools.replay.replay_options import progress, wait_for_receivers, wait_until_read
from ipcbus_tools.signals import SignalHandler, Stopped

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from rich.console import RenderableType

_SHOWN: Final = 40
"""Most topics in the table for people."""


def replay(
    path: Path,
    *,
    speed: float,
    select: tuple[str, ...],
    pattern: str | None,
    rename: dict[str, str],
    stream: str | None,
    start: Boundary | None,
    end: Boundary | None,
    loops: int,
    transport: str | None,
    wait_receivers: int,
    timeout: float,
    linger: float,
    domain: str,
    config: str | None,
    as_json: bool,
) -> None:
    """Sends the messages of an archive; the arguments are the options of `ipcbus replay`."""
    with SignalHandler() as signals, ipcbus.Context(Config.load(config), domain=domain) as context:
        with signals.interruptible(), notes().status(f"opening {path.name}"):
            player = Player(
                Archive(path),
                context,
                topics=list(select) or None,
                pattern=pattern,
                rename=rename,
                stream=stream,
                speed=speed,
                start=start,
                end=end,
                loops=loops,
                **source_options(transport),
            )
        run = Run(player, loops)
        everything_read = False
        try:
            with signals.interruptible():
                wait_for_receivers(player.sources, wait_receivers, timeout)
                run.play()
                everything_read = wait_until_read(domain, player.sources, linger, signals)
        except Stopped:
            run.report(False, as_json)
            raise
        run.report(everything_read, as_json)


class _Bar(Progress):
    """A bar that asks the player for its position whenever it is drawn."""

    player: Player

    def get_renderables(self) -> Iterable[RenderableType]:
        """Returns the bar with the current position."""
        for task in self.task_ids:
            self.update(task, completed=self.player.loop * self.player.rows + self.player.position)
        return super().get_renderables()


class Run:
    """One replay and its counts."""

    def __init__(self, player: Player, loops: int) -> None:
        self._player, self._loops = player, loops
        self._seconds = 0.0
        self._complete = False

    def play(self) -> None:
        """Sends everything; the counts are right also when a signal ends it."""
        bar = progress(_Bar)
        bar.player = self._player
        begin = time.monotonic()
        try:
            with bar:
                bar.add_task("", total=self._player.rows * self._loops or None)
                self._player.play()
            self._complete = True
        finally:
            self._seconds = time.monotonic() - begin

    def report(self, everything_read: bool, as_json: bool) -> None:
        """Prints what was sent of each topic."""
        player = self._player
        sent, bytes_ = player.sent, sum(target.bytes for target in player.targets)
        rate = sent / self._seconds if self._seconds else 0.0
        if as_json:
            print_json(
                {
                    "messages": sent,
                    "bytes": bytes_,
                    "seconds": round(self._seconds, 6),
                    "msgs_per_second": round(rate, 1),
                    "complete": self._complete,
                    "everything_read": everything_read,
                    "loops": player.loop,
                    "lost": player.lost,
                    "missing": player.missing,
                    "topics": {target.topic: target.sent for target in player.targets},
                    "sessions": sorted({source.source for source in player.sources}),
                }
            )
            return
        console = output()
        console.print(_totals_table(player))
        text = f"{number(sent)} messages, {size(bytes_)} in {self._seconds:.2f} s: {number(rate)} msg/s"
        text += "" if self._complete else "; it ended before everything was sent"
        console.print(text, highlight=False)
        if player.lost:
            console.print(f"{plural(player.lost, 'sequence number')} lost before the recording", highlight=False)
        if player.missing:
            console.print(f"{plural(player.missing, 'row')} of the archive lost", highlight=False)


def _totals_table(player: Player) -> Table:
    found = Table(box=box.SIMPLE_HEAD, padding=(0, 0), pad_edge=False)
    found.add_column("topic")
    found.add_column("sent as")
    for column in ("messages", "payload"):
        found.add_column(column, justify="right", no_wrap=True)
    for target in player.targets[:_SHOWN]:
        found.add_row(safe(target.topic), safe(target.source.topic), number(target.sent), size(target.bytes))
    rest = player.targets[_SHOWN:]
    if rest:
        sent, bytes_ = sum(target.sent for target in rest), sum(target.bytes for target in rest)
        found.add_row(f"{len(rest)} more", "", number(sent), size(bytes_))
    return found
