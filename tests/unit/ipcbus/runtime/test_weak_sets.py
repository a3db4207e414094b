"""Weak sets that several threads use."""

from __future__ import annotations

import sys
import weakref
from typing import TYPE_CHECKING

from ipcbus.runtime.weak_sets import members

if TYPE_CHECKING:
    from collections.abc import Iterator


class Member:
    """Something that a weak set can hold."""


class GrowingSet(weakref.WeakSet[Member]):
    """A weak set to which another thread adds a member in the middle of an iteration."""

    late: tuple[Member, ...] = ()

    def __iter__(self) -> Iterator[Member]:
        for member in super().__iter__():
            for each in self.late:
                self.add(each)
            yield member


def test_a_member_that_is_added_meanwhile_is_no_error() -> None:
    first, second, late = Member(), Member(), Member()
    growing = GrowingSet([first, second])
    growing.late = (late,)
    # Since Python 3.14 an iteration has the members of its beginning.
    assert set(members(growing)) == ({first, second, late} if sys.version_info < (3, 14) else {first, second})
