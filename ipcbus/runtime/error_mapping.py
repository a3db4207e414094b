"""Public errors for errors of the rings and of the system, and checks of arguments."""

from __future__ import annotations

import contextlib
import inspect
import operator
from types import FunctionType
from typing import TYPE_CHECKING, Any

from ipcbus.errors import (
    ConfigError,
    LayoutMismatch,
    PermissionRefused,
    SegmentDamaged,
    SessionGone,
    SharedMemoryFull,
    TransportError,
)
from ipcbus.wire.wire_layout import TOPIC_NAME_MAX
from ringbuf import ring_errors, segment

if TYPE_CHECKING:
    from collections.abc import Iterator

ASYNC = inspect.CO_COROUTINE | inspect.CO_ITERABLE_COROUTINE | inspect.CO_ASYNC_GENERATOR
_same = {
    ring_errors.SegmentFull: SharedMemoryFull,
    ring_errors.SegmentGone: SessionGone,
    ring_errors.SegmentRefused: PermissionRefused,
    ring_errors.SegmentMismatch: LayoutMismatch,
    ring_errors.SegmentSpoiled: SegmentDamaged,
}


def as_ipcbus_error(error: ring_errors.RingError) -> TransportError:
    """Returns the public error with the same text."""
    return _same.get(type(error), TransportError)(str(error))


@contextlib.contextmanager
def typed(what: str) -> Iterator[None]:
    """Raises errors of the system inside the block as errors of this package, with the cure.

    Args:
        what: what the block does, for the text.

    Raises:
        TransportError: there is no descriptor, no room or no permission.
    """
    try:
        yield
    except ring_errors.RingError as error:
        raise as_ipcbus_error(error) from error
    except OSError as error:
        refused = segment.refusal(error, what) if type(error) is OSError or error.errno is not None else None
        if refused is None:
            raise
        raise as_ipcbus_error(refused) from error


def check_topic(topic: Any) -> None:  # noqa: ANN401 - whatever the caller gave
    """Checks the name of a topic.

    Raises:
        ConfigError: it is not a text, is empty, is too long, or has zero bytes.
    """
    try:
        size = len(topic.encode()) if isinstance(topic, str) else 0
    except UnicodeEncodeError:  # a half of a surrogate pair
        size = 0
    if not 0 < size <= TOPIC_NAME_MAX or "\0" in topic:
        raise ConfigError(
            f"topic {topic!r} is not a valid name: give a str of 1 to {TOPIC_NAME_MAX} bytes without zero bytes"
        )


def check_count(name: str, count: Any) -> None:  # noqa: ANN401 - whatever the caller gave
    """Checks a number of things, by the name of its parameter.

    Raises:
        TypeError, ValueError: the number is not whole, or is negative.
    """
    try:
        found = operator.index(count)
    except TypeError:
        found = None
    if found is None or isinstance(count, bool):
        raise TypeError(f"{name} = {count!r} is not a whole number; give 0 or more")
    if found < 0:
        raise ValueError(f"{name} = {count!r} is negative; give 0 or more")


def checked_index(name: str, number: Any) -> int:  # noqa: ANN401 - whatever the caller gave
    """Returns a whole number, by the name of its parameter.

    Raises:
        TypeError: the number is not whole.
    """
    try:
        if not isinstance(number, bool):
            return operator.index(number)
    except TypeError:
        pass
    raise TypeError(f"{name} = {number!r} is not a whole number; give the number of a message")


def not_a_value(handle: object, made_by: str) -> TypeError:
    """Returns the error for pickling or copying a handle.

    Args:
        handle: the handle.
        made_by: the call that makes another handle.
    """
    return TypeError(
        f"{handle!r} cannot be pickled or copied: it belongs to this process and context; share the handle itself "
        f"between threads, and make one in the other process with {made_by}"
    )


def check_callbacks(**given: Any) -> None:  # noqa: ANN401 - whatever the caller gave
    """Checks that callbacks can be called and are not async functions; None stands for a callback that is left out.

    Raises:
        ConfigError: the text names the parameter.
    """
    for name, function in given.items():
        if type(function) is FunctionType and not function.__code__.co_flags & ASYNC:
            continue  # most are like this; the full check takes longer than to send a request
        if function is not None and not callable(function):
            raise ConfigError(
                f"{name} = {function!r} cannot be called; give a function of one argument, or leave it out"
            )
        if function is not None and (_is_async(function) or _is_async(function.__call__)):
            cure = (
                "leave it out and use `async for message in receiver`"
                if name in ("on_message", "on_data", "on_view")
                else "hand the work to asyncio with loop.call_soon_threadsafe"
            )
            raise ConfigError(
                f"{name} = {function!r} is an async function, and ipcbus does not await callbacks; give a plain "
                f"function, or {cure}"
            )


def _is_async(function: object) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)
