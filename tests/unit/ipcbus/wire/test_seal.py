"""Seals: what they let in, and what they keep off."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ipcbus.wire.seal import _DERIVED_MAX, _PERIOD_NS, Keyring, Opener, Sealer
from ipcbus.wire.seal_format import BACK, FRONT, SEAL_BYTES, Purpose
from tests.kit.cases import each_of

if TYPE_CHECKING:
    from collections.abc import Callable

KEY = bytes(range(32))
NOW = 1_800_000_000_000_000_000
SECOND = 1_000_000_000

both = pytest.mark.parametrize("encrypts", [True, False])


def salts(first: int = 1) -> Callable[[], bytes]:
    """Salts that are drawn one after the other."""
    numbers = itertools.count(first)
    return lambda: next(numbers).to_bytes(16, "big")


def sealer(
    sender: int = 1,
    *,
    keys: dict[int, bytes] | Keyring | None = None,
    domain: str = "d",
    purpose: Purpose = Purpose.DATA,
    encrypts: bool = True,
    packets_max: int = 1000,
) -> Sealer:
    keyring = keys if isinstance(keys, Keyring) else Keyring(keys or {1: KEY})
    return Sealer(keyring, domain, purpose, salts(sender), encrypts=encrypts, packets_max=packets_max)


def opener(*, keys: Keyring | None = None, window: int = 64, senders_max: int = 4, own: Sealer | None = None) -> Opener:
    keyring = keys or Keyring({1: KEY})
    return Opener(keyring, "d", Purpose.DATA, window=window, senders_max=senders_max, own=own)


@given(st.lists(st.binary(max_size=64), max_size=20), st.booleans())
def test_what_was_sealed_opens_once(packets: list[bytes], encrypts: bool) -> None:
    seals, opens = sealer(encrypts=encrypts), opener()
    sealed = [seals.seal(packet, NOW) for packet in packets]
    assert [len(each) for each in sealed] == [SEAL_BYTES + len(packet) for packet in packets]
    assert [opens.open(each, NOW) for each in sealed] == packets
    assert [opens.open(each, NOW) for each in sealed] == [None] * len(packets)
    assert (opens.counts.opened, opens.counts.replayed) == (len(packets), len(packets))


@both
def test_only_what_is_encrypted_cannot_be_read(encrypts: bool) -> None:
    sealed = sealer(encrypts=encrypts).seal(b"a packet that all may know", NOW)
    assert (b"a packet" in sealed) is not encrypts


@given(st.binary(max_size=200))
def test_any_bytes_are_refused(junk: bytes) -> None:
    opens = opener()
    assert opens.open(junk, NOW) is None
    assert opens.counts.dropped == 1
    assert len(opens) == 0


@given(st.sampled_from([1, 2]), st.binary(min_size=16, max_size=16), st.binary(max_size=100))
def test_junk_behind_a_valid_head_is_refused(form: int, salt: bytes, junk: bytes) -> None:
    opens = opener()
    assert opens.open(FRONT.pack(0xFF, form, 1, salt) + BACK.pack(1, NOW) + bytes(16) + junk, NOW) is None
    assert (opens.counts.forged, len(opens)) == (1, 0)


@given(st.binary(max_size=40), st.booleans(), st.data())
def test_a_flipped_bit_is_refused_and_changes_nothing(packet: bytes, encrypts: bool, data: st.DataObject) -> None:
    seals, opens = sealer(encrypts=encrypts), opener()
    assert opens.open(seals.seal(b"known", NOW), NOW) == b"known"
    sealed = seals.seal(packet, NOW)
    bit = data.draw(st.integers(0, 8 * len(sealed) - 1))
    flipped = bytearray(sealed)
    flipped[bit // 8] ^= 1 << bit % 8
    assert opens.open(bytes(flipped), NOW) is None
    assert (opens.counts.dropped, len(opens)) == (1, 1)
    assert opens.open(sealed, NOW) == packet


@given(st.binary(max_size=40), st.integers(1, 60), st.booleans())
def test_a_shorter_or_longer_one_is_refused(packet: bytes, by: int, encrypts: bool) -> None:
    opens = opener()
    sealed = sealer(encrypts=encrypts).seal(packet, NOW)
    assert opens.open(sealed[:-by], NOW) is None
    assert opens.open(sealed[by:], NOW) is None
    assert opens.open(sealed + bytes(by), NOW) is None
    assert opens.counts.dropped == 3


@each_of(
    ("other", "counted"),
    [
        (sealer(keys={1: bytes(32)}), "forged"),
        (sealer(keys={2: KEY}), "unknown_key"),
        (sealer(domain="e"), "forged"),
        (sealer(purpose=Purpose.CONTROL), "forged"),
        (sealer(purpose=Purpose.RESOLUTION), "forged"),
    ],
)
def test_another_key_number_domain_or_purpose_does_not_open(other: Sealer, counted: str) -> None:
    opens = opener()
    assert opens.open(other.seal(b"p", NOW), NOW) is None
    assert (getattr(opens.counts, counted), opens.counts.dropped) == (1, 1)


# Nonces.


@settings(max_examples=50)
@given(st.lists(st.sampled_from(["seal", "restart", "other key"]), max_size=60), st.integers(1, 5))
def test_no_nonce_comes_twice_with_a_key(steps: list[str], packets_max: int) -> None:
    """A restart, another key, and counters that end."""
    draw = salts()
    keyring, opens = Keyring({1: KEY}), Opener(Keyring({1: KEY, 2: bytes(32)}), "d", Purpose.DATA)

    def start() -> Sealer:
        return Sealer(keyring, "d", Purpose.DATA, draw, packets_max=packets_max)

    seals, heads = start(), []
    for step in steps:
        if step == "restart":
            seals = start()
        elif step == "other key":
            keyring.keys = dict(reversed({1: KEY, 2: bytes(32), **keyring.keys}.items()))
        else:
            sealed = seals.seal(b"p", NOW)
            heads.append(sealed[: FRONT.size + 4])
            assert opens.open(sealed, NOW) == b"p"
    assert len(set(heads)) == len(heads)


def test_a_restart_draws_another_salt() -> None:
    first, second = sealer(1).seal(b"p", NOW), sealer(2).seal(b"p", NOW)
    assert first[4:20] != second[4:20]
    assert first[32:] != second[32:]  # and so another key


# Rotation.


def test_keys_are_replaced_while_packets_are_on_their_way() -> None:
    """Each step is taken by the one end first, or by the other; no packet is lost."""
    one, two = KEY, bytes(32)
    for first in (0, 1):
        ends = [Keyring({1: one}), Keyring({1: one})]
        seals, opens = sealer(keys=ends[0]), opener(keys=ends[1])
        late = [seals.seal(b"late", NOW)]
        for keys in ({1: one, 2: two}, {2: two, 1: one}, {2: two}):
            for end in (ends[first], ends[1 - first]):
                end.keys = keys
                sealed = seals.seal(b"p", NOW)
                if len(opens._keyring.keys) == 2:
                    assert [opens.open(each, NOW) for each in late] == [b"late"] * len(late)
                    late = []
                assert opens.open(sealed, NOW) == b"p"
        assert opens.counts.dropped == 0
        assert opens.open(sealer(9, keys={1: one}).seal(b"p", NOW), NOW) is None
        assert opens.counts.unknown_key == 1


def test_a_removed_key_opens_no_more_also_for_known_salts() -> None:
    keyring = Keyring({1: KEY, 2: bytes(32)})
    opens, seals = opener(keys=keyring), sealer()
    assert opens.open(seals.seal(b"p", NOW), NOW) == b"p"
    keyring.keys = {2: bytes(32)}
    assert opens.open(seals.seal(b"p", NOW), NOW) is None
    assert (opens.counts.unknown_key, len(opens)) == (1, 0)


# Replays.


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


@each_of(("age", "opened"), [(0, True), (30, True), (31, False), (-30, True), (-31, False)])
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


def test_what_comes_back_from_oneself_is_dropped_also_after_a_new_salt() -> None:
    own = sealer(packets_max=2)
    opens = opener(own=own)
    sealed = [own.seal(b"p", NOW) for _ in range(5)]
    assert len({each[: FRONT.size] for each in sealed}) == 3
    assert [opens.open(each, NOW) for each in sealed] == [None] * 5
    assert (opens.counts.own, opens.counts.dropped, len(opens)) == (5, 0, 0)


# What strangers cost.


@given(st.lists(st.tuples(st.integers(1, 9), st.booleans()), max_size=60))
def test_senders_are_bounded(turns: list[tuple[int, bool]]) -> None:
    opens = opener(senders_max=3)
    senders = {number: sealer(number) for number in range(1, 10)}
    for now, (number, forged) in enumerate(turns, NOW):
        sealed = senders[number].seal(b"p", now)
        before = len(opens)
        assert (opens.open(sealed[:-1] + bytes([sealed[-1] ^ forged]), now) is None) >= forged
        assert len(opens) <= (before if forged else 3)


def test_a_flood_of_forged_salts_is_bounded_work_and_holds_no_known_sender_up() -> None:
    opens, known, new = opener(), sealer(1), sealer(2)
    assert opens.open(known.seal(b"known", NOW), NOW) == b"known"
    flood = [
        FRONT.pack(0xFF, 2, 1, n.to_bytes(16)) + BACK.pack(1, NOW) + bytes(20) for n in range(9, _DERIVED_MAX + 18)
    ]
    for each in flood:
        assert opens.open(each, NOW) is None
    # The first packet of the known salt was one of the period.
    assert (opens.counts.forged, opens.counts.unchecked) == (_DERIVED_MAX - 1, 10)
    assert opens.open(known.seal(b"still", NOW), NOW) == b"still"
    assert opens.open(new.seal(b"new", NOW), NOW) is None
    later = NOW + _PERIOD_NS
    assert opens.open(new.seal(b"new", later), later) == b"new"
    assert len(opens) == 2
