from __future__ import annotations

from ipcbus.reliability.session_messages import SessionMessages

MS = 1_000_000


def times(pulse: SessionMessages, until: int) -> list[int]:
    found = []
    while pulse.next_ns is not None and pulse.next_ns <= until:
        now = pulse.next_ns
        assert not pulse.due(now - 1)
        assert pulse.due(now)
        found.append(now // MS)
    return found


def test_doubles_up_to_the_longest() -> None:
    assert times(SessionMessages(200 * MS, 10_000 * MS, 0), 40_000 * MS) == [
        *(200, 600, 1400, 3000, 6200, 12600, 22600, 32600),
    ]


def test_a_datagram_begins_anew() -> None:
    pulse = SessionMessages(200 * MS, 10_000 * MS, 0)
    times(pulse, 5000 * MS)
    pulse.sent(5000 * MS)
    assert times(pulse, 6000 * MS) == [5200, 5600]


def test_none() -> None:
    pulse = SessionMessages(0, 0, 0)
    assert pulse.next_ns is None
    assert not pulse.due(10**18)
