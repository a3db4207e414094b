"""The open datagram of a session: batching in place."""

from collections.abc import Callable, Iterable

from ipcbus.topic.send_policy import SendPolicy
from ipcbus.topic.topic_source import TopicSource
from ringbuf.ring import RingWriter

class BatchWriter:
    """The open datagram of one session. Its sources share it.

    A message goes straight into the open record; publishing writes one word. A record is published when it has
    `minimum_length` bytes or more, when the next message would not fit into `datagram_max`, at a flush, or when the
    layer above finds it older than the batching interval. (Concepts guide, implicit batching.)
    """

    ring: RingWriter
    datagram_max: int
    gate: int
    explicit_batches: int
    infos_sent: int
    """Topic sequence number infos that were sent."""
    timer_runs: bool
    """Whether the timer of the batching interval runs."""
    timer_head: int

    def __init__(
        self,
        ring: RingWriter,
        policy: SendPolicy,
        published: Callable[[int], object],
        *,
        minimum_length: int,
        datagram_max: int,
        topics_max: int,
        topics_offset: int,
        interval_ns: int = 0,
        burst_length: int = 0,
    ) -> None:
        """Makes the writer of a ring.

        Args:
            ring: the writing end.
            policy: see `SendPolicy`.
            published: called after a record was published that readers wait for, with the mask of their slots.
            minimum_length: a datagram with this number of bytes is published; 0 publishes each message.
            datagram_max: most bytes of a datagram, message headers included.
            topics_max: lines in the ring's user area; a power of two.
            topics_offset: offset of the lines in the ring object, in bytes.
            interval_ns: an explicit batch that is at least this old is published when it ends; 0 leaves that to
                `flush_older`.
            burst_length: what `minimum_length` is while datagrams follow each other within 200 us; 0 leaves it.
        """

    def flush(self) -> bool:
        """Publishes the open record without waiting, and calls `published` for what a fast burst has kept back.

        Returns:
            Whether there was any of both.
        """

    def watch(self, published: Callable[[int], object]) -> None:
        """Has `published` called for each record from now on, also without readers to wake."""

    def go_back(self, message_max: int, messages: int) -> None:
        """Lets the ring use memory again soon, as `RingWriter.go_back`, while no other thread sends."""

    def watch_burst(self, goes_on: bool) -> int | None:
        """Notes whether the timer looks often, since datagrams of a burst wait to be filled.

        Args:
            goes_on: whether a record was published since its last look.

        Returns:
            The longest time until the next look, in ns; None without a burst.
        """

    def end_timer(self) -> bool:
        """Notes that the timer of the batching interval has ended, unless a record is open; returns whether it has."""

    def flush_older(self, now_ticks: int, age_ns: int, explicit_ns: int = 0) -> int:
        """Publishes the open record if it is old enough; calls `published` for what a fast burst has kept back.

        Args:
            now_ticks: the time, by the clock of the ring.
            age_ns: greatest age of messages that are in no explicit batch; in a burst, a record that has the minimum
                length is published after 10 ms.
            explicit_ns: greatest age of an explicit batch; 0 for no limit.

        Returns:
            The ns until the next check; -1 without an open record, -2 when it published an unfinished explicit batch.
        """

    def send_infos(self, sources: Iterable[TopicSource]) -> int:
        """Sends topic sequence number infos of these sources in as few datagrams as possible.

        It does not wait: infos without room are left out, and all are while an explicit batch or a reservation is open.

        Returns:
            The number of infos sent.
        """

    def finish_reservation(self, timeout_ns: int) -> None:
        """Waits until no other thread writes in place any more, and publishes the open record.

        Args:
            timeout_ns: after this time the other thread's reservation is cancelled: its bytes do not reach the ring,
                and its `acquire` block ends with ClosedError. One of the calling thread is cancelled at once.
        """

    def is_shut(self) -> bool:
        """Returns whether sends wait or are refused: a thread writes in place, the session is closed, or the like."""

    def close(self) -> None:
        """Refuses sends from now on; call `flush` before it."""

    @property
    def damaged(self) -> bool:
        """Whether another program cut the shared memory short."""

    def mark_damaged(self) -> None:
        """Refuses sends from now on because the shared memory was cut short."""

    def fork_child(self) -> None:
        """Refuses sends from now on because this process is the child of a fork."""
