"""Up to where an earlier recorder of a log recorded each topic of each session."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from ipcbus.archive.archive_layout import TYPE_LOSS_DAMAGE
from ipcbus.archive.log import leave_out
from ipcbus.message import MessageType

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ipcbus.archive.log import Log

ROWS: Final = 1 << 23
"""Number of rows at the end of a log that are read."""
_STEP: Final = 1 << 20
_ENDED: Final = -1


def read_resume_positions(log: Log, rows: int = ROWS) -> dict[tuple[str, str], tuple[int, int]]:
    """Returns up to where each topic of each session is recorded.

    Returns:
        For each topic and source string that had not ended, the number after the last one recorded or reported lost,
        and the receive time of that row.

    Args:
        log: the log of the stream that is to be recorded; no process writes it.
        rows: how many of the last rows to read. Topics without a message among them are not found.

    Raises:
        ArchiveError, StorageError: the log cannot be read.
    """
    first, end = log.bounds()
    first = max(first, end - rows)
    found: dict[int, tuple[int, int]] = {}
    while end > first:
        start = max(first, end - _STEP)
        step: dict[int, tuple[int, int]] = {}
        for chunk in log.read(start, end, verify=False, messages=False, on_damage=leave_out, on_hole=leave_out):
            step.update(_last(chunk.rows))
        found = step | found
        end = start
    topics, sources = log.topics(), log.sessions()
    named = ((topics.get(key >> 32), sources.get(key & 0xFFFFFFFF), *last) for key, last in found.items())
    return {
        (topic, source): (sequence + 1, receive_ns)
        for topic, source, sequence, receive_ns in named
        # A row that another program wrote need not name a topic or session.
        if topic is not None and source is not None and sequence != _ENDED
    }


def _last(rows: NDArray[np.void]) -> dict[int, tuple[int, int]]:
    """Returns number and receive time of the last row of each topic and session; `_ENDED` where the session ended."""
    kinds = rows["type"]
    rows = rows[((rows["numbers"] > 0) | (kinds == MessageType.EOS)) & (kinds != TYPE_LOSS_DAMAGE)][::-1]
    keys, places = np.unique(rows["topic"].astype(np.uint64) << 32 | rows["session"], return_index=True)
    last = rows[places]
    return dict(
        zip(keys.tolist(), zip(last["sequence"].tolist(), last["receive_ns"].tolist(), strict=True), strict=True)
    )
