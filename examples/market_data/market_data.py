"""A feed of trades goes to a second process as rows of numpy, and becomes the volume-weighted average price.

`python market_data.py FILE` takes the trades of a capture (lines `<ns since the epoch> <JSON>`, also as .gz) with the
messages of a crypto exchange; without FILE it makes trades up.
"""

from __future__ import annotations

import gzip
import json
import multiprocessing
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import ipcbus

if TYPE_CHECKING:
    from numpy.typing import NDArray

TRADE = np.dtype([("time_ns", "<i8"), ("price", "<f8"), ("quantity", "<f8")])
"""A message: one row."""
BLOCK = 1000


def trades_of(path: Path) -> NDArray[Any]:
    """Returns the trades of a capture."""
    rows = []
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as lines:
        for line in lines:
            time_ns, _, text = line.partition(" ")
            if '"trade"' in text:
                trade = json.loads(text).get("data", {})
                if trade.get("e") == "trade":
                    rows.append((int(time_ns), float(trade["p"]), float(trade["q"])))
    return np.array(rows, TRADE)


def made_up(count: int = 20_000) -> NDArray[Any]:
    """Returns trades whose price wanders."""
    chance = np.random.default_rng(7)
    rows = np.zeros(count, TRADE)
    rows["time_ns"] = np.arange(count) * 1_000_000
    rows["price"] = 61_000 + chance.normal(0, 0.5, count).cumsum()
    rows["quantity"] = chance.exponential(0.02, count)
    return rows


def average(domain: str, count: int) -> None:
    """Receives so many trades, and prints what they come to."""
    rows = np.zeros(BLOCK, TRADE)
    trades, volume, value = 0, 0.0, 0.0
    with ipcbus.Context(domain=domain) as context:
        receiver = context.receiver("trades.BTCUSDT", events=False)
        while trades + receiver.lost < count:
            new = rows[: receiver.receive_into(rows, timeout=30)]  # straight into numpy, without Python for each trade
            trades += len(new)
            volume += float(new["quantity"].sum())
            value += float(new["price"] @ new["quantity"])
        print(f"{trades} trades, {receiver.lost} lost, volume {volume:.3f}, average price {value / volume:.2f}")


def main() -> None:
    """Starts the receiving process, and sends the trades to it."""
    trades = trades_of(Path(sys.argv[1])) if len(sys.argv) > 1 else made_up()
    if not len(trades):
        sys.exit(f"{sys.argv[1]} has no trades; give a capture of the trades of BTCUSDT, or no file")
    domain = f"market-data-{os.getpid()}"
    receiver = multiprocessing.get_context("spawn").Process(target=average, args=(domain, len(trades)))
    receiver.start()
    with ipcbus.Context(domain=domain) as context:
        source = context.source("trades.BTCUSDT")
        source.wait_for_receivers(1, timeout=30)
        for first in range(0, len(trades), BLOCK):
            source.send_many(trades[first : first + BLOCK])  # a row is a message
    receiver.join()


if __name__ == "__main__":
    main()
