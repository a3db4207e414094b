"""Files with network keys."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def key_file(path: Path, keys: dict[int, bytes]) -> str:
    """Writes a file with keys, each from one byte, in the place of the one that is there; returns its path."""
    new = path.with_name(f"{path.name}.new")
    new.touch(0o600)
    new.write_text("".join(f"{number} {byte.hex() * 32}\n" for number, byte in keys.items()))
    os.replace(new, path)
    return str(path)
