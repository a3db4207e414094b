"""What an export has written; apart from the export, which needs pyarrow."""

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
