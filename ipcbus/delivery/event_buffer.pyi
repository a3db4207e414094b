"""Where messages of several receivers wait for the thread that calls back."""

from collections import deque
from typing import Any

from ipcbus.delivery.message_types import MessageType
from ipcbus.delivery.received_message import Message
from ipcbus.delivery.sink import Sink
from ipcbus.delivery.slow_path import Keeper

class EventBuffer:
    """Keeps messages and events in the order of their arrival, and calls back (delivery.slow_path.EventStore).

    Contexts put, other threads call back, all at the same time. What is asked of the keeper is asked outside of any
    critical section, and seldom: nothing is asked for a message while nobody sleeps, waits for room or wants a warning.
    """

    maximum: int
    closed: bool
    total: int
    """Messages and events that came so far; they were dispatched, were dropped, or wait."""
    dropped: int
    dispatched: int

    def __init__(
        self,
        maximum: int,
        drops: bool,
        keeper: Keeper,
        sleepers: deque[Any],
        *,
        times_age: bool = True,
        times_service: bool = True,
        counts: bool = True,
        size_warning: int = 0,
        delay_warning_ns: int = 0,
    ) -> None:
        """An empty shelf.

        Args:
            maximum: most messages on it; with as many, or as many events, events are joined to those that wait.
            drops: whether a full one drops its oldest message instead of having the contexts wait.
            keeper: asked to wake somebody, to tell of room, and told of what a user should know.
            sleepers: not empty while a thread sleeps until something comes.
            times_age: measure how long messages and events wait.
            times_service: measure how long callbacks take.
            counts: count what waits by its kind.
            size_warning: tell the keeper when there are more than this; 0 for never.
            delay_warning_ns: tell the keeper when one waited longer than this; 0 for never.
        """

    def __len__(self) -> int:
        """Messages and events that wait."""

    def is_full(self) -> bool:
        """Returns whether one more message has no place now; who is told so is told of room later."""

    def put(self, sink: Sink, message: Message) -> None:
        """Keeps a message or event for the callback of a sink.

        An event always finds a place, beside the messages. A closed shelf drops everything.
        """

    def call_back(self, limit_ns: int) -> int:
        """Calls back with what waits now, in the order of its arrival.

        What comes meanwhile is left for the next call. What waits for a sink that is silent is dropped.

        Args:
            limit_ns: no callback but the first begins after this time; -1 for no such limit.

        Returns:
            How many callbacks ran.

        Raises:
            BaseException: what a callback raised that is no Exception; the rest stays.
        """

    def close(self) -> None:
        """Drops what waits and everything that comes. Closing twice does nothing."""

    def waiting_by_kind(self) -> dict[MessageType, int]:
        """What waits now, by kind."""

    def age(self) -> tuple[float, float, float] | None:
        """Least, mean and greatest time that something dispatched had waited, in seconds; None before the first."""

    def service(self) -> tuple[float, float, float] | None:
        """Returns the same of how long callbacks took."""
