"""What one context takes on over UDP."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ipcbus.runtime.loop import udp_endpoints
from tests.kit.bus import LBTRU, Bus

if TYPE_CHECKING:
    import pytest


def test_a_context_joins_so_many_sessions_and_says_why_no_more(domain: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(udp_endpoints, "_UDP_RECEIVERS_MAX", 2)
    bus = Bus(domain, LBTRU, "sequential")
    for _ in range(3):
        bus.source()
    receiver = bus.receiver()
    bus.until(lambda: len(receiver.sessions) == 3, "three sessions")
    (refused,) = [session for session in receiver.sessions if session.state == "refused"]
    assert "joined 2 sessions over UDP, the maximum" in refused.reason
    assert "network_key_file" in refused.reason
    bus.close()
