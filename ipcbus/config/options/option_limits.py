"""Limits that keep a mistyped value from leaving the machine words that will hold it, and the row of a time."""

from __future__ import annotations

from typing import Final

from ipcbus.config.option_values import Option

KIB: Final = 1024
MIB: Final = 1024 * KIB
MAX_COUNT: Final = 2**31 - 1
MAX_MS: Final = 2**31 - 1
MAX_SECONDS: Final = MAX_MS // 1000
MAX_WINDOW: Final = 2**40
MAX_ID: Final = 2**16 - 1
MAX_NAME: Final = 31
"""Bytes of a name that others are shown."""


def interval(default: int, meaning: str, *, minimum: int = 1, special_zero: bool = False) -> Option[int]:
    """Returns a row of a time in milliseconds."""
    return Option(
        default=default, unit="ms", minimum=minimum, maximum=MAX_MS, special_zero=special_zero, meaning=meaning
    )


def queue_bytes(meaning: str) -> Option[int]:
    """Returns a row of the bytes of messages with which a queue is full."""
    return Option(default=1024 * MIB, unit="bytes", minimum=1, maximum=MAX_WINDOW, meaning=meaning)
