"""Shared bytes that nobody of ours wrote: the reader stops, the writer goes on, nothing crashes."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from ringbuf import layout
from ringbuf.ring import RingReader
from ringbuf.ring_errors import RingError
from ringbuf.shared_words import SharedWords
from tests.rings.channels import (
    PACINGS,
    WINDOW,
    control_of,
    fill_with_damaged,
    header_of,
    join,
    joined,
    owned,
    read_all,
    slots_of,
)
from tests.rings.children import Children

if TYPE_CHECKING:
    from ringbuf.channel import OwnedChannel

EACH = pytest.mark.parametrize("pacing", PACINGS)

ROUNDS = pytest.mark.parametrize("rounds", [50, pytest.param(1500, marks=pytest.mark.long)])
"""Damaged rings per test; each has a seed of its own, another one in every run."""


def data_of(channel: OwnedChannel) -> memoryview:
    offset = int(header_of(channel)["data_offset"])
    return channel.ring.view(offset, WINDOW)


@EACH
@pytest.mark.parametrize("frame", [1, layout.RECORD_HEADER - 1, WINDOW // 2 + 1, WINDOW, 1 << 31, (1 << 32) - 1])
def test_impossible_frame_breaks_the_reader_for_good(domain: str, pacing: str, frame: int) -> None:
    with owned(domain, **PACINGS[pacing]) as channel, joined(domain) as reader:
        channel.writer.write(b"good")
        channel.writer.write(b"bad")
        np.frombuffer(data_of(channel), layout.RECORD, 1, 24)["frame"] = frame
        assert reader.reader.read() == b"good"
        position = reader.reader.position
        for _ in range(2):
            assert reader.reader.read() is None
            assert reader.reader.broken
            assert not reader.reader.ready()
            assert reader.reader.position == position


@EACH
@pytest.mark.parametrize("frame", [layout.RECORD_HEADER, 17, WINDOW // 2])
def test_possible_frame_around_nonsense_is_read_within_the_ring(domain: str, pacing: str, frame: int) -> None:
    with owned(domain, **PACINGS[pacing]) as channel, joined(domain) as reader:
        data_of(channel)[:] = b"\xa5" * WINDOW
        # At the very end of the ring: the body continues in the second mapping.
        at = WINDOW - 8
        np.frombuffer(channel.ring.view(), layout.RING_HEADER, 1)["tail"] = at
        SharedWords(channel.ring).store32(int(header_of(channel)["data_offset"]) + at, frame)
        reader.reader.start(at)
        body = reader.reader.read()
        assert body is not None
        assert len(body) == frame - layout.RECORD_HEADER


IMPOSSIBLE = pytest.mark.parametrize("behind", [-10 * WINDOW, -(1 << 62), 4, 2 * WINDOW + 8, 3 * WINDOW, 1 << 62])


@IMPOSSIBLE
def test_an_impossible_position_of_a_new_reader_holds_up_nobody_and_is_counted(domain: str, behind: int) -> None:
    with owned(domain) as channel:
        for _ in range(5 * WINDOW // 100):
            channel.writer.write(b"x" * 84)
        with joined(domain):
            slots_of(channel)["position"][0] = (channel.writer.head - behind) % (1 << 64)
            for _ in range(3 * WINDOW // 100):
                assert channel.writer.write(b"x" * 84)
            assert int(header_of(channel)["position_errors"]) > 0


@IMPOSSIBLE
def test_an_impossible_position_of_a_known_reader_lets_nobody_overwrite_what_it_reads(domain: str, behind: int) -> None:
    with owned(domain) as channel, joined(domain) as reader:
        for _ in range(5 * WINDOW // 100):
            channel.writer.write(b"x" * 84)
            read_all(reader)
        reader.reader.show()
        assert channel.writer.has_room(WINDOW // 2)  # looks at the slots
        slots_of(channel)["position"][0] = (channel.writer.head - behind) % (1 << 64)
        sent = 0
        while channel.writer.write(sent.to_bytes(84, "little")):
            sent += 1
            assert sent <= WINDOW // 100
        assert int(header_of(channel)["position_errors"]) > 0
        assert [int.from_bytes(body, "little") for body in read_all(reader)] == list(range(sent))
        reader.reader.show()
        assert channel.writer.write(b"x" * 84)  # believed again


def test_a_position_that_goes_back_holds_the_writer_up_until_it_is_shown_again(domain: str) -> None:
    with owned(domain) as channel, joined(domain) as reader:
        for _ in range(5 * WINDOW // 100):
            channel.writer.write(b"x" * 84)
            read_all(reader)
        reader.reader.show()
        assert channel.writer.has_room(WINDOW // 2)
        slots_of(channel)["position"][0] -= WINDOW // 2
        assert not channel.writer.has_room(WINDOW // 2)
        assert int(header_of(channel)["position_errors"]) > 0
        reader.reader.show()
        assert channel.writer.has_room(WINDOW // 2)


def test_impossible_position_of_one_reader_does_not_hurt_another(domain: str) -> None:
    with owned(domain) as channel, joined(domain, 1), joined(domain, 2) as honest:
        slots_of(channel)["position"][0] = 1 << 63
        sent = 0
        while channel.writer.write(b"x" * 84):
            sent += 1
        assert len(read_all(honest)) == sent
        assert sent <= WINDOW // 100


@pytest.mark.parametrize("state", [0, 1, 3, 0xFFFFFFFF])
def test_slot_in_an_unknown_state_does_not_count(domain: str, state: int) -> None:
    with owned(domain) as channel, joined(domain):
        slots_of(channel)["state"][0] = state
        slots_of(channel)["state"][1] = state
        for _ in range(3 * WINDOW // 100):
            assert channel.writer.write(b"x" * 84)


def test_slots_beyond_the_ones_made_do_not_appear(domain: str) -> None:
    """The writer took the number of slots when it began; what a receiver writes there later is not believed."""
    with owned(domain) as channel, joined(domain):
        header = control_of(channel)
        header["slots_max"], header["slots_offset"] = 0xFFFFFFFF, 0xFFFFFFC0
        assert channel.writer.write(b"x")
        assert channel.slots.active_mask() == 1
        assert channel.slots.reclaim() == []


@pytest.mark.parametrize("wanted", [0, 1 << 63, (1 << 64) - 1])
def test_waiting_writer_survives_a_forged_wanted_position(domain: str, wanted: int) -> None:
    with owned(domain) as channel, joined(domain) as reader:
        while channel.writer.write(b"x" * 84):
            pass
        assert channel.writer.want_event(84)
        control_of(channel)["wanted"] = wanted
        read_all(reader)
        assert channel.writer.wait_room(84, 1, 1_000_000)


def test_intent_that_stays_beyond_the_ring_breaks_the_reader_and_does_not_hang_it(domain: str) -> None:
    with owned(domain, source_paced=True) as channel, joined(domain) as reader:
        channel.writer.write(b"x")
        header_of(channel)["intent"] = 1 << 40
        assert reader.reader.read() is None
        assert reader.reader.broken
        assert not reader.reader.ready()


def scribble(rng: random.Random, channel: OwnedChannel, what: str) -> None:
    """Fills a part of the shared bytes with nonsense of several kinds."""
    if what == "data":
        area: Any = np.frombuffer(data_of(channel), np.uint32)
    elif what == "slots":
        area = slots_of(channel).view(np.uint8).reshape(-1).view(np.uint32)
    elif what == "header":
        area = np.frombuffer(channel.ring.view(0, layout.RING_HEADER.itemsize), np.uint32)
    else:
        area = np.frombuffer(channel.control.view(0, layout.CONTROL_HEADER.itemsize), np.uint32)
    frames = [0, 1, 15, 16, 17, 64, WINDOW // 2, WINDOW // 2 + 1, WINDOW, 1 << 31, (1 << 32) - 1]
    for _ in range(rng.choice([1, 4, len(area) // 2, 2 * len(area)])):
        area[rng.randrange(len(area))] = rng.choice(frames) if rng.random() < 0.7 else rng.getrandbits(32)


def use(channel: OwnedChannel, reader: RingReader) -> None:
    """Everything that both sides do with the shared bytes."""
    for _ in range(30):
        body = reader.read()
        assert body is None or len(body) <= WINDOW // 2 - layout.RECORD_HEADER
        reader.ready()
    reader.show()
    reader.arm(True)
    reader.arm(False)
    for size in (0, 100, 2000):
        channel.writer.write(b"x" * size)
    channel.writer.has_room(1000)
    channel.writer.wait_room(1000, 1, 0)
    channel.writer.want_event(1000)
    channel.slots.active_mask()
    channel.slots.positions()
    channel.slots.identity(0)
    assert reader.ended in (False, True)


@ROUNDS
@EACH
@pytest.mark.parametrize("what", ["data", "slots", "header", "control"])
def test_nonsense_anywhere_crashes_neither_side(domain: str, pacing: str, what: str, rounds: int) -> None:
    def damage(seed: int) -> int:
        with owned(domain, **PACINGS[pacing]) as channel:
            reader = join(domain)
            for _ in range(20):
                channel.writer.write(b"y" * 80)
            for turn in range(rounds):
                print("seed", seed + turn, flush=True)
                scribble(random.Random(seed + turn), channel, what)
                use(channel, reader.reader)
                if turn % 10 == 0:
                    rejoin(channel, reader.index)
                    reader.reader.start(random.Random(turn).getrandbits(64))
            reader.abandon()
            return rounds

    seed = random.SystemRandom().getrandbits(32)
    print(f"first seed {seed}")
    with Children() as children:
        assert children.run(damage, seed).result() == rounds


def rejoin(channel: OwnedChannel, index: int) -> None:
    """A new reader either is refused or reads what it can."""
    try:
        reader = RingReader(channel.ring, channel.control, index)
    except RingError:
        return
    for _ in range(30):
        reader.read()


@pytest.mark.parametrize("first", range(4))
def test_nonsense_in_the_headers_refuses_a_joiner_or_lets_it_in_but_never_crashes(domain: str, first: int) -> None:
    def damage() -> int:
        refused = 0
        for seed in range(first * 50, first * 50 + 50):
            print("seed", seed, flush=True)
            with owned(domain) as channel:
                scribble(random.Random(seed), channel, "header" if seed % 2 else "control")
                try:
                    join(domain).leave()
                except RingError:
                    refused += 1
        return refused

    with Children() as children:
        assert children.run(damage).result() > 0


@EACH
def test_with_checksums_a_damaged_record_is_skipped_and_counted(domain: str, pacing: str) -> None:
    with owned(domain, **{**PACINGS[pacing], "checksums": True}) as channel, joined(domain) as reader:
        bodies = [b"x" * length for length in range(20)]
        for body in bodies:
            assert channel.writer.write(body)
        data_of(channel)[sum(layout.round_up(24 + len(body), 8) for body in bodies[:7]) + layout.RECORD_HEADER] ^= 1
        assert read_all(reader) == bodies[:7] + bodies[8:]
        assert slots_of(channel)["malformed"][0] == 1


def test_a_writer_that_waits_hears_of_the_room_that_damaged_records_leave(domain: str) -> None:
    with owned(domain, checksums=True) as channel, joined(domain) as reader:
        damaged = fill_with_damaged(channel)
        assert channel.writer.want_event(100)
        assert reader.reader.read() is None
        assert slots_of(channel)["malformed"][0] == damaged
        assert reader.reader.show()
        assert not reader.reader.show()
