"""Registration at the receiver: how it joins a session and how that ends; docs/explanation/reliability.md draws it."""

from __future__ import annotations

from enum import Enum
from typing import Final


class State(Enum):
    """The state of a receiver in a session."""

    CONNECTING = "the receiver asks the source for a cookie"
    PROVING = "the receiver sends the cookie back, to be registered"
    JOINED = "the source has registered the receiver"
    ENDING = "the source has announced the end of the session; the receiver waits for missing datagrams"
    ENDED = "the session has ended, cannot be joined, or was left"
    SILENT = "no packet came from the source for the activity timeout"


class Cause(Enum):
    """What may happen to a receiver."""

    WELCOME = "the source gave a cookie"
    ADMITTED = "the source has registered the receiver"
    RESET = "the source does not know the receiver"
    GONE = "the source does not know the session"
    ATTEMPTS = "the source has not answered maximum_connect_attempts times"
    FINAL = "the source has announced the end of the session"
    COMPLETE = "the end was announced, and no datagram is missing any more"
    SILENCE = "no packet came for the activity timeout"
    LEAVE = "the application does not receive the session any more"


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
"""The next state for each cause that matters in a state; others are ignored."""

OVER: Final[tuple[State, ...]] = (State.ENDED, State.SILENT)
"""The final states."""
