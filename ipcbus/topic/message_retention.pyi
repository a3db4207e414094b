"""What a source retains of one topic, for receivers that come later or have lost messages."""

class Retention:
    """The messages of one topic that a source retains, in private memory.

    Entries lie one after the other as `wire_layout` shows them, in blocks that are taken when they are needed.
    The numbers follow one another without holes. The oldest message leaves first, with all its fragments:

    - when the next message would not fit into `size_limit`;
    - with a threshold: when `size_threshold` bytes stay without it, and it is older than `age_threshold_ns`.

    Without thresholds only the limit counts, so that a source retains what it can. (Ultra Messaging retains one message
    then.) A message longer than the limit is not retained, nor are those before it.

    `info` and `read` see only published messages: those with a number below `published`.

    Attributes:
        age_threshold_ns: as given.
        published: the number after the last one that its source has published. Without a source it can be set, and all
            messages are published before.
    """

    age_threshold_ns: int
    published: int

    def __init__(self, size_threshold: int, age_threshold_ns: int, size_limit: int) -> None:
        """Makes an empty retention.

        Args:
            size_threshold: bytes that it retains at least; 0 without this threshold.
            age_threshold_ns: how long it retains a message at least; 0 without this threshold.
            size_limit: bytes that it retains at most. All count the headers of entries, 24 bytes each, and padding, but
                not the 4 bytes of the index for each entry.
        """

    @property
    def low(self) -> int:
        """The lowest number that it holds; equal to `next` if it holds none."""

    @property
    def next(self) -> int:
        """The number that the next message will have."""

    @property
    def retained_bytes(self) -> int:
        """Bytes of all entries."""

    @property
    def memory(self) -> int:
        """Bytes of memory that it has taken."""

    def put(self, send_ticks: int, message: bytes) -> None:
        """Retains a message, and drops those that leave because of it.

        `TopicSource` retains each message in compiled code instead. A message that does not follow the one before
        makes a hole, so all before it leave.

        Args:
            send_ticks: when it was sent.
            message: header and payload as in the ring, without stamp.

        Raises:
            ValueError: the header says another length, or a fragment has no fragment header.
        """

    def expire(self, now_ticks: int) -> None:
        """Drops the messages that the thresholds let go now."""

    def drop_below(self, number: int) -> None:
        """Drops the messages before a number."""

    def clear(self) -> None:
        """Drops all messages."""

    def info(self, history: int | None = None, before: int | None = None) -> tuple[int, int]:
        """Returns the lowest published number that it holds, and the number after the highest one.

        With `history`, the first one is that of the last `history` messages that it holds, fragmented or not; with
        `before` too, of those that begin below this number.
        """

    def count_from(self, first: int) -> int:
        """Returns how many messages that it holds begin at this number or above, also those not published."""

    def read(self, first: int, last: int, bytes_max: int, *, epoch: bool = False) -> tuple[int, int, bytes]:
        """Returns published messages of a range.

        Args:
            first: the first number of the range.
            last: the last number.
            bytes_max: most bytes of entries; a message that is longer comes alone.
            epoch: give send times in ns since the epoch instead of ticks, for another host.

        Returns:
            The number of the first entry, the number after the last entry, and the entries; twice `first` and no bytes
            when nothing of the range is retained.
        """
