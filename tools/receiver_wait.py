"""The wait of commands for the receivers of what they are about to send."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Final

import click

from ipcbus_tools.common import Failure, plural

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ipcbus import Source

SOON_S: Final = 0.5
"""A wait that is shorter needs no explanation."""


def wait_for_receivers(sources: Iterable[Source], count: int, timeout: float, *, domain: str, quiet: bool) -> None:
    """Waits until `count` contexts have joined each source; when that takes longer, says on stderr what it waits for.

    Args:
        sources: the sources that are about to send.
        count: the contexts that each source waits for.
        timeout: seconds to wait at most, for all sources together.
        domain: the domain of the sources, for the note.
        quiet: whether to leave the note out, for programs.

    Raises:
        Failure: fewer contexts had joined.
    """
    deadline = time.monotonic() + timeout
    waiting = list(sources)

    def say() -> None:
        if waiting:
            _say(waiting[0], count, deadline - time.monotonic(), domain)

    note = threading.Timer(SOON_S, say)
    if not quiet and timeout > SOON_S:
        note.start()
    try:
        while waiting:
            waiting[0].wait_for_receivers(count, max(0.0, deadline - time.monotonic()))
            del waiting[0]
    except TimeoutError as error:
        raise Failure(f"{error}; --wait-receivers 0 sends without receivers") from error
    finally:
        note.cancel()


def _say(source: Source, count: int, left: float, domain: str) -> None:
    click.echo(
        f"waiting for {plural(count, 'receiver')} of topic {source.topic!r} in domain {domain!r}, at most {left:.1f} s "
        "more; --wait-receivers 0 sends without receivers",
        err=True,
    )
