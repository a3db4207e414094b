"""Takes snapshots of a domain at a fixed interval."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ipcbus_tools.common import Seconds
from ipcbus_tools.signals import SignalHandler

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ipcbus.stats import DomainSnapshot

_Function = TypeVar("_Function", bound=Callable[..., Any])

SHORTEST_S = 0.05
"""Shortest interval; rates over less time say more about the machine's clock than about the bus."""


def interval_option(default: float = 1.0) -> Callable[[_Function], _Function]:
    """Adds --interval."""
    return click.option(
        "--interval",
        type=Seconds(SHORTEST_S, 86400),
        default=default,
        help="Seconds between two snapshots; rates are over this time.",
    )


def watch(domain: str, interval: float, count: int | None = None, *, begin: bool = False) -> Iterator[DomainSnapshot]:
    """Yields snapshots with rates, the first after one interval; the observed processes do not notice.

    The schedule does not drift: a late snapshot does not delay those after it. Ctrl-C and SIGTERM end the command
    between two snapshots.

    Args:
        domain: name of the domain.
        interval: seconds between two snapshots.
        count: number of snapshots; None goes on until a signal.
        begin: also yields, at once, the snapshot that the first rates start from; it has no rates and is not counted.
    """
    from ipcbus import stats

    processes, history = stats.Processes(), stats.History()
    with SignalHandler() as signals, signals.interruptible():
        first = history.add(stats.take_snapshot(domain, processes))
        due = time.monotonic()
        if begin:
            yield first
        seen = 0
        while count is None or seen < count:
            due = max(due + interval, time.monotonic())
            signals.wait(due - time.monotonic())
            yield history.add(stats.take_snapshot(domain, processes))
            seen += 1
