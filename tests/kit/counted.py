"""A program whose system calls are counted from outside: run as `python -m tests.kit.counted DOMAIN CASE`.

It prepares, then sends and receives chunk after chunk with a marker call before each and after the last.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import numpy as np

import ipcbus
from ipcbus import MessageType

if TYPE_CHECKING:
    from collections.abc import Callable

    from ipcbus import Context, Receiver, Source

CHUNKS = 16
CHUNK = 10_000
BURST = 50
MARKER = "getppid"

# Rare timers only: what a chunk costs is what its messages cost.
QUIET = {"liveness_check_interval": 60_000, "resolution_scan_interval": 60_000}

got = 0


def count(message: ipcbus.Message) -> None:
    """The receiver's callback."""
    global got
    if message.type is MessageType.DATA:
        got += 1


def calling_back(sending: Source, receiving: Context) -> Callable[[], None]:
    """Sends a burst and processes events until all of it was called back."""

    def burst() -> None:
        expected = got + BURST
        for _ in range(BURST):
            sending.send(b"x" * 64)
        sending.flush()
        while got < expected:
            receiving.process_events(0)

    return burst


def pulling(sending: Source, receiver: Receiver) -> Callable[[], None]:
    """Sends a burst and pulls it."""

    def burst() -> None:
        for _ in range(BURST):
            sending.send(b"x" * 64)
        sending.flush()
        left = BURST
        while left:
            left -= sum(message.type is MessageType.DATA for message in receiver.receive_many(left, 0))

    return burst


def by_rows(sending: Source, receiver: Receiver) -> Callable[[], None]:
    """Sends rows of an array and receives them into another."""
    rows, place = np.zeros((BURST, 64), np.uint8), np.zeros((BURST, 64), np.uint8)

    def burst() -> None:
        sending.send_many(rows, flush=True)
        left = BURST
        while left:
            filled = receiver.receive_into(place[:left], 0)
            if not filled:
                receiver.receive(0)  # BOS
            left -= filled

    return burst


def main() -> None:
    """Runs one case."""
    domain, case = sys.argv[1], sys.argv[2]
    transport, form = case.split("/")
    with (
        ipcbus.Context({"context": QUIET}, domain=domain, operational_mode="sequential") as sending,
        ipcbus.Context({"context": QUIET}, domain=domain, operational_mode="sequential") as receiving,
    ):
        source = sending.source("t", transport=transport)
        receiver = receiving.receiver("t", count if form == "callback" else None)
        while not source.receivers:
            receiving.process_events(0)
        burst = {
            "callback": lambda: calling_back(source, receiving),
            "receive_many": lambda: pulling(source, receiver),
            "receive_into": lambda: by_rows(source, receiver),
        }[form]()
        burst()
        for _ in range(CHUNKS):
            os.getppid()
            for _ in range(CHUNK // BURST):
                burst()
        os.getppid()


if __name__ == "__main__":
    main()
