"""A receiver over UDP that finds much at once reads all of it: what it has no room for yet waits with the kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING

import ipcbus
from ipcbus.transport.udp.udp_receiver import UdpReceiver

if TYPE_CHECKING:
    import pytest

MESSAGES, BYTES = 400, 4000


def test_what_waits_with_the_kernel_is_not_shed(domain: str) -> None:
    got: list[int] = []
    with (
        ipcbus.Context(domain=domain) as there,
        ipcbus.Context(domain=domain, operational_mode="sequential") as here,
    ):
        source = there.source("burst", transport="lbtru", transport_lbtru_behavior="source_paced")
        receiver = here.receiver("burst", lambda message: got.append(message.sequence_number))
        while not source.receivers:
            here.process_events(0.01)
        for _ in range(MESSAGES):
            source.send(bytes(BYTES), flush=True)
        while len(got) <= MESSAGES:
            here.process_events(0.1)
        (session,) = receiver.sessions
        assert session.counters["dgrams_shed"] == 0
    assert got[1:] == list(range(MESSAGES))


def test_a_datagram_that_comes_alone_runs_no_timers(domain: str, monkeypatch: pytest.MonkeyPatch) -> None:
    got: list[int] = []
    turns, real = [0], UdpReceiver.turn

    def turn(udp_receiver: UdpReceiver, now_ns: int, *, shows: bool = True) -> int | None:
        turns[0] += 1
        return real(udp_receiver, now_ns, shows=shows)

    with (
        ipcbus.Context(domain=domain) as there,
        ipcbus.Context(domain=domain, operational_mode="sequential") as here,
    ):
        source = there.source("single", transport="lbtru")
        here.receiver("single", lambda message: got.append(message.sequence_number))
        while not source.receivers:
            here.process_events(0.01)
        monkeypatch.setattr(UdpReceiver, "turn", turn)
        for number in range(MESSAGES):
            source.send(b"x", flush=True)
            while len(got) < number + 2:  # the first one is the beginning of the session
                here.process_events(0.1)
    assert turns[0] < MESSAGES // 2
