"""Bytes of the items of a queue, and objects of such bytes.

The only module that pickles (docs/decisions/0041-queue-pickle.md): what it unpickles was signed with a key that only
the processes of one queue have, and the ring hands it out only if the signature is right.
"""

from __future__ import annotations

import importlib
import pickle
import struct
import sys
from functools import cache
from multiprocessing.reduction import ForkingPickler
from typing import TYPE_CHECKING, Any

import numpy as np

from ipcbus.flat_values import decode_flat, encode_flat
from ringbuf.item_layout import ITEM_SIGNED, ITEM_WRITABLE

if TYPE_CHECKING:
    from collections.abc import Callable

Encoded = tuple[int, bytes, Any]
"""Kind, first part and second part of an item."""

# The two lowest bits are flags of the ring.
PICKLED = 1 << 2 | ITEM_SIGNED
STRUCT = 2 << 2 | ITEM_SIGNED
BYTES = 3 << 2
TEXT = 4 << 2
BYTEARRAY = 5 << 2 | ITEM_WRITABLE
INT = 6 << 2
FLOAT = 7 << 2
NONE = 8 << 2
TRUE = 9 << 2
FALSE = 10 << 2
ARRAY = 11 << 2 | ITEM_WRITABLE
TUPLE = 12 << 2
LIST = 13 << 2
DICT = 14 << 2

_float = struct.Struct("<d")
_array = struct.Struct("<BBH")
"""Whether the array is in Fortran's order; number of dimensions; bytes of the text of its dtype."""

_ALIGN = 64
"""The numbers of an array begin at a multiple of this in its item."""

_PLAIN_ARRAYS = "biufcmMSUV"
"""Kinds of dtypes that a text describes in full."""

_PLAIN = frozenset((int, float, str, bytes, bool, type(None), complex, bytearray))
"""Types that no other module can teach `ForkingPickler` to pickle in another way."""


class NotAnItemError(Exception):
    """The bytes are not those of an item that a queue has put."""


def encode(obj: Any) -> Encoded:  # noqa: ANN401 - any object
    """Returns the bytes of an object.

    Raises:
        Exception: what pickle raises for an object that cannot be pickled.
    """
    encoder = _ENCODERS.get(type(obj))
    if encoder is not None:
        return encoder(obj)
    name = _struct_name(type(obj))  # type: ignore[arg-type] # mypy does not see that a class is hashable
    if name is not None:
        return STRUCT, name + _msgspec().msgpack.encode(obj), None
    return _pickled(obj)


def decode(kind: int, data: Any) -> Any:  # noqa: ANN401 - any object
    """Returns the object of the bytes.

    Raises:
        NotAnItemError: an item that was not signed has bytes that no queue has put.
        Exception: what pickle and msgspec raise for a signed item, for example because a class is missing here.
    """
    decoder = _DECODERS.get(kind)
    if decoder is None:
        raise NotAnItemError
    if kind & ITEM_SIGNED:
        return decoder(data)
    try:
        return decoder(data)
    except (ValueError, TypeError, struct.error, OverflowError, SyntaxError) as error:
        raise NotAnItemError from error


def _pickled(obj: object) -> Encoded:
    # What multiprocessing teaches its pickler, such as connections, it does for this one too; it takes 3 us to set up.
    if _is_plain(obj):
        return PICKLED, pickle.dumps(obj, pickle.HIGHEST_PROTOCOL), None
    return PICKLED, bytes(ForkingPickler.dumps(obj, pickle.HIGHEST_PROTOCOL)), None


def _is_plain(obj: object) -> bool:
    """Returns whether an object is a flat container of plain values."""
    kind = type(obj)
    if kind is tuple or kind is list:
        return _PLAIN.issuperset(map(type, obj))  # type: ignore[call-overload]
    return kind is dict and _PLAIN.issuperset(map(type, obj)) and _PLAIN.issuperset(map(type, obj.values()))  # type: ignore[call-overload,attr-defined]


def _flat(kind: int, obj: Any) -> Encoded:  # noqa: ANN401 - a tuple, a list or a dictionary
    front = encode_flat(obj)
    return _pickled(obj) if front is None else (kind, front, None)


def _decode_dict(values: list[Any]) -> dict[Any, Any]:
    return dict(zip(values[::2], values[1::2], strict=True))


