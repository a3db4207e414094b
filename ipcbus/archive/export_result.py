"""What an export wrote and left out; a module of its own, as the export needs pyarrow."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Exported:
    """A file that was written.

    Attributes:
        path: the file.
        rows: the number of rows in it.
        bytes: its size.
    """

    path: str
    rows: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Missing:
    """Rows that the archive once had and an export lacks.

    Attributes:
        log: key of the log.
        first: first offset of the rows; null where no row of the log can be read.
        end: offset after the last of them; null in the same case.
        reason: why they are missing.
        damaged: whether the archive is damaged there; false for a hole that the archive knows of.
    """

    log: str
    first: int | None
    end: int | None
    reason: str
    damaged: bool
