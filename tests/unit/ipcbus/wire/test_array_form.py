from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from ipcbus.wire.array_form import array_form, array_over
from tests.kit.cases import each_of

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

    from ipcbus.wire.array_form import Shape


@each_of(
    ("shape", "dtype", "found"),
    [
        ((2, 3), np.float32, ((2, 3), 24)),
        ([4], "u2", ((4,), 8)),
        (np.int64(5), np.uint8, ((5,), 5)),
        ((), "i8", ((), 8)),
        ((0, 7), "i8", ((0, 7), 0)),
        (3, [("x", "u1"), ("y", "f8")], ((3,), 27)),
    ],
)
def test_shape_items_and_bytes(shape: Shape, dtype: DTypeLike, found: tuple[tuple[int, ...], int]) -> None:
    lengths, items, length = array_form(shape, dtype, "here")
    assert (lengths, length) == found
    assert items == np.dtype(dtype)
    array = array_over(memoryview(bytes(length)), shape, dtype, "t")
    assert (array.shape, array.dtype) == (lengths, items)
    assert not array.flags.writeable


@each_of(
    ("shape", "dtype", "error", "text"),
    [
        (1, object, TypeError, "references to objects"),
        (1, [("x", "u1"), ("y", object)], TypeError, "references to objects"),
        (1, "S0", ValueError, "items of 0 bytes"),
        (1, "no such type", TypeError, "cannot be the type"),
        ((1, -1), "u1", ValueError, "negative length"),
        ((1, 1.5), "u1", TypeError, "the shape"),
        (None, "u1", TypeError, "the shape"),
    ],
)
def test_what_is_no_array_of_bytes_is_refused(
    shape: Shape, dtype: DTypeLike, error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=f"^here: .*{text}"):
        array_form(shape, dtype, "here")


def test_another_length_is_refused_with_both() -> None:
    with pytest.raises(
        ValueError, match=r"'t': an array of shape \(2, 3\) and type uint16 has 12 bytes, and the .* 11;"
    ):
        array_over(memoryview(bytes(11)), (2, 3), np.uint16, "t")
