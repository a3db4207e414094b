"""The queue of a receiver that is pulled from."""

from collections.abc import Iterable, Iterator

from ipcbus.delivery.received_message import Message

class MessageQueue:
    """Messages and events in their order, as a `collections.deque` keeps them, for compiled code.

    The thread that drives puts, and any thread takes.
    """

    leases: bool
    """Whether the last message was taken by a lease. Then only one message waits here, the others in the ring."""
    leasing: int
    """How many threads and tasks wait for a message to lease."""
    lessee: int
    """The thread that leases now, which takes a message in its place in the ring as it is; 0 without one.

    Every other thread that takes such a message gets one with bytes of its own.
    """

    def __init__(self, limit: int = ..., bytes_limit: int = ...) -> None:
        """Makes an empty queue, which is full with `limit` messages; putting does not look at that.

        It is full too with messages of `bytes_limit` bytes.
        """

    def has_room_again(self) -> bool:
        """Returns whether half of it is free."""

    def has_long(self) -> bool:
        """Returns whether the last message has more than 4 KiB; passes then read fewer than 64 messages."""

    def set_leases(self, leases: bool) -> int:
        """Says whether leases take the messages from now on, so that one is enough to fill the queue."""

    def count_leasing(self, more: int) -> None:
        """Changes how many wait for a message to lease."""

    def __len__(self) -> int:
        """Returns the number of messages and events that wait."""

    def __iter__(self) -> Iterator[Message]:
        """Returns what waits now, oldest first."""

    def __getitem__(self, place: int) -> Message:
        """Returns what waits at a place from the front, or from the end below 0; raises IndexError."""

    def append(self, message: Message) -> None:
        """Puts a message behind all others."""

    def extend(self, messages: Iterable[Message]) -> None:
        """Puts messages behind all others."""

    def appendleft(self, message: Message) -> None:
        """Puts a message before all others."""

    def popleft(self) -> Message:
        """Takes the oldest message; raises IndexError when the queue is empty."""

    def remove(self, message: Message) -> None:
        """Takes this message out, wherever it waits; raises ValueError when it does not wait."""

    def clear(self) -> None:
        """Drops what waits."""
