"""Short tracebacks of exceptions that end a wait: Ctrl-C, and the cancellation of a task of asyncio."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import FrameType

_OURS = ("ipcbus", "ringbuf")
_CALLED = ("contextlib", "threading")
"""Modules of Python's library in which this package waits."""


def shorten(error: BaseException) -> None:
    """Takes the frames of this package out of a traceback, so that the traceback ends where the application called.

    Public functions use it as `except BaseException as error: shorten(error); raise`. Other exceptions keep their
    tracebacks, and so does an exception that came while a callback of the application ran.
    """
    if not isinstance(error, KeyboardInterrupt) and type(error).__name__ != "CancelledError":
        return
    trace = error.__traceback__
    while trace is not None:
        if not _is_inside(trace.tb_frame):
            return
        trace = trace.tb_next
    error.__traceback__ = None


def _is_inside(frame: FrameType) -> bool:
    name = str(frame.f_globals.get("__name__", ""))
    return name.partition(".")[0] in _OURS or name in _CALLED
