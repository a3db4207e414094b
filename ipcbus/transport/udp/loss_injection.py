"""Artificial loss, for tests: the environment says what share of the datagrams that arrive is thrown away.

The variables are Ultra Messaging's: `LBTRU_LOSS_RATE` and `LBTRM_LOSS_RATE` for what receivers get from sources,
`LBTRU_SRC_LOSS_RATE` and `LBTRM_SRC_LOSS_RATE` for what sources get from receivers; 0 to 100, in percent.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Literal

from ipcbus.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from random import Random


class LossInjection:
    """Throws datagrams away by chance."""

    def __init__(self, percent: float, random: Random) -> None:
        """Nothing was lost yet.

        Args:
            percent: share that is lost.
            random: draws.
        """
        self._share = percent / 100
        self._random = random
        self.lost = 0
        """Datagrams that were thrown away."""

    def drops_next(self) -> bool:
        """Returns whether the next datagram is lost."""
        struck = self._random.random() < self._share
        self.lost += struck
        return struck


def from_environment(
    transport: Literal["lbtru", "lbtrm"],
    end: Literal["source", "receiver"],
    random: Random,
    environment: Mapping[str, str] | None = None,
) -> LossInjection | None:
    """Returns the loss that the environment asks for; None where it asks for none.

    Args:
        transport: of the socket.
        end: whose socket it is.
        random: draws.
        environment: the variables; those of the process when nothing is given.

    Raises:
        ConfigError: the value is no percentage.
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
            f"environment variable {name} = {text!r} is no percentage: set it to a number from 0 to 100, or remove it"
        )
    return LossInjection(percent, random) if percent else None
