"""Retained messages as entries of a SHARE_WORK (`share_messages`), made by compiled code."""

from typing import NamedTuple

class WorkMessage(NamedTuple):
    """A message of a source, ready to be assigned."""

    first: int
    """Its first topic number."""
    last: int
    """Its last topic number."""
    is_request: bool
    """Whether it is a request."""
    entry: bytes
    """Its bytes in a SHARE_WORK."""

def take_apart(retained: bytes, following: int) -> tuple[list[WorkMessage], int]:
    """Returns whole messages.

    Args:
        retained: entries of a `Retention`, with send times in ns since the epoch.
        following: the number of the first of them.

    Returns:
        The messages, and the number after them: that of a message of which fragments are missing at the end.
    """

def goes_on(retained: bytes, first: int) -> bool:
    """Returns whether the message whose first number is `first` is not published completely.

    Args:
        retained: the entry that was published last, as `Retention.read` gives it.
        first: the number.
    """
