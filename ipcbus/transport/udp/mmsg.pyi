"""Many datagrams in one system call: recvmmsg and sendmmsg on a socket that somebody else owns.

What the kernel refuses is counted and never raised: the protocol above takes it for loss, which it repairs anyway.
What the decision rests on: docs/decisions/0011-batched-datagrams.md.
"""

from collections.abc import Iterable

Address = tuple[str, int] | tuple[str, int, int, int]

class Batched:
    """Reads and writes a UDP socket.

    Two threads may send at once; of two that receive at once one gets nothing.

    Attributes:
        sent: datagrams that the kernel took.
        sent_bytes: their bytes.
        rcved: datagrams that were read.
        rcved_bytes: their bytes.
        blocked: datagrams that found no room in the send buffer or the device (EAGAIN, ENOBUFS).
        refused: datagrams, or looks for them, that ended with another error: no route, a port that is closed.
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
        """Makes room for what is received.

        Args:
            fd: descriptor of the socket; the caller keeps it open, and calls `close` before he closes it.
            v6: whether it is of the family IPv6.
            size: longest datagram that is taken.
        """

    def close(self) -> None:
        """Lets go of the descriptor; what is sent or asked for afterwards is refused by the system."""

    def receive(self, limit: int) -> list[tuple[bytes, Address]]:
        """What has come, at most `limit` datagrams, each with the address of its sender; never waits."""

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
