"""Acknowledgements that come in order, the normal case of a guaranteed source: compiled."""

from collections.abc import Callable, Hashable, Iterable

class OrderedAcks:
    """What named receivers acknowledge, as long as each of them acknowledges all messages in order.

    While it is ready, it knows more than the sender's machine; `pause` returns what the machine has missed. A name is
    a number here: its place in the list that `begin` gets.
    """

    @property
    def is_ready(self) -> bool:
        """Whether it takes acknowledgements."""

    @property
    def low(self) -> int:
        """The lowest number whose copy is kept; the number after the last one without a copy."""

    @property
    def count(self) -> int:
        """Messages that were acknowledged here, once for each receiver."""

    def __init__(
        self, note: Callable[[bytes], None], release: Callable[[int, int], None], incarnation: int, *, confirms: bool
    ) -> None:
        """Begins not ready.

        Args:
            note: appends a note to the area.
            release: gives up copies, by first and last number.
            incarnation: of the area.
            confirms: whether `take_confirmed` has something.
        """

    def begin(
        self,
        low: int,
        *,
        any_is_enough: bool,
        names: Iterable[tuple[int, int]],
        receivers: Iterable[tuple[Hashable, int, int]],
    ) -> None:
        """Is ready from now on.

        Args:
            low: the lowest number whose copy is kept; all above it are kept.
            any_is_enough: whether one acknowledgement completes a message; then all floors are `low - 1`.
            names: id in notes, and floor, of each name that is to acknowledge messages to come: it has yet to
                acknowledge all messages above the floor. The lowest floor is `low - 1`.
            receivers: channel, instance, and place among the names, of each connected receiver.
        """

    def pause(self) -> None:
        """Takes no acknowledgements any more, until `begin`."""

    def floors(self) -> list[tuple[int, bool]]:
        """Returns for each name its floor, and whether it has sent an acknowledgement since the last call."""

    def try_take(
        self, peer: Hashable, instance: int, incarnation: int, first: int, last: int, last_number: int
    ) -> bool:
        """Takes one range of acknowledged numbers.

        Args:
            peer: the channel.
            instance: of the receiver.
            incarnation: which the receiver means.
            first: first number.
            last: last number.
            last_number: the highest number that was given.

        Returns:
            False for what the machine has to treat: the range is not the next one, or it is not ready.
        """

    def take_confirmed(self) -> tuple[int, int] | None:
        """Returns a run of messages whose delivery is complete, once; None without one."""
