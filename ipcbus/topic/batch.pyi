"""The open datagram of a session: batching in place."""

from collections.abc import Callable, Iterable

from ipcbus.topic.session_policy import SessionPolicy
from ipcbus.topic.topic_source import TopicSource
from ringbuf.ring import RingWriter

class BatchWriter:
    """The open datagram of one session. Its sources share it.

    A message goes straight into the open record; publishing is one word. A record is published when it holds
    `minimum_length` bytes or more, when the next message would not fit into `datagram_max`, when asked to, or when
    the layer above finds it older than the batching interval. (Concepts guide, implicit batching.)
    """

    ring: RingWriter
    datagram_max: int
    gate: int
    held: int
    infos_sent: int
    """Topic sequence number infos put into datagrams."""
    on_timer: bool
    """Whether somebody watches the batching interval; cleared by whoever stops watching."""

    def __init__(
        self,
        ring: RingWriter,
        policy: SessionPolicy,
        published: Callable[[int], object],
        *,
        minimum_length: int,
        datagram_max: int,
        topics_max: int,
        topics_offset: int,
        interval_ns: int = 0,
    ) -> None:
        """Over a ring of this process.

        Args:
            ring: the writing end.
            policy: see `SessionPolicy`.
            published: called after a record was published that readers wait for, with the mask of their slots.
            minimum_length: bytes of a datagram that publish it; 0 publishes each message.
            datagram_max: most bytes of a datagram, message headers included.
            topics_max: lines in the ring's user area; a power of two.
            topics_offset: where the lines begin in the ring object, in bytes.
            interval_ns: an explicit batch that is at least this old is published when it ends; 0 leaves that to
                `flush_older`.
        """

    def flush(self) -> bool:
        """Publishes the open record; says whether there was one. Waits for nothing."""

    def flush_older(self, now_ticks: int, age_ns: int, explicit_ns: int = 0) -> int:
        """Publishes the open record if it is old enough.

        Args:
            now_ticks: the time, by the clock of the ring.
            age_ns: most age of what is in no explicit batch.
            explicit_ns: most age of an explicit batch; 0 is no limit.

        Returns:
            The ns until the next look; -1 without an open record, -2 when an explicit batch was published unfinished.
        """

    def inform(self, sources: Iterable[TopicSource]) -> int:
        """Sends topic sequence number info for these sources, in as few datagrams as hold it.

        Waits for nothing: where there is no room, or an explicit batch or a reservation is open, it is left out.

        Returns:
            How many sources were told of.
        """

    def settle(self, timeout_ns: int) -> None:
        """Waits until no other thread writes in place any more, and publishes what is open.

        Args:
            timeout_ns: after this time the other thread's reservation is cancelled: what the thread writes from then on
                does not reach the ring, and its `acquire` block ends with ClosedError.
        """

    def close(self) -> None:
        """Refuses sends from now on; the open record must have been flushed."""

    @property
    def damaged(self) -> bool:
        """Whether `give_up` was called."""

    def give_up(self) -> None:
        """Refuses sends from now on because the shared memory was cut short."""

    def fork_child(self) -> None:
        """Refuses sends from now on because this process is the child of a fork."""
