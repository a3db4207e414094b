"""The errors of sends."""

from __future__ import annotations

import operator
import reprlib
from typing import Any

from ipcbus.errors import ClosedError, MessageTooLarge, ReservationError
from ipcbus.wire.wire_layout import MESSAGE_MAX

MESSAGE_MAX_IN_ONE_PIECE = 2**30 - 1024
"""The largest value of option message_max; longer messages go in fragments only. Tests compare it with the option."""


def check_references(messages: Any, call: str) -> None:  # noqa: ANN401 - any buffer
    """Refuses an array of objects: its bytes are addresses, which have no meaning in another process.

    Raises:
        TypeError: it is an array of objects.
    """
    array: Any = messages.obj if isinstance(messages, memoryview) else messages
    if getattr(getattr(array, "dtype", None), "hasobject", False):
        raise TypeError(
            f"{call} sends bytes, and an array of {array.dtype} holds references to objects; give "
            f"{'a list of ' * (call == 'send_many')}bytes-like objects, or an array of numbers, bytes or records"
        )


def checked_length(topic: str, length: Any, message_max: int, *, in_fragments: bool) -> int:  # noqa: ANN401 - whatever the caller gave
    """Returns the length of a reservation as an int.

    Raises:
        TypeError, ValueError: `length` is not a whole number, or negative.
        MessageTooLarge: it is longer than any message.
    """
    try:
        found = operator.index(length)
    except TypeError:
        found = -1
    if found < 0 or isinstance(length, bool):
        kind = ValueError if isinstance(length, int) and not isinstance(length, bool) else TypeError
        raise kind(f"topic {topic!r}: acquire({length!r}): give a whole number of bytes, 0 or more")
    if found > MESSAGE_MAX:
        raise too_large_in_place(topic, found, message_max, in_fragments=in_fragments)
    return found


def too_large(topic: str, length: int, message_max: int, *, in_fragments: bool) -> MessageTooLarge:
    """Returns the error for a message that is too long with its headers.

    Args:
        topic: the topic of the source.
        length: length of the message in bytes.
        message_max: length of the longest message in one datagram.
        in_fragments: whether longer messages are sent in fragments.
    """
    if in_fragments:
        return MessageTooLarge(
            f"topic {topic!r}: a message of {length} bytes exceeds the limit of {MESSAGE_MAX} bytes for a message "
            "in fragments; split it"
        )
    in_one_piece = f"make the source with message_max={length}, " if length <= MESSAGE_MAX_IN_ONE_PIECE else ""
    return MessageTooLarge(
        f"topic {topic!r}: a message of {length} bytes with its headers exceeds message_max = {message_max} of its "
        f"source; {in_one_piece}split the message, or use transport lbtipc, which sends it in fragments"
    )


def too_large_to_send_again(topic: str, length: int, length_max: int) -> MessageTooLarge:
    """Returns the error for a guaranteed message that is too long for the control channel, which sends it again."""
    return MessageTooLarge(
        f"topic {topic!r}: a guaranteed message of {length} bytes with its headers exceeds {length_max}, which is "
        "control_channel_message_maximum minus the headers of a message that is sent again; raise this option in the "
        "contexts of the source and of its receivers, or split the message"
    )


def too_large_for_shares(topic: str, length: int, kept: int, limit: int) -> MessageTooLarge:
    """Returns the error for a message that a source with shares cannot keep until a member has acknowledged it.

    Args:
        topic: the topic of the source.
        length: length of the message in bytes, with its headers.
        kept: bytes that it takes where the source keeps it.
        limit: most bytes that the source keeps.
    """
    return MessageTooLarge(
        f"topic {topic!r}: a message of {length} bytes takes {kept} bytes where its source keeps it for the members of "
        f"a share, and exceeds retransmit_retention_size_limit = {limit}; make the source with "
        f"retransmit_retention_size_limit={kept}, split the message, or send it on a topic without shares"
    )


def too_large_in_place(
    topic: str, length: int, message_max: int, *, in_fragments: bool, front: int = 0
) -> MessageTooLarge:
    """Returns the error for a reservation that is too long.

    Args:
        topic: the topic of the source.
        length: length of the reservation in bytes.
        message_max: length of the longest message in one datagram.
        in_fragments: whether `send` sends longer messages in fragments.
        front: bytes of further headers, in front of the message.
    """
    cure = "use send(), which sends it in fragments" if in_fragments else "use send() on transport lbtipc, in fragments"
    if length > MESSAGE_MAX:
        cure = "split it"
    elif length + front <= MESSAGE_MAX_IN_ONE_PIECE:
        alone = " and without a transport" if in_fragments else ""
        cure = f"make the source with message_max={length + front}{alone}, or {cure}"
    less = f" minus {front} for the headers of the message" if front else ""
    limit = f"{message_max} bytes, the longest datagram of its session"
    if not in_fragments:
        limit = f"message_max = {message_max} of its source"
    return MessageTooLarge(
        f"topic {topic!r}: acquire({length}) exceeds {limit}{less}; a message that is written in place lies in one "
        f"datagram: {cure}"
    )


def not_bytes(topic: str, message: Any, sent: int | None = None) -> TypeError:  # noqa: ANN401 - whatever the caller gave
    """Returns the error for a message that is not bytes-like.

    Args:
        topic: the topic of the source.
        message: the object that the caller gave.
        sent: the number of messages that `send_many` sent before it; None for `send`.
    """
    cure = "encode it first, for example with .encode()" if isinstance(message, str) else "turn it into bytes first"
    what = f"{reprlib.repr(message)} is of type {type(message).__name__}, not bytes-like; {cure}"
    if sent is None:
        return TypeError(f"topic {topic!r}: {what}")
    return TypeError(f"topic {topic!r}: message {sent} of send_many: {what}. Messages sent before it: {sent}")


def not_rows(topic: str, dimensions: int, item_bytes: int) -> TypeError:
    """Returns the error for a buffer of which no rows are messages."""
    return TypeError(
        f"topic {topic!r}: send_many takes a 2-D array of uint8, a 1-D array of items, or an iterable of bytes-like "
        f"objects; this buffer has {dimensions} dimensions of {item_bytes}-byte items. Use send for one message"
    )


def sends_already(topic: str) -> ReservationError:
    """Returns the error for a guaranteed message inside the send of another one, in the same thread."""
    return ReservationError(
        f"topic {topic!r}: this thread is inside an acquire() block or a send of a guaranteed message of this source; "
        "finish it before the next guaranteed message"
    )


def closed(topic: str, *, with_context: bool = False) -> ClosedError:
    """Returns the error for the use of a closed source.

    Args:
        topic: the topic of the source.
        with_context: whether the context is closed too.
    """
    if with_context:
        return ClosedError(f"the context of the source of topic {topic!r} is closed; make a new Context")
    return ClosedError(f"the source of topic {topic!r} is closed; make a new one with ctx.source")


def cancelled(topic: str) -> ClosedError:
    """Returns the error for a reservation that ended after the source or the context was closed."""
    return ClosedError(
        f"topic {topic!r}: the source was closed inside this acquire() block, or by another thread that waited for the "
        "end of the block longer than acquire_close_timeout; its message was not sent. Leave the block before the "
        "source is closed, or raise the option"
    )
