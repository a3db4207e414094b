"""What the compiled delivery path hands to Python: everything that is not a message in order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from ipcbus.delivery.demux import Controller
    from ipcbus.delivery.received_message import Message
    from ipcbus.delivery.sink import Sink


class Failures(Protocol):
    """Who is told of exceptions in callbacks."""

    def failed(self, sink: Sink, error: BaseException) -> None:
        """A callback raised. What is no Exception may be raised again here: it costs nobody a number."""


class SlowPath(Failures, Protocol):
    """What the demux hands to Python."""

    def begin(self) -> None:
        """The session's first datagram is there."""

    def view_kept(self) -> None:
        """An array made of a message's view outlives the callback; it has memory of its own now."""


class Losses(SlowPath, Protocol):
    """What a delivery controller tells its session."""

    def lost(self, controller: Controller, first: int, last: int, burst: bool) -> None:
        """Messages `first` to `last` of a topic are lost for good."""

    def changed(self) -> None:
        """What a controller counts has changed, although nothing came for it."""


class Way(Protocol):
    """What is known of the way from a source to the demux: which numbers its messages may have."""

    counted: bool
    """Whether each datagram says how many messages are in it."""

    def numbers_end(self, number: int) -> int:
        """Returns the messages of a topic that are sent by now have numbers below this one."""

    def missed(self) -> int:
        """At most so many messages were lost on the way so far; never falls."""

    def came_ns(self) -> int:
        """When the newest datagram came, ns of the monotonic clock; 0 where nothing that is missing comes later."""


class EventStore(Protocol):
    """Keeps the messages of several receivers for another thread: an event queue."""

    def is_full(self) -> bool:
        """Returns whether one more message has no place now."""

    def put(self, sink: Sink, message: Message) -> None:
        """Keeps a message or event for the callback of a sink."""


class Keeper(Failures, Protocol):
    """Whoever owns a shelf: does what needs threads, clocks or a log."""

    def wake(self) -> None:
        """Wakes a thread that sleeps until something comes."""

    def made_room(self) -> None:
        """Has the contexts go on that were told that the shelf is full."""

    def crowded(self, size: int) -> None:
        """There is more on the shelf than the user wants."""

    def late(self, seconds: float) -> None:
        """Something waited longer than the user wants."""
