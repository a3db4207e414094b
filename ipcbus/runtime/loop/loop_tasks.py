"""What the driver of a context does besides reading rings."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from ringbuf.held_locks import HeldLocks


class Lives(NamedTuple):
    """Locks that other processes hold while they live.

    While nothing else is due, a look at them from time to time stands for the timers that look for dead processes.
    """

    locks: HeldLocks
    every_ns: int
    """Time between two looks."""
    until_ns: int
    """When other timers are due."""


class LoopTasks(Protocol):
    """The tasks of the driver besides reading rings."""

    early_ns: int
    """When `run_timers` would do something already, in ns of the monotonic clock: earlier than what is due."""

    def attend(self) -> bool:
        """Handles sessions that ended, broke, or wait for room; returns whether a session still waits."""

    def registry_changed(self) -> None:
        """Notes that the registry of another context changed."""

    def peers_changed(self) -> None:
        """Notes that a receiver joined, left, or made room."""

    def take_event_count(self) -> int:
        """Returns the number of events that receivers got since the last call."""

    def has_waiters(self) -> bool:
        """Returns whether an asyncio task waits for a message."""

    def delivered(self) -> None:
        """Wakes asyncio tasks whose messages have come."""

    def look(self) -> None:
        """Handles the watched words that have changed."""

    def arm(self, *, sleeps: bool) -> bool:
        """Shows other contexts whether this one sleeps; returns whether no watched word has changed."""

    def run_timers(self, now_ns: int) -> int:
        """Runs the tasks that are due, or some until a message comes; returns when the next one is due, in ns."""

    @property
    def tasks_left(self) -> bool:
        """Whether the last `run_timers` has left tasks: the next one runs only these."""

    def lives(self, due_ns: int) -> Lives | None:
        """Returns what stands for the timers at `due_ns` while the context sleeps; None if they have to run then."""

    def first_fetch(self) -> Callable[[], int] | None:
        """Returns what reads the session that was read last, or leaves it; None where there is no such session."""

    def read_first(self) -> bool:
        """Reads the session that was read last, and nothing else; returns whether that was all that has come."""

    def has_packets(self) -> bool:
        """Returns whether a socket has something to read."""

    def read_network(self) -> int:
        """Reads the sockets; returns when the timers of the network are due, in ns of the monotonic clock."""
