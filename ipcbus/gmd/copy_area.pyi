"""What an area in memory and an area in files have in common."""

from collections.abc import Callable

from ipcbus.gmd.copy_index import CopyIndex
from ipcbus.gmd.sender_area import PlaceRun, SavedMessage

class CopyArea:
    """Numbers, sizes and limits of a `SenderArea`; see there."""

    max_size: int
    checkpoint: Callable[[], list[bytes]]

    @property
    def sender(self) -> str:
        """See `SenderArea`."""

    @property
    def topic(self) -> str:
        """See `SenderArea`."""

    @property
    def incarnation(self) -> int:
        """See `SenderArea`."""

    @property
    def last_number(self) -> int:
        """See `SenderArea`."""

    @property
    def size(self) -> int:
        """See `SenderArea`."""

    @property
    def index(self) -> CopyIndex:
        """Where the copies are."""

    @property
    def refusal(self) -> str | None:
        """Why the area takes nothing any more."""

    @property
    def pending(self) -> int:
        """The number of messages that are not released."""

    def load(self, number: int) -> SavedMessage | None:
        """See `SenderArea`."""

    def entries(self, first: int, last: int, bytes_max: int, place_run: PlaceRun) -> tuple[list[bytes], int, int, int]:
        """See `SenderArea`."""

    def refuse(self, reason: str) -> None:
        """From now on `save` and `note` raise a GmdError with this text."""
