"""Seals: what they let in, and what they keep off."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ipcbus.wire.seal import SEAL_BYTES, Opener, Purpose, Sealer

KEY = bytes(range(32))
NOW = 1_800_000_000_000_000_000
SECOND = 1_000_000_000


def sealer(sender: int = 1, *, key: bytes = KEY, domain: str = "d", purpose: Purpose = Purpose.DATA) -> Sealer:
    return Sealer(key, domain, purpose, sender)


def opener(*, window: int = 64, senders_max: int = 4, own: int | None = None) -> Opener:
    return Opener(KEY, "d", Purpose.DATA, window=window, senders_max=senders_max, own=own)


@given(st.lists(st.binary(max_size=64), max_size=20))
def test_what_was_sealed_opens_once(packets: list[bytes]) -> None:
    seals, opens = sealer(), opener()
    sealed = [seals.seal(packet, NOW) for packet in packets]
    assert [len(each) - len(packet) for each, packet in zip(sealed, packets, strict=True)] == [SEAL_BYTES] * len(
        packets
    )
    assert [opens.open(each, NOW) for each in sealed] == packets
    assert [opens.open(each, NOW) for each in sealed] == [None] * len(packets)
    assert (opens.counts.opened, opens.counts.replayed) == (len(packets), len(packets))


@given(st.binary(max_size=200))
def test_any_bytes_are_refused(junk: bytes) -> None:
    opens = opener()
    assert opens.open(junk, NOW) is None
    assert opens.counts.short + opens.counts.forged == 1
    assert len(opens) == 0


@given(st.binary(max_size=40), st.data())
def test_a_flipped_bit_is_refused_and_changes_nothing(packet: bytes, data: st.DataObject) -> None:
    opens = opener()
    sealed = sealer().seal(packet, NOW)
    bit = data.draw(st.integers(0, 8 * len(sealed) - 1))
    flipped = bytearray(sealed)
    flipped[bit // 8] ^= 1 << bit % 8
    assert opens.open(bytes(flipped), NOW) is None
    assert opens.counts.forged == 1
    assert opens.open(sealed, NOW) == packet


@given(st.binary(max_size=40), st.integers(1, 60))
def test_a_shorter_or_longer_one_is_refused(packet: bytes, by: int) -> None:
    opens = opener()
    sealed = sealer().seal(packet, NOW)
    assert opens.open(sealed[:-by], NOW) is None
    assert opens.open(sealed[by:], NOW) is None
    assert opens.open(sealed + bytes(by), NOW) is None
    assert opens.counts.forged + opens.counts.short == 3


@pytest.mark.parametrize(
    "other",
    [
        sealer(key=bytes(32)),
        sealer(key=KEY[:-1]),
        sealer(domain="e"),
        sealer(purpose=Purpose.CONTROL),
        sealer(purpose=Purpose.RESOLUTION),
    ],
)
def test_another_key_domain_or_purpose_does_not_open(other: Sealer) -> None:
    opens = opener()
    assert opens.open(other.seal(b"p", NOW), NOW) is None
    assert opens.counts.forged == 1


def test_keys_of_any_length_go_in_whole() -> None:
    long = bytes(100)
    sealed = sealer(key=long).seal(b"p", NOW)
    assert Opener(long, "d", Purpose.DATA).open(sealed, NOW) == b"p"
    assert Opener(long + b"\0", "d", Purpose.DATA).open(sealed, NOW) is None


@settings(max_examples=200)
@given(st.lists(st.integers(0, 20), max_size=60), st.sampled_from([1, 4, 16]))
def test_window_is_as_a_set_of_numbers_would_say(order: list[int], window: int) -> None:
    seals, opens = sealer(), opener(window=window)
    sealed = [seals.seal(bytes([number]), NOW) for number in range(21)]
    seen: set[int] = set()
    highest = -1
    for number in order:
        expected = number not in seen and number > highest - window
        assert (opens.open(sealed[number], NOW) is not None) == expected
        if expected:
            seen.add(number)
            highest = max(highest, number)
    counts = opens.counts
    assert counts.opened == len(seen)
    assert counts.opened + counts.replayed + counts.old == len(order)


def test_senders_have_windows_of_their_own() -> None:
    opens = opener()
    for sender in (1, 2):
        assert opens.open(sealer(sender).seal(b"p", NOW), NOW) == b"p"
    assert len(opens) == 2


@pytest.mark.parametrize(("age", "opened"), [(0, True), (30, True), (31, False), (-30, True), (-31, False)])
def test_an_unknown_sender_has_to_be_fresh(age: int, opened: bool) -> None:
    opens = opener()
    assert (opens.open(sealer().seal(b"p", NOW - age * SECOND), NOW) is not None) == opened
    assert opens.counts.stale == (not opened)
    assert len(opens) == opened


def test_a_known_sender_may_be_late() -> None:
    seals, opens = sealer(), opener()
    late = seals.seal(b"late", NOW - 3600 * SECOND)
    assert opens.open(seals.seal(b"now", NOW), NOW) == b"now"
    assert opens.open(late, NOW) == b"late"


def test_who_was_heard_least_recently_is_forgotten_and_cannot_be_replayed() -> None:
    opens = opener(senders_max=2)
    first = sealer(1).seal(b"1", NOW)
    second, third = (sealer(n) for n in (2, 3))
    assert opens.open(first, NOW) == b"1"
    assert opens.open(second.seal(b"2", NOW + 1), NOW + 1) == b"2"
    assert opens.open(first, NOW + 2) is None
    assert opens.open(third.seal(b"3", NOW + 3), NOW + 3) == b"3"
    assert (len(opens), opens.counts.forgotten) == (2, 1)
    assert opens.open(first, NOW + 4) is None
    assert opens.counts.stale == 1
    assert opens.open(second.seal(b"22", NOW + 5), NOW + 5) == b"22"


def test_a_clock_far_ahead_keeps_nobody_out() -> None:
    opens = opener(senders_max=1)
    ahead = sealer(1)
    assert opens.open(ahead.seal(b"a", NOW), NOW)
    assert opens.open(ahead.seal(b"b", NOW + 3600 * SECOND), NOW)
    assert opens.open(sealer(2).seal(b"c", NOW), NOW) == b"c"
    assert opens.open(sealer(3).seal(b"d", NOW + 1), NOW + 1) == b"d"


def test_what_comes_back_from_oneself_is_dropped() -> None:
    opens = opener(own=1)
    assert opens.open(sealer(1).seal(b"p", NOW), NOW) is None
    assert (opens.counts.own, len(opens)) == (1, 0)


@given(st.lists(st.tuples(st.integers(1, 9), st.booleans()), max_size=60))
def test_senders_are_bounded(turns: list[tuple[int, bool]]) -> None:
    opens = opener(senders_max=3)
    senders = {number: sealer(number) for number in range(1, 10)}
    for now, (number, forged) in enumerate(turns, NOW):
        sealed = senders[number].seal(b"p", now)
        before = len(opens)
        assert (opens.open(sealed[:-1] + bytes([sealed[-1] ^ forged]), now) is None) >= forged
        assert len(opens) <= (before if forged else 3)
