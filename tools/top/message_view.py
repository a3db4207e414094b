"""The messages of a topic, live: they are read from the ring without a receiver."""

from __future__ import annotations

import contextlib
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from rich.text import Text

from ipcbus.stats.peek import SHOWN_MAX, Peek, Peeked
from ipcbus.wire.properties import block_length, unpack
from ipcbus_tools.common import clock_time, number, size, visible
from ipcbus_tools.top import table
from ringbuf.ring_errors import RingError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ipcbus_tools.top.view import Topic

KEPT: Final = 500
INTERVAL_S: Final = 0.1
"""Seconds between two readings of the ring."""


@dataclass(frozen=True, slots=True)
class Messages:
    """The messages of a topic that were read.

    Attributes:
        topic: the topic.
        latest: the latest messages, the last one last.
        seen: number of messages that were read.
        part: whether messages come too fast, so that only a part of them was read.
        reason: why messages cannot be read; empty when they can.
    """

    topic: Topic
    latest: tuple[Peeked, ...] = ()
    seen: int = 0
    part: bool = False
    reason: str = ""


class MessageWatcher:
    """Reads the messages of one topic until it is closed."""

    def __init__(self, domain: str, topic: Topic) -> None:
        """Begins with the next published message."""
        self.topic = topic
        self._latest: deque[Peeked] = deque(maxlen=KEPT)
        self._seen, self._part, self._reason = 0, False, ""
        self._peek: Peek | None = None
        with self._errors_as_reason():
            self._peek = Peek(domain, topic.context_id, topic.source, topic.number)

    def poll(self) -> Messages:
        """Reads new messages, and returns those that were read until now."""
        with self._errors_as_reason():
            found = self._peek.look() if self._peek is not None else []
            self._part = self._part or (self._peek is not None and self._peek.skipped)
            self._seen += len(found)
            self._latest.extend(found)
        return Messages(self.topic, tuple(self._latest), self._seen, self._part, self._reason)

    def close(self) -> None:
        """Unmaps the ring."""
        if self._peek is not None:
            self._peek.close()
            self._peek = None

    @contextlib.contextmanager
    def _errors_as_reason(self) -> Iterator[None]:
        try:
            yield
        except (RingError, OSError) as error:
            self._reason = str(error)


def lines(found: Messages, width: int, room: int, *, unicode: bool) -> list[Text]:
    """Returns a page of the latest messages.

    Args:
        found: the messages.
        width: columns of the screen.
        room: lines of the page.
        unicode: whether the terminal shows more than ASCII.
    """
    topic = found.topic
    head = [
        Text.assemble(("  messages of ", "dim"), (table.clean(topic.name), "bold"), f"  {table.clean(topic.source)}"),
        Text("  Read from the ring without a receiver; the source does not notice.", "dim"),
        Text(f"  {number(found.seen)} seen" + (", only a part of all messages" if found.part else "")),
        Text(f"  {'number':>12}  {'sent':<15}  {'bytes':>9}  data".ljust(width), table.HEAD),
    ]
    if found.reason:
        return [*head[:1], Text(f"  {table.clean(found.reason)}", "yellow")]
    shown = found.latest[-max(0, room - len(head)) :] if room > len(head) else ()
    if not shown:
        head.append(Text("  no message yet", "dim"))
    return head[:room] + [Text(table.cut(_line(each), width, unicode=unicode)) for each in shown]


def _line(each: Peeked) -> str:
    data, headers = each.data, ""
    if each.headers and not each.fragment and (length := block_length(data)):
        headers = "[" + ", ".join(f"{key}={visible(value)}" for key, value in unpack(data[:length])) + "]  "
        data = data[length:]
    more = f" ... {size(each.length - SHOWN_MAX)} more" if each.length > SHOWN_MAX else ""
    part = "(fragment) " if each.fragment else "(request) " if each.request else ""
    sent = clock_time(each.send_time_ns) if each.send_time_ns else "-"
    head = f"  {each.sequence_number:>12}  {sent:<15}  {each.length:>9}  "
    return f"{head}{part}{headers}{visible(data)}{more}"
