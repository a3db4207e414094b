"""The delivery modes of messages, as `send` takes them."""

from __future__ import annotations

import math
from typing import Any

from ipcbus.errors import ConfigError

MODES = {"best_effort": 0, "ordered": 0, "some": 1, "all": 2}
"""The number of each mode; 0 for messages that are not guaranteed (`gmd.delivery_modes` has the others)."""

_LONGEST_S = 2**31


def checked_mode(topic: str, mode: Any, *, guarantees: bool) -> int:  # noqa: ANN401 - whatever the caller gave
    """Returns the number of a mode.

    Args:
        topic: the topic of the source.
        mode: the name that the caller gave.
        guarantees: whether the source has a GMD area.

    Raises:
        ConfigError: there is no such mode, or it needs a GMD area.
    """
    number = MODES.get(mode) if isinstance(mode, str) else None
    if number is None:
        raise ConfigError(f"topic {topic!r}: delivery_mode = {mode!r}: give one of {', '.join(MODES)}")
    if number and not guarantees:
        raise ConfigError(
            f"topic {topic!r}: delivery_mode = {mode!r} needs a source with a gmd_name, under which its GMD area keeps "
            "copies of messages; make it with ctx.source(topic, gmd_name=...)"
        )
    return number


def checked_timeout_ns(topic: str, seconds: Any, *, guaranteed: bool) -> int:  # noqa: ANN401 - whatever the caller gave
    """Returns a delivery timeout in ns.

    Raises:
        ConfigError: the message is not guaranteed.
        TypeError, ValueError: it is not a number of seconds, 0 or more.
    """
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise TypeError(f"topic {topic!r}: delivery_timeout = {seconds!r}: give a number of seconds, or 0 for no limit")
    if math.isnan(seconds) or not 0 <= seconds <= _LONGEST_S:
        raise ValueError(
            f"topic {topic!r}: delivery_timeout = {seconds!r}: give 0 to {_LONGEST_S} seconds; 0 means without limit"
        )
    if not guaranteed:
        raise ConfigError(
            f"topic {topic!r}: delivery_timeout = {seconds!r} is for guaranteed messages; give delivery_mode 'some' or "
            "'all' too, or leave the timeout out"
        )
    return math.ceil(seconds * 1e9)
