"""Rows of LBT-TCP, LBT-RU and LBT-RM on loopback, beside what other buses reach over TCP in the same run."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, Any, Final

from benchmarks import asleep, forms, over_tcp
from benchmarks.over_udp import free_port
from benchmarks.pairs import run
from benchmarks.rows import Row, Shared

if TYPE_CHECKING:
    from benchmarks.pairs import Figures, Part

_SIZES: Final = (("64 B", 64, 600_000), ("1 KiB", 1024, 200_000), ("64 KiB", 65_536, 10_000))
_TRIPS: Final = 2_000
OTHERS: Final = [name for name in ("zmq", "zenoh") if importlib.util.find_spec(name)]
_NAMES: Final = {"zmq": "pyzmq", "zenoh": "zenoh"}
_TRANSPORTS: Final = {
    "LBT-TCP": {"source": {"transport": "lbttcp"}},
    "LBT-RU": {"source": {"transport": "lbtru"}},
    "LBT-RM": {"source": {"transport": "lbtrm"}, "context": {"resolver_multicast_interface": "127.0.0.1"}},
}
_OVER_UDP: Final = ("LBT-RU", "LBT-RM")
_AHEAD: Final = {("LBT-RU", "64 B", 1), ("LBT-RM", "64 B", 1)} | {("LBT-RM", size, 2) for size, _, _ in _SIZES}
"""The rows that have to be 1.5 times what stands beside; the others at least equal."""


def _stream(send: Part, count: Part, messages: int, size: int, receivers: int, **options: Any) -> Shared:  # noqa: ANN401
    def measure(factor: float) -> Figures:
        parts = [(send, 0), *[(count, 1)] * receivers]
        figures = run(parts, max(100, int(messages * factor)), size, receivers=receivers, port=free_port(), **options)
        return figures[0] | {"per_second": min(each["per_second"] for each in figures[1:])}

    return Shared(measure)


def _trip(one: Part, other: Part, **options: Any) -> Shared:  # noqa: ANN401
    return Shared(
        lambda factor: run([(one, 0), (other, 1)], max(200, int(_TRIPS * factor)), port=free_port(), **options)[0]
    )


def _beside(what: str) -> tuple[str, str]:
    """The names of the same rows of the others; those that are not installed have none."""
    first, second = [f"{name}, tcp: {what}" if module in OTHERS else "" for module, name in _NAMES.items()]
    return first, second


def _rates() -> list[Row]:
    rows = []
    for size, length, messages in _SIZES:
        for receivers, more in ((1, ""), (2, ", two receivers")):
            beside, or_beside = _beside(f"{size}{more}")
            for transport, options in _TRANSPORTS.items():
                ours = _stream(over_tcp.send, over_tcp.count, messages, length, receivers, **options)
                name = f"{transport}: {size}{more}"
                budget = 1.5 if (transport, size, receivers) in _AHEAD else 1
                rows.append(
                    Row(
                        name,
                        "msg/s",
                        budget,
                        1.5,
                        False,
                        ours.row("per_second"),
                        beside,
                        is_ratio=True,
                        or_beside=or_beside,
                    )
                )
                if transport in _OVER_UDP:
                    rows.append(Row(f"{name}, sent again", "%", 1, None, True, ours.row("sent_again")))
            for module in OTHERS:
                send, count = (getattr(over_tcp, f"{module}_{part}") for part in ("send", "count"))
                other = _stream(send, count, messages, length, receivers)
                row = other.row("per_second")
                rows.append(Row(f"{_NAMES[module]}, tcp: {size}{more}", "msg/s", None, None, False, row))
    return rows


def _median_and_p99(name: str, shared: Shared, beside: tuple[str, str] | None = None) -> list[Row]:
    """The two rows of a run; those of ipcbus name what stands beside them, or nothing where that is not installed."""
    rows = []
    for key, more in (("p50", ""), ("p99", ", p99")):
        row = shared.row(key)
        if beside is None:
            rows.append(Row(f"{name}{more}", "ns", None, None, True, row))
        else:
            one, other = [each and f"{each}{more}" for each in beside]
            rows.append(Row(f"{name}{more}", "ns", 1, 0.8, True, row, one, is_ratio=True, or_beside=other))
    return rows


def _trips() -> list[Row]:
    receive: dict[str, Any] = {"default": True, "asleep": True, "form": "receive"}
    beside = _beside("round trip")
    rows = []
    for transport, options in _TRANSPORTS.items():
        shared = _trip(asleep.trip_by_thread, asleep.echo_by_thread, **options)
        rows += _median_and_p99(f"{transport}: callbacks", shared, beside)
    shared = _trip(forms.trip, forms.echo, **_TRANSPORTS["LBT-TCP"], **receive)
    rows += _median_and_p99("LBT-TCP: receive()", shared, beside)
    for module in OTHERS:
        one, other = (getattr(over_tcp, f"{module}_{part}") for part in ("trip", "echo"))
        rows += _median_and_p99(f"{_NAMES[module]}, tcp: round trip", _trip(one, other))
    return rows


def _back_to_back() -> list[Row]:
    beside = "pyzmq, tcp: back to back" if "zmq" in OTHERS else ""
    rows = []
    for transport, options in _TRANSPORTS.items():
        shared = _trip(forms.trip, forms.echo, default=True, form="receive", **options)
        rows += _median_and_p99(f"{transport}: receive(), back to back", shared, (beside, ""))
    if beside:
        rows += _median_and_p99(beside, _trip(over_tcp.zmq_trip, over_tcp.zmq_echo, asleep=False))
    return rows


TCP_RATES: Final = _rates()
TCP_TRIPS: Final = _trips()
TCP_BACK_TO_BACK: Final = _back_to_back()
