"""Writing a message in place, as an array of numpy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ipcbus.wire.array_form import EndingArray

if TYPE_CHECKING:
    from types import TracebackType

    import numpy as np

    from ipcbus.topic.topic_source import Reservation


class ArrayReservation:
    """A place in the ring for one message; a context manager that gives a writable array.

    The end of the block empties the array. What was made from it and may hold its address gets memory of its own from
    the reservation, as everything that is kept of `acquire`.
    """

    def __init__(self, reservation: Reservation, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        """Takes the reservation of the bytes, which has not begun."""
        self._reservation = reservation
        self._shape, self._dtype = shape, dtype
        self._ending: EndingArray | None = None

    def __enter__(self) -> np.ndarray[Any, Any]:
        """Begins the block."""
        place = self._reservation.__enter__()
        try:
            self._ending = EndingArray(place, self._shape, self._dtype)
        except BaseException as error:
            self._reservation.__exit__(type(error), error, error.__traceback__)
            raise
        return self._ending.array

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Ends the block: publishes the message, or cancels it."""
        if self._ending is not None:
            self._ending.end()
            self._ending = None
        self._reservation.__exit__(kind, error, trace)
