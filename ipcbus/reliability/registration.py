"""How a receiver joins a session and how that ends, as a table; docs/explanation/reliability.md draws it."""

from __future__ import annotations

from enum import Enum
from typing import Final


class State(Enum):
    """Where a receiver is."""

    CONNECTING = "asks the source for a cookie"
    PROVING = "shows the source the cookie, to be registered"
    JOINED = "is registered"
    ENDING = "knows the end of the session, and waits for what is missing"
    ENDED = "the session is over, or cannot be joined, or was left"
    SILENT = "nothing came from the source for the activity timeout"


class Cause(Enum):
    """What may happen to it."""

    WELCOME = "the source gave a cookie"
    ADMITTED = "the source has registered it"
    RESET = "the source does not know it"
    GONE = "the source does not know the session"
    ATTEMPTS = "the source has not answered maximum_connect_attempts times"
    FINAL = "the source has told the end"
    COMPLETE = "the end was told, and nothing is waited for any more"
    SILENCE = "nothing came for the activity timeout"
    LEAVE = "the application receives nothing of it any more"


_FROM_ALL = {Cause.GONE: State.ENDED, Cause.SILENCE: State.SILENT, Cause.LEAVE: State.ENDED}
_LIVE = (State.CONNECTING, State.PROVING, State.JOINED, State.ENDING)

TABLE: Final = {
    **{(state, cause): following for state in _LIVE for cause, following in _FROM_ALL.items()},
    (State.CONNECTING, Cause.WELCOME): State.PROVING,
    (State.CONNECTING, Cause.ATTEMPTS): State.ENDED,
    (State.CONNECTING, Cause.COMPLETE): State.ENDED,
    (State.PROVING, Cause.WELCOME): State.PROVING,
    (State.PROVING, Cause.ADMITTED): State.JOINED,
    (State.PROVING, Cause.ATTEMPTS): State.ENDED,
    (State.PROVING, Cause.COMPLETE): State.ENDED,
    (State.JOINED, Cause.WELCOME): State.PROVING,
    (State.JOINED, Cause.RESET): State.CONNECTING,
    (State.JOINED, Cause.FINAL): State.ENDING,
    (State.ENDING, Cause.COMPLETE): State.ENDED,
    (State.ENDING, Cause.RESET): State.ENDED,
}
"""Each state with each cause that moves it; any other is nothing."""

OVER: Final = frozenset({State.ENDED, State.SILENT})
"""States from which nothing leads."""
