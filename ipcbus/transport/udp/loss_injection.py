"""Loss injection, for tests: environment variables say what share of the arriving datagrams is dropped.

The variables are Ultra Messaging's: `LBTRU_LOSS_RATE` and `LBTRM_LOSS_RATE` for datagrams from sources to receivers,
`LBTRU_SRC_LOSS_RATE` and `LBTRM_SRC_LOSS_RATE` for those from receivers to sources; 0 to 100, in percent.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Literal

from ipcbus.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from random import Random


class LossInjection:
    """Drops datagrams at random."""

    def __init__(self, percent: float, random: Random) -> None:
        """Starts without losses.

        Args:
            percent: the share to drop, in percent.
            random: draws the datagrams to drop.
        """
        self._share = percent / 100
        self._random = random
        self.lost = 0
        """The number of datagrams that were dropped."""

    def drops_next(self) -> bool:
        """Returns whether to drop the next datagram, and counts it."""
        struck = self._random.random() < self._share
        self.lost += struck
        return struck


def from_environment(
    transport: Literal["lbtru", "lbtrm"],
    end: Literal["source", "receiver"],
    random: Random,
    environment: Mapping[str, str] | None = None,
) -> LossInjection | None:
    """Returns the loss injection that the environment asks for, or None.

    Args:
        transport: the transport of the socket.
        end: the side of the socket.
        random: draws the datagrams to drop.
        environment: the variables; None for those of the process.

    Raises:
        ConfigError: the value is not a percentage.
    """
    name = f"{transport.upper()}_{'SRC_' if end == 'source' else ''}LOSS_RATE"
    text = (os.environ if environment is None else environment).get(name, "").strip()
    if not text:
        return None
    try:
        percent = float(text)
    except ValueError:
        percent = -1.0
    if not 0 <= percent <= 100:
        raise ConfigError(
            f"environment variable {name} = {text!r} is not a percentage: set it to a number from 0 to 100, or remove "
            "it"
        )
    return LossInjection(percent, random) if percent else None
