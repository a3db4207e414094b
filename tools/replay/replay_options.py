"""The common part of replaying a feed and replaying an archive."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import click

from ipcbus_tools.receiver_wait import wait_for_receivers
from ipcbus_tools.signals import Stopped

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from ipcbus import Source
    from ipcbus_tools.signals import SignalHandler

MAX_SPEED: Final = 0.0
_POLL_S: Final = 0.02


@dataclass(frozen=True, slots=True)
class Sending:
    """The options of `ipcbus replay` that hold for archives and files; they are named as on the command line."""

    speed: float
    transport: str | None
    wait_receivers: int
    timeout: float
    linger: float
    domain: str
    config: str | None
    as_json: bool

    def run(
        self,
        sources: Collection[Source],
        signals: SignalHandler,
        send: Callable[[], None],
        report: Callable[[bool], None],
    ) -> None:
        """Sends when receivers have joined, and waits until they have read everything.

        Args:
            sources: the sources that send.
            signals: catches the signals that end the replay early.
            send: sends everything.
            report: prints what was sent, also after a signal; the argument says whether everything was read.
        """
        everything_read = False
        try:
            with signals.interruptible():
                wait_for_receivers(sources, self.wait_receivers, self.timeout, domain=self.domain, quiet=self.as_json)
                send()
                everything_read = _wait_until_read(self.domain, sources, self.linger, signals)
        except Stopped:
            report(False)
            raise
        report(everything_read)


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


def _wait_until_read(domain: str, sources: Collection[Source], linger: float, signals: SignalHandler) -> bool:
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
