"""What an export has written and left out; apart from the export, which needs pyarrow."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Exported:
    """A file that was written.

    Attributes:
        path: the file.
        rows: how many rows it has.
        bytes: its length.
    """

    path: str
    rows: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Missing:
    """Rows that are not in an export, though the archive had them once.

    Attributes:
        log: key of the log.
        first: first offset of the rows; null where no row of the log can be read.
        end: offset after the last of them; null likewise.
        reason: why.
        damaged: whether the archive is damaged there; else it is a hole that the archive knows of.
    """

    log: str
    first: int | None
    end: int | None
    reason: str
    damaged: bool
