"""Where the copy of each unreleased message is: 24 bytes of memory a message."""

class CopyIndex:
    """The unreleased messages of an area, sorted by number, with the places of their records."""

    @property
    def count(self) -> int:
        """The number of unreleased messages."""

    @property
    def bytes(self) -> int:
        """The bytes of their records."""

    @property
    def segment_bytes(self) -> dict[int, int]:
        """Serial of a segment -> bytes of unreleased records in it; a segment without any may be missing."""

    def expect(self, first: int, last: int) -> None:
        """Adds a run of messages whose copies have not been found yet; it follows all messages that are known."""

    def place(self, number: int, serial: int, offset: int, length: int, mode: int) -> bool:
        """Sets where a copy is; returns False, and does nothing, if the message is not among the unreleased ones."""

    def where(self, number: int) -> tuple[int, int, int, int] | None:
        """Returns serial, offset, length of the record, and mode; None for a message that is not unreleased."""

    def release(self, first: int, last: int) -> int:
        """Removes a range of messages; returns how many were unreleased."""

    def add(self, serial: int, length: int) -> int:
        """Adds to `segment_bytes`."""

    def in_segment(self, serial: int) -> list[int]:
        """Returns the numbers of the unreleased messages in a segment, in order."""

    def unreleased(self) -> list[tuple[int, int]]:
        """Returns first and last number of each run of unreleased messages."""

    def modes(self) -> list[tuple[int, int]]:
        """Returns number and mode of each message whose mode differs from that of the message before."""

    def missing(self) -> list[tuple[int, int]]:
        """Returns first and last number of each run of messages without a place."""
