"""The receiving contexts of this host, of which a sender over the network can find out whether they live."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


class LocalContexts:
    """Those of one session."""

    def __init__(self, lives: Callable[[int], bool | None]) -> None:
        """Begins with none.

        Args:
            lives: returns whether a context lives, by its id; None where its registry is not on this host or is gone.
                Raises OSError where that cannot be found out now, for example without a free file descriptor.
        """
        self._lives = lives
        self._known: set[int] = set()

    def note(self, contexts: Iterable[int]) -> None:
        """Takes note of those of these contexts that are on this host."""
        for context_id in contexts:
            with contextlib.suppress(OSError):  # asked again when another context comes or goes
                if context_id not in self._known and self._lives(context_id) is not None:
                    self._known.add(context_id)

    def among(self, contexts: Iterable[int]) -> set[int]:
        """Returns those of these contexts that are known to be on this host."""
        return self._known.intersection(contexts)

    def is_dead(self, context_id: int) -> bool:
        """Returns whether a context of this host has died; False where that cannot be found out now."""
        if context_id not in self._known:
            return False
        try:
            return not self._lives(context_id)  # the objects of a dead context may have been removed
        except OSError:
            return False
