"""Many datagrams in one system call: recvmmsg and sendmmsg on a socket that the caller owns.

Refusals of the kernel are counted and never raised: for the protocol above they are losses, which it repairs anyway.
Figures: docs/decisions/0011-batched-datagrams.md.
"""

from collections.abc import Iterable

Address = tuple[str, int] | tuple[str, int, int, int]

class Batched:
    """Reads and writes a UDP socket.

    Several threads may send at a time; of two threads that receive at a time, one gets an empty list.

    Attributes:
        sent: datagrams that the kernel accepted.
        sent_bytes: the bytes of these datagrams.
        rcved: datagrams that were read.
        rcved_bytes: the bytes of these datagrams.
        blocked: datagrams that found no room in the send buffer or the device (EAGAIN, ENOBUFS).
        refused: sends and reads that ended with another error: no route, a closed port.
        too_large: datagrams longer than UDP carries (EMSGSIZE).
        truncated: datagrams that came and were longer than the room for one, or of another family; dropped.
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
    def __init__(self, fd: int, v6: bool, size: int) -> None:
        """Allocates the buffers for receiving.

        Args:
            fd: the descriptor of the socket; the caller keeps it open, and calls `close` before closing it.
            v6: whether the socket is an IPv6 socket.
            size: the longest datagram to receive, in bytes.
        """

    def close(self) -> None:
        """Forgets the descriptor; the system refuses later sends and reads."""

    def receive(self, limit: int) -> list[tuple[bytes, Address]]:
        """Returns datagrams that have come, at most `limit`, each with the address of its sender; never waits."""

    def send(self, packet: bytes, address: Address) -> int:
        """Sends one datagram; returns how many went out: 1, or 0.

        Raises:
            ValueError: the address is not numeric, or of another family.
        """

    def send_pairs(self, pairs: Iterable[tuple[bytes, Address]]) -> int:
        """Sends each datagram to its address; returns how many went out.

        Raises:
            ValueError: an address is not numeric, or of another family.
        """

    def send_to_all(self, packet: bytes, addresses: Iterable[Address]) -> int:
        """Sends one datagram to each of the addresses; returns how many went out.

        Raises:
            ValueError: an address is not numeric, or of another family.
        """