def _int_bytes(obj: Any) -> Encoded:  # noqa: ANN401 - an int
    return (
        INT,
        obj.to_bytes(8 if -(1 << 63) <= obj < 1 << 63 else obj.bit_length() // 8 + 1, "little", signed=True),
        None,
    )


def _is_plain_dtype(dtype: np.dtype[Any]) -> bool:
    return dtype.kind in _PLAIN_ARRAYS and not (dtype.names or dtype.subdtype) and dtype.itemsize > 0


def _encode_array(array: Any) -> Encoded:  # noqa: ANN401 - an ndarray
    dtype = array.dtype
    fortran = array.flags.f_contiguous and not array.flags.c_contiguous
    if not _is_plain_dtype(dtype) or dtype.metadata:
        return _pickled(array)
    text = dtype.str.encode()
    front = _array.pack(fortran, array.ndim, len(text)) + text + struct.pack(f"<{array.ndim}q", *array.shape)
    front += bytes(-len(front) % _ALIGN)
    if not array.size:
        return ARRAY, front, None
    flat = (array.T if fortran else np.ascontiguousarray(array)).reshape(-1)
    return ARRAY, front, flat.view(np.uint8)


def _decode_array(data: Any) -> Any:  # noqa: ANN401 - from a bytearray to an ndarray
    fortran, ndim, length = _array.unpack_from(data)
    dtype = np.dtype(bytes(data[_array.size : _array.size + length]).decode())
    if not _is_plain_dtype(dtype):
        raise NotAnItemError
    shape = struct.unpack_from(f"<{ndim}q", data, _array.size + length)
    front = _array.size + length + 8 * ndim
    front += -front % _ALIGN
    if len(data) == front and 0 in shape:
        return np.empty(shape, dtype)
    return np.frombuffer(data, dtype, -1, front).reshape(shape, order="F" if fortran else "C")


def _msgspec() -> Any:  # noqa: ANN401 - the module, which may not be installed
    return importlib.import_module("msgspec")


@cache
def _struct_name(kind: type) -> bytes | None:
    """Returns the name of a class of `msgspec.Struct` as the beginning of an item; None for other classes."""
    if "msgspec" not in sys.modules or not issubclass(kind, _msgspec().Struct):
        return None
    name = f"{kind.__module__}:{kind.__qualname__}"
    try:
        found = _struct_class(name)
    except (ImportError, AttributeError):
        return None
    return name.encode() + b"\n" if found is kind else None


@cache
def _struct_decoder(name: str) -> Callable[[Any], Any]:
    found = _struct_class(name)
    if not (isinstance(found, type) and issubclass(found, _msgspec().Struct)):
        raise NotAnItemError
    return _msgspec().msgpack.Decoder(found).decode  # type: ignore[no-any-return]


def _struct_class(name: str) -> object:
    module, _, path = name.partition(":")
    found: object = importlib.import_module(module)
    for part in path.split("."):
        found = getattr(found, part)
    return found


def _decode_struct(data: Any) -> Any:  # noqa: ANN401 - from bytes to a struct
    name, _, packed = data.partition(b"\n")
    return _struct_decoder(name.decode())(packed)


def _decode_int(data: Any) -> int:  # noqa: ANN401 - bytes
    return int.from_bytes(data, "little", signed=True)


_ENCODERS: dict[type, Callable[[Any], Encoded]] = {
    bytes: lambda obj: (BYTES, obj, None),
    str: lambda obj: (TEXT, obj.encode("utf-8", "surrogatepass"), None),
    int: _int_bytes,
    float: lambda obj: (FLOAT, _float.pack(obj), None),
    type(None): lambda _: (NONE, b"", None),
    bool: lambda obj: (TRUE if obj else FALSE, b"", None),
    bytearray: lambda obj: (BYTEARRAY, b"", obj),
    np.ndarray: _encode_array,
    tuple: lambda obj: _flat(TUPLE, obj),
    list: lambda obj: _flat(LIST, obj),
    dict: lambda obj: _flat(DICT, obj),
}

_DECODERS: dict[int, Callable[[Any], Any]] = {
    PICKLED: pickle.loads,
    STRUCT: _decode_struct,
    BYTES: lambda data: data,
    TEXT: lambda data: data.decode("utf-8", "surrogatepass"),
    BYTEARRAY: lambda data: data,
    INT: _decode_int,
    FLOAT: lambda data: _float.unpack(data)[0],
    NONE: lambda _: None,
    TRUE: lambda _: True,
    FALSE: lambda _: False,
    ARRAY: _decode_array,
    TUPLE: lambda data: tuple(decode_flat(data)),
    LIST: lambda data: decode_flat(data),
    DICT: lambda data: _decode_dict(decode_flat(data)),
}
