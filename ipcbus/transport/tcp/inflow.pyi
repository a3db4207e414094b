"""What comes over one connection: bytes in large pieces, packets out, and datagrams straight into a ring."""

from collections.abc import Callable

from ringbuf.ring import RingWriter

READ_BYTES: int
"""Most bytes that one call of `Inflow.read` reads."""

class Inflow:
    """The bytes of a connection that have come and were not taken yet."""

    broken: bool
    """Whether a length has come that no packet has: nothing that follows can be read."""

    def __init__(self, frame_max: int) -> None:
        """Starts empty; `frame_max` is the longest packet that may come."""

    def read(self, fd: int) -> int:
        """Reads what waits in a socket; returns how many bytes, 0 at its end, and -1 when nothing waits."""

    def fill(self, read: Callable[[int, memoryview], int]) -> int:
        """Calls `read` with the room that is left and a view of it; returns how many bytes it says it has written."""

    @property
    def is_tls(self) -> bool:
        """Whether what waits looks like TLS, after a length that no packet has."""

    def packet(self) -> bytes | None:
        """Returns the next packet, once; None when it has not come wholly."""

    def relay(self, writer: RingWriter, session_id: int, number: int) -> tuple[int, int]:
        """Moves datagrams to a ring, as long as the next packet is the DATA packet with the next number, without flags.

        Args:
            writer: the writer of the ring.
            session_id: the session of the packets.
            number: the number of the next datagram.

        Returns:
            The number of datagrams, and their bytes. It stops before the first other packet, and when the ring is full.

        Raises:
            ValueError: a datagram exceeds the ring's record maximum.
        """

    def direct(self, fd: int, writer: RingWriter, session_id: int, number: int, room_min: int) -> None:
        """Lets `fetch` read by itself, until `settle` or `stop`.

        Args:
            fd: the descriptor of the connection; before it is closed, `stop` has to be called.
            writer: the writer of the ring.
            session_id: as in `relay`.
            number: as in `relay`.
            room_min: nothing is read while the ring has less room, in bytes.
        """

    def fetch(self) -> int:
        """Reads once, after `direct`, and moves datagrams to the ring as `relay`; returns as `DatagramFetcher.fetch`.

        A part of a packet waits for the next call, what else has come for `packet`.

        Raises:
            ValueError: as `relay`.
        """

    def stop(self) -> None:
        """Ends what `direct` has begun."""

    def settle(self) -> tuple[int, int, int]:
        """Does as `stop`; returns, once, how many datagrams `fetch` has moved, their bytes, and all bytes read."""

    @property
    def has_packet(self) -> bool:
        """Whether a packet has come wholly, or a length that no packet has."""
