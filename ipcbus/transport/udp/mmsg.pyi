"""Many datagrams in one system call: recvmmsg and sendmmsg on a socket that the caller owns.

Refusals of the kernel are counted and never raised: for the protocol above they are losses, which it repairs anyway.
Figures: docs/decisions/0011-batched-datagrams.md.
"""

from collections.abc import Iterable

Address = tuple[str, int] | tuple[str, int, int, int]

def datagram_length(length: int, said: int) -> int:
    """Returns the length of the datagrams that the kernel has joined to one read (UDP_GRO); the last may be shorter.

    Args:
        length: the bytes of the read.
        said: the length that the kernel says; not positive where it says nothing.

    Returns:
        `length` for one datagram; 0 when it cannot be true.
    """

class Batched:
    """Reads and writes a UDP socket.

    Several threads may send at a time; of two threads that receive at a time, one gets an empty list.

    Attributes:
        sent: datagrams that the kernel accepted.
        sent_bytes: the bytes of these datagrams.
        rcved: datagrams that were read.
        rcved_bytes: the bytes of these datagrams.
        blocked: times that a datagram found no room in the send buffer or the device (EAGAIN, ENOBUFS).
        refused: sends and reads that ended with another error: no route, a closed port.
        too_large: datagrams longer than UDP carries (EMSGSIZE).
        truncated: reads that were longer than the room for one, of another family, or of unknown parts; dropped.
        joins: whether the system takes datagrams of one length as one (UDP_SEGMENT); not any more once it has refused.
        longest: the bytes of the longest of the last reads; a read may bring several datagrams of one sender.
    """

    @property
    def sent(self) -> int: ...
    @property
    def sent_bytes(self) -> int: ...
    @property
    def rcved(self) -> int: ...
    @property
    def rcved_bytes(self) -> int: ...
    @property
    def blocked(self) -> int: ...
    @property
    def refused(self) -> int: ...
    @property
    def too_large(self) -> int: ...
    @property
    def truncated(self) -> int: ...
    @property
    def joins(self) -> bool: ...
    @property
    def longest(self) -> int: ...
    def __init__(self, fd: int, v6: bool, size: int, joins: bool = False) -> None:
        """Allocates the buffers for receiving.

        Args:
            fd: the descriptor of the socket; the caller keeps it open, and calls `close` before closing it.
            v6: whether the socket is an IPv6 socket.
            size: the longest datagram to receive, in bytes; with `joins` the longest read.
            joins: whether the system may join datagrams, where it can: those to one address, and those of one sender.
        """

    def close(self) -> None:
        """Forgets the descriptor; the system refuses later sends and reads."""

    def fetch(self, limit: int) -> int:
        """Reads what has come, at most `limit` reads, unless some of those before are not taken; never waits.

        Returns:
            How many reads are there, to be looked at, and taken by `receive` or by `datagram_relay.relay`.
        """

    def peek(self) -> tuple[Address | None, int] | None:
        """Returns the sender and the session id of the first datagram that is there; None without one."""

    def receive(self, limit: int) -> list[tuple[bytes, Address]]:
        """Returns datagrams that have come, each with the address of its sender; never waits.

        Those that were read before come first, all of them; then reads go on until there are `limit` datagrams.
        """

    def send(self, packet: bytes, address: Address) -> int:
        """Sends one datagram; returns how many went out: 1, or 0.

        Raises:
            ValueError: the address is not numeric, or of another family.
        """

    def send_pairs(self, pairs: Iterable[tuple[bytes, Address]]) -> tuple[tuple[bytes, Address], ...]:
        """Sends each datagram to its address, until one finds no room; returns that one and those after it.

        Raises:
            ValueError: an address is not numeric, or of another family.
        """

    def send_to_all(self, packet: bytes, addresses: Iterable[Address]) -> int:
        """Sends one datagram to each of the addresses, until it finds no room; returns how many went out.

        Raises:
            ValueError: an address is not numeric, or of another family.
        """
