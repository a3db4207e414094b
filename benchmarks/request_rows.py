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


def _request_rows() -> list[Row]:
    rows = []
    for asleep in (False, True):
        how = "asleep" if asleep else "spinning"
        plain = f"two topics by receive(): round trip {how}"
        asked = _trip(requests.ask, requests.answer, asleep=asleep)
        rows += [
            Row(f"request: round trip {how}", "ns", None, None, True, asked, beside=plain),
            Row(
                plain,
                "ns",
                None,
                None,
                True,
                _trip(requests.send_and_receive, requests.receive_and_send, asleep=asleep),
            ),
            Row(
                f"multiprocessing connection: request {how}",
                *("ns", None, None, True, _trip(requests.pipe_ask, requests.pipe_answer, asleep=asleep)),
            ),
        ]
        if HAS_ZMQ:
            zmq = _trip(requests.zmq_ask, requests.zmq_answer, asleep=asleep)
            rows.append(Row(f"pyzmq REQ/REP: request {how}", "ns", None, None, True, zmq))
    for count in _IN_FLIGHT:
        other = f"pyzmq DEALER/ROUTER: {count} in flight"
        asked = _rate(requests.ask_many, requests.answer_many, count)
        beside = other if HAS_ZMQ else ""
        rows.append(Row(f"requests: {count} in flight", "req/s", None, None, False, asked, beside=beside))
        if HAS_ZMQ:
            zmq = _rate(requests.zmq_ask_many, requests.zmq_answer_many, count)
            rows.append(Row(other, "req/s", None, None, False, zmq))
    return rows


REQUESTS = _request_rows()
"""Goals: a request takes at most 2 times as long as two topics while both sides spin, and 1.3 times asleep."""
