"""The retransmit window: the datagrams that a source can send again."""

import builtins
from typing import ClassVar

class RetransmitWindow:
    """The latest datagrams of a session: as many as the limits allow, and at least one."""

    OVERHEAD: ClassVar[int]
    """Bytes of memory that a datagram takes beside its own bytes."""

    def __init__(self, size: int, limit: int, prefix: int = 0) -> None:
        """Starts empty.

        Args:
            size: `transmission_window_size`: largest number of bytes of datagrams.
            limit: `transmission_window_limit`: largest number of bytes with `OVERHEAD` for each datagram; 0 means no
                limit.
            prefix: number of bytes before each datagram that are held with it and not counted.
        """

    @property
    def position(self) -> int:
        """Bytes of all datagrams that were added, with CHARGE for each."""

    @property
    def span(self) -> int:
        """The datagrams from a position up to this distance from it are held together."""

    @property
    def lead(self) -> int:
        """The number that the next datagram gets."""

    @property
    def trail(self) -> int:
        """The oldest number that is held; equal to `lead` when the window is empty."""

    @property
    def bytes(self) -> int:
        """Bytes of the datagrams that are held."""

    def __len__(self) -> int:
        """Returns the number of datagrams that are held."""

    def add(self, datagram: builtins.bytes) -> int:
        """Adds a datagram, removes the oldest ones above the limits, and returns the number of the new one."""

    def get(self, number: int) -> builtins.bytes | None:
        """Returns a datagram; None when it is not held."""

    def position_of(self, number: int) -> int:
        """Returns the bytes of all datagrams before this one; before the oldest that is held, for lower numbers."""

    def drop_below(self, number: int) -> None:
        """Removes the datagrams before this number."""

    def clear(self) -> None:
        """Removes all datagrams; the numbers go on."""
