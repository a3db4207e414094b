"""How far a pass of the pump goes; that it delivers every message is in tests/conformance."""

from __future__ import annotations

from ipcbus.delivery.pump import Pump
from tests.kit.sessions import Pair

MESSAGES = 600


def test_messages_that_no_receiver_wants_leave_the_ring_as_fast_as_others(domain: str) -> None:
    """Passes grow with what they take; else a source waits for a receiver that skips its messages."""
    pair = Pair(domain)
    session = pair.join()
    source, _ = pair.topic("not received")
    for _ in range(MESSAGES):
        source.send(b"", flush=True)
    pump = Pump()
    pump.watch([session.demux])
    passes = 0
    while session.demux.no_topic < MESSAGES:
        assert pump.run(0, 0, True) == 0
        passes += 1
    assert passes < MESSAGES // 30  # 16 messages a pass would take twice as many
    pair.close()
