"""Acknowledgements in order, the normal case of a named receiver: compiled."""

from collections.abc import Callable

class AcknowledgedFloor:
    """How far the application has acknowledged a stream, as long as it acknowledges all messages in order.

    While it is ready, it knows more than the `ReceivedStream`, which learns it when it needs it.
    """

    sent: int
    """The source got acknowledgements up to this number."""

    def __init__(self, area_record: Callable[[str, int, int, tuple[()]], None], sender: str, incarnation: int) -> None:
        """Begins not ready.

        Args:
            area_record: see `ReceiverArea.record`.
            sender: name of the sender.
            incarnation: of the sender.
        """

    @property
    def is_ready(self) -> bool:
        """Whether it takes acknowledgements."""

    @property
    def floor(self) -> int:
        """All messages up to this number are acknowledged."""

    @property
    def recorded(self) -> int:
        """The area records those up to this number."""

    def begin(self, floor: int) -> None:
        """Is ready from now on; the area records the floor, and the source has the acknowledgements."""

    def pause(self) -> None:
        """Takes no acknowledgements any more, until `begin`."""

    def take(self, first: int, last: int) -> bool:
        """Takes acknowledged numbers; returns False if they are not the next ones, or if it is not ready."""

    def record(self) -> None:
        """Records the floor in the area.

        Raises:
            GmdError: the area refuses.
        """
