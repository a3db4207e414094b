"""A made-up market for `ipcbus demo`: trades and the top of the book, in the form in which an exchange sends them."""

from __future__ import annotations

import random
import time
from typing import Final

SYMBOLS: Final = {"ACME": 120.0, "DUNE": 43.5, "HOLT": 310.0, "ZINC": 7.25}
"""The first price of each symbol."""

TOPICS: Final = [f"{symbol.lower()}@{kind}" for symbol in SYMBOLS for kind in ("trade", "bookTicker")]
"""The topics of each symbol: its trades, and its best prices."""

_STEP: Final = 0.0004
"""Standard deviation of a price from one trade to the next, as a share of the price."""


class Market:
    """A random walk of prices; no two messages are equal, and trades are numbered without gaps."""

    def __init__(self, seed: int = 1) -> None:
        self._random = random.Random(seed)
        self._prices = dict(SYMBOLS)
        self._trades = dict.fromkeys(SYMBOLS, 0)
        self._updates = 0

    def next(self) -> tuple[str, bytes]:
        """Returns the topic and the message of the next event."""
        draw = self._random
        symbol = draw.choice(tuple(SYMBOLS))
        kind = "trade" if draw.random() < 0.5 else "bookTicker"
        now_ms = time.time_ns() // 1_000_000
        quantity = draw.randint(1, 900) / 100
        if kind == "trade":
            self._prices[symbol] *= 1 + draw.gauss(0, _STEP)
            self._trades[symbol] += 1
            fields = f'"t":{self._trades[symbol]},"p":"{self._prices[symbol]:.4f}","q":"{quantity:.2f}"'
        else:
            self._updates += 1
            bid, ask = (f"{self._prices[symbol] * factor:.4f}" for factor in (1 - _STEP / 4, 1 + _STEP / 4))
            fields = f'"u":{self._updates},"b":"{bid}","B":"{quantity:.2f}","a":"{ask}","A":"{quantity:.2f}"'
        topic = f"{symbol.lower()}@{kind}"
        data = f'{{"e":"{kind}","E":{now_ms},"T":{now_ms},"s":"{symbol}",{fields}}}'
        return topic, f'{{"stream":"{topic}","data":{data}}}'.encode()
