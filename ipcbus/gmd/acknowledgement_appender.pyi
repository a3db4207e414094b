"""The appending path of a receiver's area in files: one write a record."""

from collections.abc import Sequence

class AcknowledgementAppender:
    """The part of a `ReceiverArea` in files that runs for each record; a subclass does the rest."""

    def __init__(self, states: dict[tuple[str, int], tuple[int, Sequence[tuple[int, int]]]], *, each: bool) -> None:
        """Goes on with what is known; with `each`, each record is synced."""

    @property
    def states(self) -> dict[tuple[str, int], tuple[int, Sequence[tuple[int, int]]]]:
        """Sender and incarnation -> floor and ranges."""

    @property
    def refusal(self) -> str | None:
        """Why the area takes nothing any more."""

    @property
    def end(self) -> int:
        """Where the records of the file end."""

    def begin_file(self, descriptor: int, end: int, limit: int) -> None:
        """Appends to this file from now on; a record behind `limit` needs preparation."""

    def refuse(self, reason: str) -> None:
        """From now on all calls raise a GmdError with this text."""

    def record(self, sender: str, incarnation: int, floor: int, ranges: Sequence[tuple[int, int]]) -> None:
        """See `ReceiverArea`."""

    def forget(self, sender: str, incarnation: int) -> None:
        """See `ReceiverArea`."""

    # What a subclass does.

    def make_room(self) -> None:
        """Replaces the file by a shorter one."""

    def write_slowly(self, data: bytes) -> None:
        """Writes at the end of the file, after compiled code could not; a failure leaves nothing there."""

    def sync(self) -> None:
        """See `ReceiverArea`."""

def pack_state(sender: str, incarnation: int, floor: int, ranges: Sequence[tuple[int, int]]) -> bytes:
    """Returns the payload of a record; `acknowledgement_file` describes it."""

FORGOTTEN: int
"""The floor of a stream that is forgotten."""
