"""The command that installs an extra of this package, for error texts: no package index has the package yet."""

from __future__ import annotations


def how_to_install(extra: str) -> str:
    """Returns how to install an extra, for the error text of a missing package.

    Args:
        extra: the name of the extra, such as `spark`.
    """
    return f"in a clone of ipcbus: pip install '.[{extra}]'"
