"""The bytes of a message as an array of numpy, which is loaded when the first array is made: the command needs none."""

from __future__ import annotations

import math
import operator
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import TypeAlias

    import numpy as np
    from numpy.typing import DTypeLike

    Shape: TypeAlias = int | Sequence[int]


def array_form(shape: Shape, dtype: DTypeLike, where: str) -> tuple[tuple[int, ...], np.dtype[Any], int]:
    """Returns the shape, the type of the items, and the length in bytes of an array.

    Args:
        shape: a whole number, or a sequence of them.
        dtype: whatever `numpy.dtype` takes; not with references to objects.
        where: the begin of error texts.

    Raises:
        TypeError, ValueError: there is no such array, or its bytes mean nothing in another process.
    """
    import numpy as np

    try:
        form = np.dtype(dtype)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{where}: {dtype!r} cannot be the type of items: {error}") from None
    if form.hasobject:
        raise TypeError(
            f"{where}: an array of {form} holds references to objects, which mean nothing in another process; use "
            "items of numbers, bytes or records of them"
        )
    if form.itemsize == 0:
        raise ValueError(f"{where}: an array of {form} has items of 0 bytes; give items of 1 byte or more")
    try:
        lengths = (operator.index(shape),) if hasattr(shape, "__index__") else tuple(map(operator.index, shape))
    except TypeError:
        raise TypeError(f"{where}: the shape {shape!r} is neither a whole number nor a sequence of them") from None
    if min(lengths, default=0) < 0:
        raise ValueError(f"{where}: the shape {shape!r} has a negative length; give each length of the array")
    return lengths, form, math.prod(lengths) * form.itemsize


def array_over(buffer: memoryview, shape: Shape, dtype: DTypeLike, topic: str) -> np.ndarray[Any, Any]:
    """Returns an array of the bytes of a message, without a copy.

    Raises:
        TypeError, ValueError: there is no such array, or it has another length than the message.
    """
    import numpy as np

    lengths, form = _message_form(buffer, shape, dtype, topic)
    return np.frombuffer(buffer, form).reshape(lengths)


def _message_form(
    buffer: memoryview, shape: Shape, dtype: DTypeLike, topic: str
) -> tuple[tuple[int, ...], np.dtype[Any]]:
    lengths, form, need = array_form(shape, dtype, f"topic {topic!r}: array()")
    if need != buffer.nbytes:
        raise ValueError(
            f"topic {topic!r}: an array of shape {lengths} and type {form} has {need} bytes, and the message has "
            f"{buffer.nbytes}; give the shape and type that the source sends"
        )
    return lengths, form


class EndingArray:
    """An array that is emptied when its memory ends.

    A memoryview can be released, an array cannot. So the array itself is emptied. Arrays and other objects that were
    made from it may hold its address. Then it is left as it is, and its memory has to outlive them.

    Attributes:
        array: the array.
    """

    def __init__(self, place: memoryview, lengths: tuple[int, ...], form: np.dtype[Any]) -> None:
        """Makes an array of the bytes of `place`."""
        import numpy as np

        # Arrays that are made from the array are based on the flat one, and keep that alive, not the array.
        self.array: np.ndarray[Any, Any] = np.frombuffer(place, form).reshape(lengths)
        self._references = sys.getrefcount(self.array)

    def end(self) -> None:
        """Empties the array if nothing else can have the address of its items, and makes it read-only."""
        import numpy as np

        # The application has at most its variable; a second reference may be an object that holds the address.
        if sys.getrefcount(self.array) - self._references <= 1:
            dead: Any = (1, (0,), np.dtype(np.uint8), False, b"")
            self.array.__setstate__(dead)
        self.array.flags.writeable = False
        del self.array


class LentArray(EndingArray):
    """The payload of a message as an array that is emptied with its lease."""

    def __init__(self, place: memoryview, shape: Shape, dtype: DTypeLike, topic: str) -> None:
        """Makes the array; raises as `array_over`."""
        super().__init__(place, *_message_form(place, shape, dtype, topic))
