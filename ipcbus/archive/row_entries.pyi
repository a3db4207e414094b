"""Recorded messages of one topic of one session: which numbers rows have, and messages as a source sends them again."""

from typing_extensions import Buffer

class RowSearch:
    """Notes which numbers the rows of one topic number of a session have, and tells them from others of the same name.

    A topic that begins again in its session gets another topic number. Rows of type BOS say which topic number the
    rows after them have. Where that row is missing, as after a removal of old segments, the times tell: a topic that
    began again replaces the one before when a number that is not higher was sent 10 ms later, or, after its own BOS,
    just later.
    """

    first: int
    """The first number of the topic's messages; NUMBER_MAX without one."""
    last: int
    """The last number; -1 without one."""
    places: list[tuple[int, int]]
    """Numbers, ascending, and at which offset to begin to read for them."""
    is_certain: bool
    """Whether a row of type BOS says that the messages are of the topic number."""
    is_behind: bool
    """Whether the last rows are of another topic number, so that those of the wanted one are not recorded yet."""

    def __init__(self, topic: int, session: int, number: int) -> None:
        """Makes a search.

        Args:
            topic: the number of the topic in the log.
            session: the number of the session in the log.
            number: the number of the topic in its session.
        """

    def note(self, rows: Buffer, offset: int) -> None:
        """Notes the numbers of consecutive rows; `offset` is that of the first."""

    def leave_out_others(self, rows: bytearray, offset: int) -> None:
        """Takes the topic from the rows of other topic numbers.

        Call it when the log is noted, for any of the noted rows, and for later ones in their order.
        """

class RowEntries:
    """Takes messages out of consecutive rows, as the entries of a RETRANSMISSION.

    Positions and lengths are checked before use, whatever the checksum of the rows says.
    """

    contradicts: bool
    """Whether rows contradict each other or the data; these and all later ones are left out."""

    def __init__(self, rows: Buffer, data: Buffer, start: int, topic: int, session: int, number: int) -> None:
        """Begins at the first row.

        Args:
            rows: the rows.
            data: the bytes of their messages.
            start: the position of `data` in the segment.
            topic: the number of the topic in the log.
            session: the number of the session in the log.
            number: the number of the topic in its session.
        """

    def has(self, first: int) -> bool:
        """Returns whether a message that ends at a number, or behind it, is left."""

    def lost_below(self, below: int) -> int:
        """Returns the number after the topic's last recorded loss; the recorder brings no number below it any more.

        Args:
            below: what this method has returned for the rows before these; it stays without a loss.
        """

    def ends_without_message(self) -> bool | None:
        """Returns whether the last row of the topic is its beginning or its end; None without a row of the topic."""

    def begin(self, first: int) -> int | None:
        """Goes to the next message that does not begin below a number; returns its first number, or None at the end."""

    def take(self, last: int, messages: int, size: int) -> tuple[int, int, bytes]:
        """Takes the message that `begin` has found, and those that follow it without a missing number.

        Args:
            last: no message that ends behind this number is taken.
            messages: the most messages.
            size: the most bytes of entries; a longer message is taken alone.

        Returns:
            The last number, how many messages there are, and their entries, whose send times are ns since the epoch.
            Without a message: -1, 0 and no bytes.
        """
