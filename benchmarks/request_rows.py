"""Rows of requests and responses, beside two plain topics, pyzmq and multiprocessing in the same run."""

from __future__ import annotations

import itertools
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import requests
from benchmarks.pairs import run
from benchmarks.rows import Row
from benchmarks.udp_rows import HAS_ZMQ

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.pairs import Figures, Station

    Part = Callable[[Station], Figures]

_IN_FLIGHT = (1, 10, 100)
_numbers = itertools.count()


def _trip(one: Part, other: Part, *, asleep: bool) -> Callable[[float], float]:
    def measure(factor: float) -> float:
        with tempfile.TemporaryDirectory() as folder:
            messages = int((1_000 if asleep else 20_000) * factor)
            address = str(Path(folder) / str(next(_numbers)))
            return run([(one, 0), (other, 1)], messages, 64, asleep=asleep, address=address)[0]["p50"]

    return measure


def _rate(one: Part, other: Part, in_flight: int) -> Callable[[float], float]:
    def measure(factor: float) -> float:
        with tempfile.TemporaryDirectory() as folder:
            address = str(Path(folder) / str(next(_numbers)))
            parts = [(one, 0), (other, 1)]
            return run(parts, int(20_000 * factor), 64, in_flight=in_flight, address=address)[0]["per_second"]

    return measure


def _row(name: str, unit: str, measure: Callable[[float], float], beside: str = "") -> Row:
    return Row(name, unit, None, None, unit == "ns", measure, beside=beside)


def _request_rows() -> list[Row]:
    rows = []
    for asleep in (False, True):
        how = "asleep" if asleep else "spinning"
        own, plain = f"request: round trip {how}", f"two topics by receive(): round trip {how}"
        peers = {"multiprocessing": (requests.pipe_ask, requests.pipe_answer)}
        if HAS_ZMQ:
            peers["pyzmq REQ/REP"] = requests.zmq_ask, requests.zmq_answer
            peers["pyzmq DEALER/ROUTER"] = requests.zmq_ask_dealer, requests.zmq_answer_many
        topics = _trip(requests.send_and_receive, requests.receive_and_send, asleep=asleep)
        rows += [
            _row(own, "ns", _trip(requests.ask, requests.answer, asleep=asleep), plain),
            _row(plain, "ns", topics),
            *(_row(f"{name}: request {how}", "ns", _trip(*parts, asleep=asleep), own) for name, parts in peers.items()),
        ]
    for count in _IN_FLIGHT:
        own = f"requests: {count} in flight"
        peers = {"multiprocessing": (requests.pipe_ask_many, requests.pipe_answer)}
        if HAS_ZMQ:
            peers["pyzmq DEALER/ROUTER"] = requests.zmq_ask_many, requests.zmq_answer_many
        rows.append(_row(own, "req/s", _rate(requests.ask_many, requests.answer_many, count)))
        rows += [_row(f"{name}: {count} in flight", "req/s", _rate(*each, count), own) for name, each in peers.items()]
    return rows


REQUESTS = _request_rows()
"""Goals: a request takes at most 2 times as long as two topics while both sides spin, and 1.3 times asleep. The rows of
pyzmq and multiprocessing have a ratio to requests: above 1 in round trips, and below 1 in requests per second."""
