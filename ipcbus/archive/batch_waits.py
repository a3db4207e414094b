"""How long messages waited in a batch, as rows of an archive say it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ipcbus.archive.archive_layout import BATCH_WAIT, BATCH_WAIT_NS
from ipcbus.message import MessageType

if TYPE_CHECKING:
    from numpy.typing import NDArray

UNKNOWN: Final = -1
"""Stands for the wait of a row of which it is not known."""

_MESSAGES: Final = np.isin(np.arange(256), [MessageType.DATA, MessageType.REQUEST, MessageType.RESPONSE])


def numbers(rows: NDArray[np.void]) -> NDArray[np.int64]:
    """Returns how many sequence numbers rows span, for each."""
    found = np.ascontiguousarray(rows["numbers"], np.int64)
    return np.where(_tells(rows), 1, found)


def batch_waits(rows: NDArray[np.void]) -> NDArray[np.int64]:
    """Returns how long each row's message waited in its datagram for the publication, in ns, or UNKNOWN."""
    found = np.ascontiguousarray(rows["numbers"], np.int64) & (BATCH_WAIT - 1)
    return np.where(_tells(rows), found * BATCH_WAIT_NS, UNKNOWN)


def _tells(rows: NDArray[np.void]) -> Any:  # noqa: ANN401
    return (rows["numbers"] >= BATCH_WAIT) & _MESSAGES[rows["type"]]
