"""How an extra of this package is installed, for error texts: it is on no package index yet."""

from __future__ import annotations


def how_to_install(extra: str) -> str:
    """What to do where a package of an extra is missing.

    Args:
        extra: name of the extra, such as `spark`.
    """
    return f"in a clone of ipcbus: pip install '.[{extra}]'"
