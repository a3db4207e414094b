"""Weak sets that several threads use."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from weakref import WeakSet

_T = TypeVar("_T")


def members(found: WeakSet[_T]) -> list[_T]:
    """Returns the members of a weak set, also while other threads add members."""
    while True:
        try:
            return list(found)
        except RuntimeError:  # another thread added a member during the iteration
            continue
