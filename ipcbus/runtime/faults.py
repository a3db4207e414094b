"""From the errors of the rings, and of the caller, to the errors of the public face."""

from __future__ import annotations

from typing import Any

from ipcbus.errors import ConfigError, LayoutMismatch, PermissionRefused, SessionGone, SharedMemoryFull, TransportError
from ipcbus.wire.layout import TOPIC_NAME_MAX
from ringbuf import errors

_same = {
    errors.SegmentFull: SharedMemoryFull,
    errors.SegmentGone: SessionGone,
    errors.SegmentRefused: PermissionRefused,
    errors.SegmentMismatch: LayoutMismatch,
}


def as_ipcbus_error(error: errors.RingError) -> TransportError:
    """The public error with the same text."""
    return _same.get(type(error), TransportError)(str(error))


def check_topic(topic: Any) -> None:  # noqa: ANN401 - whatever the caller gave
    """Refuses what is no topic name.

    Raises:
        ConfigError: it is no text, empty, too long, or has zero bytes.
    """
    try:
        size = len(topic.encode()) if isinstance(topic, str) else 0
    except UnicodeEncodeError:  # half of a surrogate pair
        size = 0
    if not 0 < size <= TOPIC_NAME_MAX or "\0" in topic:
        raise ConfigError(f"topic {topic!r} is no topic name: 1 to {TOPIC_NAME_MAX} bytes of text without zero bytes")


def check_callbacks(**given: Any) -> None:  # noqa: ANN401 - whatever the caller gave
    """Refuses what cannot be called, by the name of its parameter; None is no callback.

    Raises:
        ConfigError: one of them cannot be called.
    """
    for name, function in given.items():
        if function is not None and not callable(function):
            raise ConfigError(
                f"{name} = {function!r} cannot be called; give a function of one argument, or leave it out"
            )
