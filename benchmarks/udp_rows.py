"""Rows of LBT-RU on loopback, each beside what pyzmq reaches over TCP in the same run."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING

from benchmarks import over_udp
from benchmarks.pairs import run
from benchmarks.rows import Row, Shared

if TYPE_CHECKING:
    from benchmarks.pairs import Figures

HAS_ZMQ = importlib.util.find_spec("zmq") is not None
WITHOUT_ZMQ = "pyzmq is not installed, so nothing stands beside it: pip install -e '.[bench]'"


def _stream(messages: int, *, flush: bool) -> Shared:
    def measure(factor: float) -> Figures:
        whole = int(messages * factor)
        sender, receiver = run([(over_udp.send, 0), (over_udp.count, 1)], whole, flush=flush)
        wire = (sender["wire"] + receiver["wire"]) / whole
        return sender | receiver | {"wire": wire}

    return Shared(measure)


def _zmq_stream(factor: float) -> Figures:
    whole = int(1_000_000 * factor)
    port = over_udp.free_port()
    sender, receiver = run([(over_udp.zmq_push, 0), (over_udp.zmq_pull, 1)], whole, port=port)
    return receiver | {"wire": sender["wire"] / whole}


def _round_trip(factor: float) -> Figures:
    return run([(over_udp.ping, 0), (over_udp.pong, 1)], int(20_000 * factor))[0]


def _zmq_round_trip(factor: float) -> Figures:
    parts = [(over_udp.zmq_ping, 0), (over_udp.zmq_pong, 1)]
    return run(parts, int(20_000 * factor), port=over_udp.free_port())[0]


def _row(name: str, unit: str, shared: Shared, key: str, beside: str = "", *, less: bool = False) -> Row:
    return Row(name, unit, None, None, less, shared.row(key), beside=beside if HAS_ZMQ else "")


_RATE, _WIRE = "pyzmq push/pull, tcp", "pyzmq push/pull, tcp: on the wire"
_MEDIAN, _P99 = "pyzmq pair, tcp: round trip, median", "pyzmq pair, tcp: round trip, p99"


def _udp_rows() -> list[Row]:
    batched, single = _stream(1_000_000, flush=False), _stream(100_000, flush=True)
    trips, zmq, zmq_trips = Shared(_round_trip), Shared(_zmq_stream), Shared(_zmq_round_trip)
    rows = [
        _row("LBT-RU: send -> callback, batching", "msg/s", batched, "per_second", _RATE),
        _row("LBT-RU, batching: on the wire", "B/msg", batched, "wire", _WIRE, less=True),
        _row("LBT-RU, batching: sent again", "%", batched, "sent_again", less=True),
        Row("LBT-RU, batching: lost for good", "msg", 0, 0, True, batched.row("lost")),
        _row("LBT-RU: send, flush -> callback", "msg/s", single, "per_second", _RATE),
        _row("LBT-RU, flush: on the wire", "B/msg", single, "wire", _WIRE, less=True),
        _row("LBT-RU, flush: sent again", "%", single, "sent_again", less=True),
        Row("LBT-RU, flush: lost for good", "msg", 0, 0, True, single.row("lost")),
        _row("LBT-RU: round trip, median", "ns", trips, "p50", _MEDIAN, less=True),
        _row("LBT-RU: round trip, p99", "ns", trips, "p99", _P99, less=True),
    ]
    beside = [
        _row(_RATE, "msg/s", zmq, "per_second"),
        _row(_WIRE, "B/msg", zmq, "wire", less=True),
        _row(_MEDIAN, "ns", zmq_trips, "p50", less=True),
        _row(_P99, "ns", zmq_trips, "p99", less=True),
    ]
    return rows + (beside if HAS_ZMQ else [])


UDP = _udp_rows()
