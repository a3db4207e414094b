"""The common part of replaying a feed and replaying an archive."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from ipcbus_tools.common import notes

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from rich.progress import Progress

    from ipcbus import Source
    from ipcbus_tools.signals import SignalHandler

_Bar = TypeVar("_Bar", bound="Progress")

MAX_SPEED: Final = 0.0
_POLL_S: Final = 0.02


def speed_of(context: click.Context, option: click.Parameter, value: str) -> float:
    """Converts `real`, `max` or a factor such as `10x` into a factor."""
    text = value.lower()
    if text in ("max", "real"):
        return 1.0 if text == "real" else MAX_SPEED
    try:
        factor = float(text.removesuffix("x"))
    except ValueError:
        factor = 0.0
    if not 0 < factor < float("inf"):
        raise click.BadParameter(f"{value!r} is not a speed; give real, max, or a factor such as 10x", context, option)
    return factor


def wait_for_receivers(sources: Iterable[Source], count: int, timeout: float) -> None:
    """Waits until `count` contexts have joined each source, at most `timeout` seconds for all sources."""
    deadline = time.monotonic() + timeout
    for source in sources:
        source.wait_for_receivers(count, max(0.0, deadline - time.monotonic()))


def wait_until_read(domain: str, sources: Collection[Source], linger: float, signals: SignalHandler) -> bool:
    """Waits until the receivers of these sources have read everything; returns whether they have."""
    from ipcbus import stats

    mine = {source.source for source in sources}
    deadline = time.monotonic() + linger
    while True:
        sessions = [session for session in stats.take_snapshot(domain).sessions if session.source in mine]
        behind = [slot for session in sessions for slot in session.receivers if slot.alive and slot.lag]
        if not behind:
            return True
        if time.monotonic() >= deadline:
            pids = ", ".join(sorted({str(slot.pid) for slot in behind}))
            click.echo(f"note: not all receivers have read everything (pid {pids}); they can still read it", err=True)
            return False
        signals.wait(_POLL_S)


def progress(kind: type[_Bar]) -> _Bar:
    """Returns a progress bar on stderr; it is shown only on a terminal."""
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn

    columns: tuple[Any, ...] = (
        BarColumn(None),
        MofNCompleteColumn(),
        TextColumn("{task.speed:.0f}/s", "dim"),
        TimeRemainingColumn(),
    )
    return kind(*columns, console=notes(), transient=True, disable=not sys.stderr.isatty(), expand=True)
