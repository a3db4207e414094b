"""The wait of commands for the receivers of what they are about to send."""

from __future__ import annotations

import contextlib
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
    try:
        for source in sources:
            left = max(0.0, deadline - time.monotonic())
            if not quiet and left > SOON_S:
                with contextlib.suppress(TimeoutError):
                    source.wait_for_receivers(count, SOON_S)
                    continue
                left = max(0.0, deadline - time.monotonic())
                _say(source, count, left, domain)
                quiet = True
            source.wait_for_receivers(count, left)
    except TimeoutError as error:
        raise Failure(f"{error}; --wait-receivers 0 sends without receivers") from error


def _say(source: Source, count: int, left: float, domain: str) -> None:
    click.echo(
        f"waiting for {plural(count, 'receiver')} of topic {source.topic!r} in domain {domain!r}, at most {left:.1f} s "
        "more; --wait-receivers 0 sends without receivers",
        err=True,
    )
