"""`ipcbus replay` of an archive."""

from __future__ import annotations

import functools
import time
from typing import TYPE_CHECKING, Any, Final

from rich.progress import Progress

import ipcbus
from ipcbus.archive import Archive
from ipcbus.archive.player import Player
from ipcbus.config import Config
from ipcbus_tools.common import notes, number, output, plural, print_json, progress_bar, size, source_options
from ipcbus_tools.render.text_tables import Row, show_table
from ipcbus_tools.signals import SignalHandler

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from rich.console import RenderableType

    from ipcbus_tools.replay.replay_options import Sending

_SHOWN: Final = 40
"""Most topics in the table for people."""


def replay(path: Path, sending: Sending, *, topic: tuple[str, ...], loops: int, **selection: Any) -> None:  # noqa: ANN401
    """Sends the messages of an archive; the arguments are options of `ipcbus replay`, and as `Player` takes them."""
    with SignalHandler() as signals, ipcbus.Context(Config.load(sending.config), domain=sending.domain) as context:
        selection |= source_options(sending.transport)
        with signals.interruptible(), notes().status(f"opening {path.name}"):
            player = Player(
                Archive(path), context, topics=list(topic) or None, speed=sending.speed, loops=loops, **selection
            )
        run = Run(player, loops)
        report = functools.partial(run.report, as_json=sending.as_json)
        sending.run(player.sources, signals, run.play, report)


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
        bar = progress_bar(_Bar)
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
        show_table(console, "topics", _totals(player))
        text = f"{number(sent)} messages, {size(bytes_)} in {self._seconds:.2f} s: {number(rate)} msg/s"
        text += "" if self._complete else "; it ended before everything was sent"
        console.print(text, highlight=False)
        if player.lost:
            console.print(f"{plural(player.lost, 'sequence number')} lost before the recording", highlight=False)
        if player.missing:
            console.print(f"{plural(player.missing, 'row')} of the archive lost", highlight=False)


def _totals(player: Player) -> list[Row]:
    rest = player.targets[_SHOWN:]
    found = [_row(each.topic, each.source.topic, each.sent, each.bytes) for each in player.targets[:_SHOWN]]
    more = _row(f"{len(rest)} more", "", sum(each.sent for each in rest), sum(each.bytes for each in rest))
    return [*found, more] if rest else found


def _row(topic: str, sent_as: str, sent: int, bytes_: int) -> Row:
    return {"topic": topic, "sent as": sent_as, "messages": number(sent), "payload": size(bytes_)}
