"""Snapshots of a domain, one every so often."""

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
"""Shortest interval: rates of less time than this say more about the machine's clock than about the bus."""


def interval_option(default: float = 1.0) -> Callable[[_Function], _Function]:
    """Adds --interval."""
    return click.option(
        "--interval",
        metavar="SECONDS",
        type=Seconds(SHORTEST_S, 86400),
        default=default,
        show_default=True,
        help="Time between two looks; rates are of this time.",
    )


def watch(domain: str, interval: float, count: int | None = None, *, begin: bool = False) -> Iterator[DomainSnapshot]:
    """Snapshots with rates, the first after one interval; nobody who is looked at notices.

    Looks do not drift: one that comes late does not delay those after it. Ctrl-C and SIGTERM end the command between
    two looks.

    Args:
        domain: name of the domain.
        interval: seconds between two looks.
        count: how many; None goes on until a signal.
        begin: also the one from which the first rates are reckoned, at once and without rates; it is not counted.
    """
    from ipcbus import stats

    processes, history = stats.Processes(), stats.History()
    with SignalHandler() as stopper, stopper.allowed():
        first = history.add(stats.take_snapshot(domain, processes))
        due = time.monotonic()
        if begin:
            yield first
        seen = 0
        while count is None or seen < count:
            due = max(due + interval, time.monotonic())
            stopper.wait(due - time.monotonic())
            yield history.add(stats.take_snapshot(domain, processes))
            seen += 1
