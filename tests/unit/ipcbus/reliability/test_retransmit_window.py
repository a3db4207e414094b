from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ipcbus.reliability.retransmit_window import RetransmitWindow
from ipcbus.wire import udp_packets


def test_holds_what_fits() -> None:
    window = RetransmitWindow(10, 0)
    assert [window.add(bytes([i]) * 4) for i in range(4)] == [0, 1, 2, 3]
    assert (window.trail, window.lead, len(window), window.bytes) == (2, 4, 2, 8)
    assert (window.get(1), window.get(2), window.get(4), window.get(-1)) == (None, b"\2" * 4, None, None)


def test_never_less_than_one() -> None:
    window = RetransmitWindow(10, 0)
    window.add(b"x" * 100)
    assert window.get(0) is not None
    window.add(b"y" * 100)
    assert (window.trail, window.get(0), window.get(1)) == (1, None, b"y" * 100)


def test_the_limit_counts_the_overhead() -> None:
    window = RetransmitWindow(1000, 3 * (RetransmitWindow.OVERHEAD + 1))
    for _ in range(10):
        window.add(b"x")
    assert len(window) == 3


def test_what_is_dropped_is_not_held_and_positions_stay() -> None:
    window = RetransmitWindow(100, 0)
    for _ in range(5):
        window.add(b"123456")
    positions = [window.position_of(number) for number in range(6)]
    window.drop_below(3)
    assert (window.trail, window.lead, len(window), window.bytes) == (3, 5, 2, 12)
    assert (window.get(2), window.get(3)) == (None, b"123456")
    assert [window.position_of(number) for number in range(3, 6)] == positions[3:]
    window.drop_below(2)
    window.drop_below(9)
    assert (window.trail, window.lead, len(window), window.bytes) == (5, 5, 0, 0)
    assert window.add(b"x") == 5


def test_what_is_cleared_is_not_held_and_numbers_go_on() -> None:
    window = RetransmitWindow(10, 0)
    window.add(b"123456")
    window.clear()
    assert (window.get(0), window.lead, window.trail, len(window), window.bytes) == (None, 1, 1, 0, 0)
    assert window.add(b"1234567890") == 1
    assert window.trail == 1


@given(st.lists(st.integers(1, 50), max_size=60), st.integers(0, 200), st.sampled_from([0, 500, 2000]))
def test_the_latest_without_gaps(sizes: list[int], size: int, limit: int) -> None:
    window = RetransmitWindow(size, limit)
    for each in sizes:
        window.add(bytes(each))
    held = [number for number in range(len(sizes)) if window.get(number) is not None]
    assert held == list(range(window.trail, window.lead))
    assert window.bytes == sum(sizes[number] for number in held)
    assert len(held) <= 1 or window.bytes <= size


def test_any_number_of_datagrams_is_held() -> None:
    window = RetransmitWindow(4000, 0)
    for number in range(10_000):
        window.add(number.to_bytes(4, "big"))
        assert window.get(window.trail) == window.trail.to_bytes(4, "big")
    assert (window.trail, len(window), window.bytes) == (9000, 1000, 4000)
    assert [window.get(number) for number in (9000, 9999)] == [(9000).to_bytes(4, "big"), (9999).to_bytes(4, "big")]
    charge = 4 + udp_packets.CHARGE
    places = [window.position_of(number) for number in (0, 9000, 9001, 9999, 10_000, 1 << 70)]
    assert places == [9000 * charge, 9000 * charge, 9001 * charge, 9999 * charge, 10_000 * charge, 10_000 * charge]
