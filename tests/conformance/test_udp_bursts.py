"""A receiver over UDP that finds much at once reads all of it: what it has no room for yet waits with the kernel."""

from __future__ import annotations

import ipcbus

MESSAGES, BYTES = 400, 4000


def test_what_waits_with_the_kernel_is_not_shed(domain: str) -> None:
    got: list[int] = []
    with (
        ipcbus.Context(domain=domain) as there,
        ipcbus.Context(domain=domain, operational_mode="sequential") as here,
    ):
        source = there.source("burst", transport="lbtru")
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
