"""How long messages waited in their batch, read from the rows of an archive."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ipcbus.archive.archive_layout import BATCH_WAIT, BATCH_WAIT_NS
from ipcbus.message import MessageType

if TYPE_CHECKING:
    from numpy.typing import NDArray

UNKNOWN: Final = -1
"""Stands for a wait that is not known."""

_MESSAGES: Final = np.isin(np.arange(256), [MessageType.DATA, MessageType.REQUEST, MessageType.RESPONSE])


def numbers(rows: NDArray[np.void]) -> NDArray[np.int64]:
    """Returns how many sequence numbers each row spans."""
    found = np.ascontiguousarray(rows["numbers"], np.int64)
    return np.where(_has_wait(rows), 1, found)


def batch_waits(rows: NDArray[np.void]) -> NDArray[np.int64]:
    """Returns the wait of each row's message in its batch, from send to publication, in ns, or UNKNOWN."""
    found = np.ascontiguousarray(rows["numbers"], np.int64) & (BATCH_WAIT - 1)
    return np.where(_has_wait(rows), found * BATCH_WAIT_NS, UNKNOWN)


def _has_wait(rows: NDArray[np.void]) -> Any:  # noqa: ANN401
    return (rows["numbers"] >= BATCH_WAIT) & _MESSAGES[rows["type"]]
