"""The Python side of the compiled message path: it handles everything that is not a message in order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from ipcbus.delivery.demux import Controller
    from ipcbus.delivery.received_message import Message
    from ipcbus.delivery.recovering_controller import RecoveringController
    from ipcbus.delivery.sink import Sink


class Failures(Protocol):
    """Takes the exceptions that callbacks raise."""

    def failed(self, sink: Sink, error: BaseException) -> None:
        """Handles what a callback raised. It may raise a BaseException again: no message is lost by that."""


class SlowPath(Failures, Protocol):
    """What the demux reports to Python."""

    def begin(self) -> None:
        """Handles the first datagram of the session."""

    def view_kept(self) -> None:
        """Notes that an array made from a message's view outlives the callback; the array has its own memory now."""


class Losses(SlowPath, Protocol):
    """What a delivery controller reports to its session."""

    def lost(self, controller: Controller, first: int, last: int, burst: bool) -> None:
        """Reports messages `first` to `last` of a topic as lost."""

    def release(self, number: int) -> None:
        """Lets a topic begin that was held back, before its first message."""

    def changed(self) -> None:
        """Notes that the counters of a controller have changed although no datagram arrived for it."""


class GateKeeper(Protocol):
    """Does for a gate (`delivery.gmd_gate`) what is not simply the next message."""

    def take(self, message: Message) -> None:
        """Takes a message that does not pass: it comes too early, too late, or while the gate is closed."""

    def take_event(self, message: Message) -> None:
        """Takes an event of the source."""

    def flush(self) -> None:
        """Takes acknowledgements from the gate at once, as too many wait."""

    def flush_from_any_thread(self) -> bool:
        """As `flush`; waits until the thread that drives the context lets this one do it.

        Returns:
            False if the area cannot record them.
        """

    def flush_soon(self) -> None:
        """Notes that acknowledgements or refusals wait in the gate; any thread may call this."""


class Gates(Protocol):
    """The gates of a session's named receivers."""

    def enter(self, controller: RecoveringController, sink: Sink) -> Sink | None:
        """Returns what stands in a controller for a receiver: its gate, or the sink itself; None to leave it out."""

    def leave(self, entry: Sink) -> None:
        """Closes a gate that stands in no controller any more."""


class Responder(Protocol):
    """Takes the responses to the requests of a session to their asking context."""

    def respond(self, topic: str, request: int, data: Any) -> None:  # noqa: ANN401 - any bytes-like
        """Sends a response; `Message.respond` has the errors."""

    def return_address(self, request: int) -> bytes:
        """Returns the way back to the asking context as bytes."""


class Upstream(Protocol):
    """What is known about the transport above the demux: which sequence numbers its messages may have."""

    counts_messages: bool
    """Whether each datagram has a count of its messages."""

    def sequence_limit(self, number: int) -> int:
        """Returns a number that is above those of all messages of the topic that were sent so far."""

    def missed_messages(self) -> int:
        """Returns the most messages that the transport may have lost so far; never decreases."""

    def newest_arrival_ns(self) -> int:
        """Returns when the newest datagram arrived (monotonic ns); 0 where lost datagrams are not sent again."""


class EventStore(Protocol):
    """Keeps the messages of several receivers for another thread, as an event queue does."""

    def is_full(self) -> bool:
        """Returns whether there is no room for another message."""

    def put(self, sink: Sink, message: Message) -> None:
        """Keeps a message or event for the callback of a sink."""


class BufferOwner(Failures, Protocol):
    """The owner of an event buffer: does what needs threads, clocks or a log."""

    def room_available(self) -> None:
        """Lets the contexts that found the buffer full continue."""

    def size_exceeded(self, size: int) -> None:
        """Warns that more events wait than the warning limit allows."""

    def delay_exceeded(self, seconds: float) -> None:
        """Warns that an event waited longer than the warning limit allows."""
