"""Large archives of a made-up market: quotes and trades of some coins, as an exchange sends them as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from benchmarks.traffic import BEGIN_NS, CHUNK
from ipcbus.archive import Archive, Limits
from ipcbus.archive.archive_layout import ROW

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    Numbers = NDArray[np.int64]
    Piece = bytes | tuple[Numbers, int]

COINS: Final = 8
TRADE_EVERY: Final = 8

_BETWEEN_NS: Final = 20_000
_CENTS: Final = 6_000_000
_LENGTH: Final = 180
_UPDATE: Final = 5_000_000_000
_FOUR: Final = np.array([list(f"{number:04}".encode()) for number in range(10_000)], np.uint8)


def write(path: Path, messages: int, seed: int = 0) -> None:
    """Writes an archive of so many messages; one in `TRADE_EVERY` is a trade, the others are quotes."""
    dice = np.random.default_rng(seed)
    with Archive.create(path).writer("market", limits=Limits(segment_seconds=1e9)) as writer:
        session = writer.session("LBT-IPC:20000000:20001")
        topics = np.array([[writer.topic(f"coin{n}@{kind}") for n in range(COINS)] for kind in ("bookTicker", "trade")])
        for begin in range(0, messages, CHUNK):
            number = np.arange(begin, min(begin + CHUNK, messages))
            coin, is_trade = dice.integers(0, COINS, len(number)), (number % TRADE_EVERY == 0).astype(np.intp)
            # One length for all makes this several times as fast; JSON may end in spaces.
            texts = np.full((len(number), _LENGTH), ord(" "), np.uint8)
            for kind, make in enumerate((_quotes, _trades)):
                made = make(dice, number[is_trade == kind], coin[is_trade == kind])
                texts[is_trade == kind, : made.shape[1]] = made
            rows = np.zeros(len(number), ROW)
            rows["topic"], rows["session"] = topics[is_trade, coin], session
            rows["numbers"], rows["sequence"], rows["length"] = 1, number, _LENGTH
            rows["position"] = np.arange(len(number)) * _LENGTH
            rows["receive_ns"] = BEGIN_NS + number * _BETWEEN_NS
            writer.append(rows, texts.tobytes())


def _quotes(dice: np.random.Generator, number: Numbers, coin: Numbers) -> NDArray[np.uint8]:
    bid, now_ms = _price(dice, coin), _milliseconds(number)
    return _lines(
        len(number),
        *(b'{"stream":"coin', (coin, 1), b'@bookTicker","data":{"e":"bookTicker","u":', (_UPDATE + number, 10)),
        *(b',"s":"COIN', (coin, 1), b'","b":"', *_decimal(bid, 5, 2), b'","B":"', *_quantity(dice, len(number))),
        *(b'","a":"', *_decimal(bid + dice.integers(1, 20, len(bid)), 5, 2), b'","A":"'),
        *(*_quantity(dice, len(number)), b'","T":', (now_ms, 13), b',"E":', (now_ms, 13), b"}}"),
    )


def _trades(dice: np.random.Generator, number: Numbers, coin: Numbers) -> NDArray[np.uint8]:
    price, now_ms = _price(dice, coin), _milliseconds(number)
    return _lines(
        len(number),
        *(b'{"stream":"coin', (coin, 1), b'@trade","data":{"e":"trade","E":', (now_ms, 13), b',"T":', (now_ms, 13)),
        *(b',"s":"COIN', (coin, 1), b'","t":', (_UPDATE + number, 10), b',"p":"', *_decimal(price, 5, 2)),
        *(b'","q":"', *_quantity(dice, len(number)), b'","X":"MARKET","m":true}}'),
    )


def _price(dice: np.random.Generator, coin: Numbers) -> Numbers:
    return _CENTS + 10_000 * coin + dice.integers(-500, 500, len(coin))


def _quantity(dice: np.random.Generator, count: int) -> tuple[Piece, ...]:
    return _decimal(dice.integers(1, 10**8, count), 2, 6)


def _decimal(value: Numbers, whole: int, places: int) -> tuple[Piece, ...]:
    return (value // 10**places, whole), b".", (value % 10**places, places)


def _milliseconds(number: Numbers) -> Numbers:
    return (BEGIN_NS + number * _BETWEEN_NS) // 1_000_000


def _lines(count: int, *pieces: Piece) -> NDArray[np.uint8]:
    """Texts of one length, a row each; a pair is a number with so many digits, which each text has of its own."""
    columns = []
    for piece in pieces:
        if isinstance(piece, bytes):
            columns.append(np.tile(np.frombuffer(piece, np.uint8), (count, 1)))
        else:
            columns.append(_digits(*piece))
    return np.concatenate(columns, axis=1)


def _digits(value: Numbers, width: int) -> NDArray[np.uint8]:
    """Numbers as text, four digits at a time: a division costs more than all else here."""
    found = np.empty((len(value), width), np.uint8)
    for end in range(width, 0, -4):
        value, rest = np.divmod(value, 10_000)
        found[:, max(0, end - 4) : end] = _FOUR[rest][:, -min(4, end) :]
    return found
