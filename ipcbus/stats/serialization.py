"""Conversion of snapshots to dictionaries, lists, numbers and texts, and back."""

from __future__ import annotations

import dataclasses
import functools
import math
import types
import typing
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, TypeVar

from ipcbus.stats.histogram import Histogram

_T = TypeVar("_T")

_PLAIN = frozenset({int, str, float, bool, types.NoneType})


def to_plain(value: Any) -> Any:  # noqa: ANN401 - whatever stands in a snapshot
    """Returns a value of a snapshot as JSON types."""
    kind = type(value)
    # First, because most values have one of these types.
    if kind in _PLAIN:
        return value
    if kind is tuple:
        return [to_plain(item) for item in value]
    if kind is Histogram:
        return value.to_dict()
    if kind is MappingProxyType or kind is dict:
        return dict(value)
    return {name: to_plain(getattr(value, name)) for name in kind.__dataclass_fields__}


def from_plain(kind: type[_T], value: object, where: str) -> _T:
    """Returns the value that `to_plain` has converted.

    Args:
        kind: a type that occurs in a snapshot.
        value: the result of `to_plain`, perhaps read from a file.
        where: name of the value, for errors.

    Raises:
        ValueError: the value has another type; the text names the place.
    """
    return typing.cast("_T", _value(kind, value, where))


def _value(kind: Any, value: Any, where: str) -> Any:  # noqa: ANN401 - types of fields, values of JSON
    origin = typing.get_origin(kind)
    if origin is types.UnionType:
        inner = [each for each in typing.get_args(kind) if each is not types.NoneType]
        return None if value is None else _value(inner[0], value, where)
    if origin is tuple:
        item = typing.get_args(kind)[0]
        return tuple(_value(item, each, f"{where}[{i}]") for i, each in enumerate(_of(list, value, where)))
    if origin is Mapping:
        item = typing.get_args(kind)[1]
        found = _of(dict, value, where)
        return MappingProxyType({name: _value(item, each, f"{where}.{name}") for name, each in found.items()})
    if kind is Histogram:
        return Histogram.from_dict(_of(dict, value, where))
    if dataclasses.is_dataclass(kind):
        return _record(kind, _of(dict, value, where), where)
    if kind is float and type(value) is int:
        value = float(_of(int, value, where))
    if kind is str:
        # A lone surrogate cannot be written as text.
        return _of(str, value, where).encode(errors="backslashreplace").decode()
    return _of(kind, value, where)


def _record(kind: Any, value: dict[str, Any], where: str) -> Any:  # noqa: ANN401 - any dataclass
    found = {}
    for name, inner, required in _fields(kind):
        if name in value:
            found[name] = _value(inner, value[name], f"{where}.{name}")
        elif required:
            raise ValueError(
                f"{where} has no {name!r}: another release of ipcbus wrote it, or it is truncated; take it again"
            )
    return kind(**found)


@functools.cache
def _fields(kind: Any) -> tuple[tuple[str, Any, bool], ...]:  # noqa: ANN401 - any dataclass
    """Returns name and type of each field, and whether it is required."""
    hints = typing.get_type_hints(kind)
    return tuple((field.name, hints[field.name], not _has_default(field)) for field in dataclasses.fields(kind))


def _of(kind: type[_T], value: object, where: str) -> _T:
    # In Python a bool is an int.
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise ValueError(f"{where} is {value!r:.60}, not of type {kind.__name__}")
    if isinstance(value, int) and not 0 <= value < 1 << 64:
        raise ValueError(f"{where} is {value}, but a counter is from 0 to 2**64 - 1")
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{where} is {value}, not a finite number")
    return value


def _has_default(field: dataclasses.Field[Any]) -> bool:
    return field.default is not dataclasses.MISSING or field.default_factory is not dataclasses.MISSING
