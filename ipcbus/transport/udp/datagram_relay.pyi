"""The usual case of datagrams, in both directions, with one copy each.

A datagram that comes as the next one of its session goes into its receiver's ring; one that waits in the ring of its
source, and for which clients have room, goes into the window and to the socket.
"""

from collections.abc import Callable
from threading import RLock

from ipcbus.reliability.retransmit_window import RetransmitWindow
from ipcbus.transport.udp.mmsg import Address, Batched
from ringbuf.answer_wait import AnswerWait
from ringbuf.ring import RingReader, RingWriter

TARGETS_MAX: int
"""Most addresses to which `RecordSender` sends."""

CAME: int
"""Result of a fetch: datagrams have come, and nothing else is to do."""
NOTHING_CAME: int
"""Nothing has come, and nothing is to do."""
HAS_MORE: int
"""The state machine has more to do; datagrams may have come, too."""
LEFT: int
"""Nothing was fetched, as another thread is about to fetch."""

def is_next(packet: bytes, session_id: int, number: int, trail_max: int) -> bool:
    """Returns whether a packet is the next datagram, with nothing that a receiver has to judge.

    Args:
        packet: the packet.
        session_id: the id of the session.
        number: the number of the datagram that is expected.
        trail_max: the highest number that the source may give as the oldest one it holds.
    """

def relay(arrivals: Batched, writer: RingWriter, session_id: int, number: int, trail_max: int) -> tuple[int, int, int]:
    """Moves datagrams from the buffer of a socket to a ring, as long as each is the next one, of the first's sender.

    Args:
        arrivals: the datagrams that `Batched.fetch` has read.
        writer: the writer of the ring.
        session_id: as in `is_next`.
        number: the number of the first one.
        trail_max: as in `is_next`.

    Returns:
        How many datagrams were moved, their bytes without headers, and the length of the longest packet. It stops
        where the ring is full, too.
    """

class DatagramFetcher:
    """Reads a socket for one session, and moves its datagrams to the ring without the state machine, until `settle`."""

    def __init__(self, arrivals: Batched, address: Address, session_id: int) -> None:
        """Begins without a ring: `fetch` does nothing.

        Args:
            arrivals: the socket's buffer.
            address: the address of the source.
            session_id: the id of the session.

        Raises:
            ValueError: the address is not numeric.
        """

    def direct(self, writer: RingWriter, number: int, trail_max: int, size_max: int, room_min: int) -> None:
        """Lets `fetch` move datagrams, until `settle`.

        Args:
            writer: the writer of the ring.
            number: the number of the first one.
            trail_max: as in `is_next`.
            size_max: the bytes, with what flow control charges for a datagram, after which no more are moved.
            room_min: the room in the ring below which none are moved.
        """

    def acknowledge_by(
        self, ack: bytes, socket: Batched, reader: RingReader, room: int, longest: int, share: int, step: int
    ) -> None:
        """Lets `fetch` send ACKs as well, after `direct`; otherwise it moves nothing more when one is due.

        Args:
            ack: an ACK without topics; `fetch` fills in the numbers and the room.
            socket: sends it.
            reader: the reader of the ring.
            room: the bytes that can still come by the last ACK.
            longest: the length of the longest packet until now.
            share: the largest room to tell.
            step: the bytes by which the room grows from one ACK to the next.

        Raises:
            ValueError: the ACK is too short or too long.
        """

    def fetch(self) -> int:
        """Moves what has come; returns CAME, NOTHING_CAME or HAS_MORE.

        Call it again once the ring was read, as an ACK may wait for the room.
        """

    def settle(self) -> tuple[int, int, int, tuple[int, int, int] | None]:
        """Ends that `fetch` moves datagrams and sends ACKs.

        Returns:
            What was moved, as `relay` does; then, if ACKs were sent, how many, the bytes that can still come by the
            last one, and the bytes that have come since, each datagram with its header and what flow control charges.
        """

    @property
    def has_packet(self) -> bool:
        """Whether a packet that was read waits to be taken."""

class RecordSender:
    """Moves records from the ring of a session to the window and to the socket, as long as clients have room.

    While it is `ready`, it does so without the state machine, whose part `settle` brings up to date.
    """

    ready: bool
    """Whether a call sends by itself: nothing has changed since `aim`, and nothing waits."""
    sent_ns: int
    """When it sent last, in ns of the monotonic clock; 0 before."""

    def __init__(self, reader: RingReader, window: RetransmitWindow, session_id: int) -> None:
        """Begins without addresses.

        Args:
            reader: the reader of the ring.
            window: the window; what is added has the prefix DATA_BODY.
            session_id: the id of the session.
        """

    def allow(
        self,
        mask: int,
        lock: RLock,
        published: Callable[[int], object],
        keep: Callable[[list[tuple[bytes, Address]]], object],
        on_room: Callable[[], object],
        answers: AnswerWait | None = None,
    ) -> None:
        """Sets what calls need.

        Args:
            mask: the slots of a call that this object serves alone.
            lock: what all that changes the session holds.
            published: called with the mask where this object does not send, or has not sent all.
            keep: takes the packets that found no room in the socket, each with its address.
            on_room: called when the ring's writer waits for an event.
            answers: learns of each call that this object serves alone.
        """

    def aim(self, socket: Batched, addresses: tuple[Address, ...], limit: int) -> None:
        """Sets where datagrams go.

        Args:
            socket: the socket to send from.
            addresses: where each datagram goes: 1 to TARGETS_MAX addresses; a tuple that is given again is not read.
            limit: the position of the window up to which may be sent.

        Raises:
            ValueError: an address is not numeric, or there are too many.
        """

    def send(self) -> tuple[bool, bool, list[tuple[bytes, Address]]]:
        """Sends what waits.

        Returns:
            Whether the ring's writer waits for an event, whether nothing more waits, and the packets that found no room
            in the socket, each with its address.
        """

    def __call__(self, mask: int) -> None:
        """Sends what was published for readers in these slots; any thread may call this."""

    def settle(self) -> tuple[int, int, int]:
        """Ends that calls send by themselves; returns how many datagrams were sent, their bytes, and when last."""

    @property
    def acks_due(self) -> bool:
        """Whether three quarters of the room of `aim` are used; then calls leave their records to `published`."""

    @property
    def has_ample_room(self) -> bool:
        """Whether there is room for 512 KiB and more, and calls stop in time to look for ACKs."""

    @property
    def position(self) -> int:
        """The position of the window."""

    @property
    def unsettled(self) -> bool:
        """Whether `settle` has anything to do."""
