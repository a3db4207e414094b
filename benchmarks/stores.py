"""Stores that a sender could save its messages in instead: sqlite and lmdb, each in one pinned process.

For each message they save a row and delete one, as a sender does that saves a message and gives up an acknowledged one.
"""

from __future__ import annotations

import functools
import importlib.util
import itertools
import sqlite3
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Final

from benchmarks.pairs import run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from benchmarks.pairs import Figures, Part, Station

OUTSTANDING: Final = 1_000
"""Rows in the store."""

HAS_LMDB: Final = importlib.util.find_spec("lmdb") is not None


def _timed(numbers: range, group: int, save: Callable[[Iterator[int]], None]) -> Figures:
    """Saves the numbers in groups."""
    left = iter(numbers)
    begin = time.perf_counter()
    for _ in range(len(numbers) // group):
        save(itertools.islice(left, group))
    return {"per_second": len(numbers) // group * group / (time.perf_counter() - begin)}


def save_in_sqlite(station: Station, *, synchronous: str, group: int) -> Figures:
    """`group` messages a transaction."""
    payload = b"x" * station.size
    with (
        tempfile.TemporaryDirectory(prefix="ipcbus-bench-") as directory,
        closing(sqlite3.connect(Path(directory) / "kept.db", isolation_level=None)) as database,
    ):
        database.execute("PRAGMA journal_mode=WAL")
        database.execute(f"PRAGMA synchronous={synchronous}")
        database.execute("CREATE TABLE kept (number INTEGER PRIMARY KEY, data BLOB)")
        database.executemany("INSERT INTO kept VALUES (?, ?)", ((number, payload) for number in range(OUTSTANDING)))

        def save(numbers: Iterator[int]) -> None:
            database.execute("BEGIN")
            for number in numbers:
                database.execute("INSERT INTO kept VALUES (?, ?)", (number, payload))
                database.execute("DELETE FROM kept WHERE number = ?", (number - OUTSTANDING,))
            database.execute("COMMIT")

        station.ready()
        return _timed(range(OUTSTANDING, OUTSTANDING + station.messages), group, save)


def save_in_lmdb(station: Station, *, sync: bool, metasync: bool, group: int) -> Figures:
    """`group` messages a transaction."""
    import lmdb

    payload = b"x" * station.size
    with (
        tempfile.TemporaryDirectory(prefix="ipcbus-bench-") as directory,
        closing(lmdb.open(directory, map_size=1 << 28, sync=sync, metasync=metasync)) as database,
    ):
        with database.begin(write=True) as filling:
            for number in range(OUTSTANDING):
                filling.put(number.to_bytes(8, "big"), payload)

        def save(numbers: Iterator[int]) -> None:
            with database.begin(write=True) as transaction:
                for number in numbers:
                    transaction.put(number.to_bytes(8, "big"), payload)
                    transaction.delete((number - OUTSTANDING).to_bytes(8, "big"))

        station.ready()
        return _timed(range(OUTSTANDING, OUTSTANDING + station.messages), group, save)


def _rate(part: Part, messages: int, size: int, group: int) -> Callable[[float], float]:
    """Runs a part where the senders of the other rows run."""
    return lambda factor: run([(part, 0)], max(group, int(messages * factor)), size)[0]["per_second"]


def sqlite(messages: int, size: int, *, synchronous: str, group: int = 1) -> Callable[[float], float]:
    """Returns what measures sqlite with a write-ahead log."""
    return _rate(functools.partial(save_in_sqlite, synchronous=synchronous, group=group), messages, size, group)


def lmdb(messages: int, size: int, *, sync: bool, metasync: bool, group: int = 1) -> Callable[[float], float]:
    """Returns what measures lmdb."""
    part = functools.partial(save_in_lmdb, sync=sync, metasync=metasync, group=group)
    return _rate(part, messages, size, group)
