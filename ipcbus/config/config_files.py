"""Config files: TOML, or Ultra Messaging's flat form."""

from __future__ import annotations

import dataclasses
import re
import tomllib
from typing import TYPE_CHECKING, Any

from ipcbus.config import flat
from ipcbus.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

SIZE_MAX = 1 << 20
"""Longest config file in bytes."""

_TOML_KEY = re.compile(r"""[\w."'-]+\s*=""")


@dataclasses.dataclass(frozen=True, slots=True)
class Content:
    """The content of a config file."""

    sections: Mapping[str, Any]
    ignored: tuple[flat.Ignored, ...] = ()


def read(path: Path, origin: str) -> Content:
    """Reads a config file.

    A file is TOML when its name ends with `.toml`, or when its first line that is neither blank nor a comment begins
    with `[` or has `=` after its first word; any other file is flat.

    Args:
        path: the file.
        origin: the name of the file in error texts.

    Raises:
        ConfigError: the file cannot be read, or is neither TOML nor flat.
    """
    try:
        with path.open("rb") as file:
            data = file.read(SIZE_MAX + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise ConfigError(
            f"config file {origin} cannot be read ({reason}): check the path and its permissions; the name of a domain "
            "is given as domain="
        ) from error
    if len(data) > SIZE_MAX:
        raise ConfigError(
            f"config file {origin} is longer than {SIZE_MAX} bytes, so it is not a config file: check the path"
        )
    # An old flat file may have comments in any encoding; options refuse bytes that are not UTF-8.
    text = data.decode("utf-8-sig", errors="surrogateescape")
    first = next(filter(None, map(flat.meaningful, text.splitlines())), "")
    if path.suffix.casefold() == ".toml" or first.startswith("[") or _TOML_KEY.match(first):
        return Content(_toml(data, origin))
    if first.startswith("<"):
        raise ConfigError(f"config file {origin} is XML: write it as TOML or as flat lines 'scope option value'")
    return Content(*flat.read(text, origin))


def _toml(data: bytes, origin: str) -> dict[str, Any]:
    try:
        return tomllib.loads(data.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:  # also bytes that are not UTF-8, and numbers of thousands of digits
        raise ConfigError(
            f"config file {origin} is not TOML ({error}): write sections such as [source] with lines 'option = value'"
        ) from error
