from __future__ import annotations

import collections
import contextlib
import enum
import math
import multiprocessing
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from ipcbus import queue_items
from ipcbus.queue_items import (
    ARRAY,
    DICT,
    FLOAT,
    INT,
    LIST,
    PICKLED,
    STRUCT,
    TEXT,
    TUPLE,
    NotAnItemError,
    decode,
    encode,
)
from tests.kit.cases import each_of


class Colour(enum.IntEnum):
    RED = 1


class Text(str):
    __slots__ = ()


def there_and_back(obj: object) -> tuple[int, Any]:
    kind, front, body = encode(obj)
    data: Any = front + (bytes(body) if body is not None else b"")
    return kind, decode(kind, bytearray(data) if kind & 2 else data)


def same(one: object, other: object) -> bool:
    return type(one) is type(other) and (one == other or (one != one and other != other))


@given(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.binary()
    | st.text(st.characters(exclude_categories=()))
)
def test_plain_objects_come_back_without_pickle(obj: object) -> None:
    kind, back = there_and_back(obj)
    assert kind != PICKLED
    assert same(back, obj)


Container = Any
"""A tuple, a list or a dictionary."""

VALUES: st.SearchStrategy[Any] = (
    st.none() | st.booleans() | st.integers(-(1 << 63), (1 << 63) - 1) | st.floats(allow_nan=False) | st.binary()
)
VALUES |= st.text(st.characters(exclude_categories=["Cs"]))


@given(st.lists(VALUES, max_size=9) | st.lists(VALUES, max_size=9).map(tuple) | st.dictionaries(VALUES, VALUES))
def test_flat_containers_come_back_without_pickle(obj: Container) -> None:
    kind, back = there_and_back(obj)
    assert kind in (TUPLE, LIST, DICT) or len(encode(obj)[1]) > 500
    assert same(back, obj)
    values = [*obj, *obj.values()] if isinstance(obj, dict) else obj
    backs = [*back, *back.values()] if isinstance(back, dict) else back
    assert [type(value) for value in values] == [type(value) for value in backs]


@each_of("obj", [(1 << 63,), ["\ud800"], ((),), (b"x" * 1020,), {"a": []}, (Colour.RED,), [Text("x")]])
def test_other_containers_are_pickled(obj: Container) -> None:
    kind, back = there_and_back(obj)
    assert (kind, back, type(next(iter(back)))) == (PICKLED, obj, type(next(iter(obj))))


@given(
    arrays.arrays(
        arrays.scalar_dtypes() | arrays.unicode_string_dtypes() | arrays.byte_string_dtypes(),
        arrays.array_shapes(min_dims=0, min_side=0),
    ),
    st.integers(0, 2),
)
def test_arrays_come_back_without_pickle(array: np.ndarray[Any, Any], how: int) -> None:
    given = (array, array.T, array[..., ::-1] if array.ndim else array)[how]
    kind, back = there_and_back(given)
    assert (kind, back.dtype, back.shape) == (ARRAY, given.dtype, given.shape)
    assert back.tobytes() == given.tobytes()
    assert back.flags.writeable


def test_other_objects_are_pickled() -> None:
    structured = np.zeros(2, "i4,f8")
    objects: tuple[Any, ...] = (
        ((1, "a"),),
        {"a": {}},
        [[1]],
        {1},
        Colour.RED,
        Text("x"),
        math.pi * 1j,
        range(3),
        collections.deque([1]),
    )
    for obj in objects:
        kind, back = there_and_back(obj)
        assert (kind, back) == (PICKLED, obj)
        assert type(back) is type(obj)
    for array in (structured, np.array([{}], object), np.ma.masked_array([1.0])):
        kind, back = there_and_back(array)
        assert (kind, type(back), back.dtype) == (PICKLED, type(array), array.dtype)
    loop: list[Any] = []
    loop += [loop, loop]
    back = there_and_back(loop)[1]
    assert back[0] is back[1] is back


def test_objects_that_multiprocessing_pickles_in_its_own_way() -> None:
    lock = multiprocessing.get_context("spawn").Lock()
    for obj in (lock, [lock], {"lock": lock}):
        with pytest.raises(RuntimeError, match="inheritance"):
            encode(obj)


@given(st.sampled_from(sorted(queue_items._DECODERS)), st.binary())
def test_any_bytes_of_an_unsigned_kind_are_an_object_or_refused(kind: int, data: bytes) -> None:
    if kind in (PICKLED, STRUCT):
        return
    try:
        decode(kind, bytearray(data) if kind & 2 else data)
    except NotAnItemError:
        assert kind in (TEXT, FLOAT, ARRAY, TUPLE, LIST, DICT)


@each_of("text", ["|O", "<i4,<i4", "O", "(1000000,1000000)u1", "<x9", "|V0"])
def test_arrays_of_impossible_types_are_refused(text: str) -> None:
    for shape in ((1,), (1 << 40, 1 << 40), (-1,)):
        front = queue_items._array.pack(0, len(shape), len(text)) + text.encode() + np.array(shape, "<i8").tobytes()
        front += bytes(-len(front) % 64)
        for rest in (b"", bytes(8)):
            with pytest.raises(NotAnItemError):
                decode(ARRAY, bytearray(front + rest))


@given(st.sampled_from([TUPLE, LIST, DICT]), st.lists(st.sampled_from(b"iifftonubb\x00\x01\x02\xff")).map(bytes))
def test_any_letters_are_a_container_or_refused(kind: int, data: bytes) -> None:
    with contextlib.suppress(NotAnItemError):
        assert len(decode(kind, data)) <= len(data)


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(NotAnItemError):
        decode(INT & ~4 | 1 << 20, b"")


def test_structs_of_msgspec() -> None:
    msgspec = pytest.importorskip("msgspec")
    module = sys.modules[__name__]
    point = msgspec.defstruct("Point", [("x", int), ("y", "list[float]")], module=__name__)
    module.Point = point  # type: ignore[attr-defined]
    local = msgspec.defstruct("Local", [("x", int)], module=__name__)
    try:
        obj = point(1, [2.0])
        kind, back = there_and_back(obj)
        assert (kind, type(back), back) == (STRUCT, point, obj)
        assert encode(point(1, [2.0]))[1].startswith(f"{__name__}:Point\n".encode())
        with pytest.raises(Exception, match="Local"):
            encode(local(1))  # pickle cannot find it either
        with pytest.raises(msgspec.ValidationError):
            decode(STRUCT, f"{__name__}:Point\n".encode() + msgspec.msgpack.encode(["x"]))
        with pytest.raises(NotAnItemError):
            decode(STRUCT, b"builtins:eval\nx")
    finally:
        del module.Point  # type: ignore[attr-defined]
