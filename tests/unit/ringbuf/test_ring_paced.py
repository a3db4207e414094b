"""What the pacing decides: who waits, who is lapped, and how each learns of it."""

from __future__ import annotations

import itertools
import resource
import threading
from typing import TYPE_CHECKING

import pytest

from ringbuf import layout
from ringbuf.ring import nudge_writer
from tests.rings.channels import WINDOW, control_of, header_of, join, joined, owned, read_all, slots_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ringbuf.channel import OwnedChannel
    from ringbuf.ring import RingReader

BODY = b"x" * 48
STEP = layout.RECORD_HEADER + len(BODY)
FIT = WINDOW // STEP - 1
"""Records that fit; the writer keeps a word for the frame of the next one."""

MILLISECOND = 1_000_000


@pytest.fixture
def channel(domain: str) -> Iterator[OwnedChannel]:
    """The writing side of the smallest receiver-paced ring."""
    with owned(domain) as made:
        yield made


@pytest.fixture
def lapping(domain: str) -> Iterator[OwnedChannel]:
    """The writing side of the smallest source-paced ring."""
    with owned(domain, source_paced=True) as made:
        yield made


def fill(channel: OwnedChannel) -> int:
    """Writes until the ring is full; how many records that took."""
    count = 0
    while channel.writer.write(BODY):
        count += 1
    return count


def test_ring_is_full_when_a_reader_holds_it(channel: OwnedChannel, domain: str) -> None:
    with joined(domain) as reader:
        assert fill(channel) == FIT
        assert not channel.writer.write(BODY)
        assert channel.writer.claim(len(BODY)) is None
        assert channel.writer.open_bytes == 0
        assert not channel.writer.has_room(len(BODY))
        assert read_all(reader) == [BODY] * FIT
        assert channel.writer.has_room(len(BODY))
        assert fill(channel) == FIT


def test_smaller_record_may_fit_where_a_longer_one_does_not(channel: OwnedChannel, domain: str) -> None:
    with joined(domain) as reader:
        fill(channel)
        assert channel.writer.write(b"x" * 40)
        assert not channel.writer.write(b"")
        assert read_all(reader) == [BODY] * FIT + [b"x" * 40]


def test_writer_without_readers_never_waits(channel: OwnedChannel) -> None:
    for _ in range(10 * FIT):
        assert channel.writer.write(BODY)


def test_slowest_reader_holds_the_ring(channel: OwnedChannel, domain: str) -> None:
    with joined(domain, 1) as slow:
        with joined(domain, 2) as fast:
            fill(channel)
            assert len(read_all(fast)) == FIT
            assert not channel.writer.write(BODY)
            slow.reader.read()
            slow.reader.show()
            assert channel.writer.write(BODY)
            assert not channel.writer.write(BODY)
        assert not channel.writer.write(BODY)
    assert channel.writer.write(BODY)


def test_busy_reader_shows_how_far_it_is_now_and_then(channel: OwnedChannel, domain: str) -> None:
    with joined(domain) as reader:
        fill(channel)
        shown = []
        while reader.reader.read() is not None:
            shown.append(int(slots_of(channel)[0]["position"]))
        assert len(set(shown)) > 20
        assert shown[-1] >= channel.writer.head - WINDOW // 32


def test_waiting_for_room_gives_up_after_its_time(channel: OwnedChannel, domain: str) -> None:
    assert channel.writer.wait_room(len(BODY), 10, MILLISECOND)
    with joined(domain):
        fill(channel)
        assert not channel.writer.wait_room(len(BODY), 10, MILLISECOND)
        assert not channel.writer.wait_room(len(BODY), 0, 0)


def test_waiting_for_room_looks_before_it_sleeps(channel: OwnedChannel, domain: str) -> None:
    with joined(domain) as reader:
        fill(channel)
        read_all(reader)
        assert channel.writer.wait_room(len(BODY), 1, -1)


def slept(work: Callable[[], object]) -> bool:
    """Whether the calling thread gave up its processor of its own accord, each time of several."""
    # A single time may have to do with the machine: the system call before the sleep takes a lock of the kernel's.
    return min(_switches(work) for _ in range(10)) > 0


def _switches(work: Callable[[], object]) -> int:
    before = resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw
    work()
    return resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw - before


def test_writer_that_has_said_that_it_sleeps_looks_once_more(channel: OwnedChannel, domain: str) -> None:
    """The reader made room after the writer's last look, and before it could see that the writer sleeps."""
    with joined(domain) as reader:

        def wait() -> None:
            fill(channel)
            read_all(reader)
            assert int(control_of(channel)["writer_waits"]) == layout.WRITER_RUNS
            # No turn of the loop that looks; so the only look is the one after the announcement.
            assert channel.writer.wait_room(len(BODY), 0, 20 * MILLISECOND)

        assert not slept(wait)
        fill(channel)
        # The measure sees a sleep when there is one.
        assert slept(lambda: channel.writer.wait_room(len(BODY), 0, MILLISECOND))


@pytest.mark.parametrize("leave", [False, True])
def test_sleeping_writer_wakes_when_there_is_room(channel: OwnedChannel, domain: str, leave: bool) -> None:
    reader = join(domain)
    fill(channel)
    found: list[bool] = []
    # Without a time limit: only the reader can end this.
    thread = threading.Thread(target=lambda: found.append(channel.writer.wait_room(len(BODY), 0, -1)))
    thread.start()
    while not int(control_of(channel)["writer_waits"]) & layout.WRITER_SLEEPS:
        pass
    if not leave:
        read_all(reader)
    reader.leave()
    thread.join()
    assert found == [True]
    assert channel.writer.write(BODY)


def test_writer_that_wants_an_event_gets_it_once(channel: OwnedChannel, domain: str) -> None:
    with joined(domain) as reader:
        assert not channel.writer.want_event(len(BODY))
        reader.reader.show()
        fill(channel)
        assert channel.writer.want_event(len(BODY))
        assert not reader.reader.show()
        assert reader.reader.read() == BODY
        assert reader.reader.show()
        assert not reader.reader.show()
        assert channel.writer.write(BODY)


def test_reader_that_leaves_says_that_the_writer_wants_an_event(channel: OwnedChannel, domain: str) -> None:
    reader = join(domain)
    fill(channel)
    assert channel.writer.want_event(len(BODY))
    assert reader.leave()
    assert not reader.leave()
    assert not nudge_writer(channel.control)


def test_reader_behind_the_wanted_place_wakes_nobody(channel: OwnedChannel, domain: str) -> None:
    with joined(domain) as reader:
        fill(channel)
        assert channel.writer.want_event(3 * STEP)
        for _ in range(2):
            reader.reader.read()
            assert not reader.reader.show()
        reader.reader.read()
        assert reader.reader.show()


def test_event_that_the_writer_wants_is_not_lost_while_a_reader_is_busy(channel: OwnedChannel, domain: str) -> None:
    """A busy reader shows its position by itself; `show` still tells of the event."""
    with joined(domain) as reader:
        fill(channel)
        assert channel.writer.want_event(len(BODY))
        while reader.reader.read() is not None:
            pass
        assert int(control_of(channel)["writer_waits"]) == layout.WRITER_RUNS
        assert reader.reader.show()
        assert not reader.reader.show()


def test_source_paced_writer_never_waits(lapping: OwnedChannel, domain: str) -> None:
    with joined(domain) as reader:
        for _ in range(10 * FIT):
            assert lapping.writer.write(BODY)
        assert lapping.writer.wait_room(WINDOW // 4, 0, 0)
        assert lapping.writer.has_room(len(BODY))
        assert not lapping.writer.want_event(len(BODY))
        assert reader.reader.ready()


def test_lapped_reader_goes_on_at_the_end_and_counts_it(lapping: OwnedChannel, domain: str) -> None:
    with joined(domain) as reader:
        for laps in range(1, 4):
            for _ in range(3 * FIT):
                lapping.writer.write(BODY)
            assert reader.reader.read() is None
            assert reader.reader.position == lapping.writer.head
            assert reader.reader.overruns == laps
            lapping.writer.write(b"after")
            assert read_all(reader) == [b"after"]
            assert int(slots_of(lapping)[0]["overruns"]) == laps


def test_reader_within_a_ring_of_the_writer_loses_nothing(lapping: OwnedChannel, domain: str) -> None:
    with joined(domain) as reader:
        # The writer announces a few records ahead what it will overwrite.
        behind = (WINDOW - WINDOW // 16) // STEP - 2
        for number in range(behind + 1000):
            lapping.writer.write(number.to_bytes(4, "little") * 12)
            if number >= behind:
                assert reader.reader.read() == (number - behind).to_bytes(4, "little") * 12
        assert reader.reader.overruns == 0


def test_record_that_is_overwritten_now_is_not_returned(lapping: OwnedChannel, domain: str) -> None:
    """An open record has destroyed bytes of the oldest one before it can be seen itself."""
    with joined(domain) as reader:
        for _ in range(FIT):
            lapping.writer.write(BODY)
        while int(header_of(lapping)["intent"]) <= WINDOW:
            place = lapping.writer.claim(len(BODY))
            assert place is not None
            place[:] = b"y" * len(BODY)
            if int(header_of(lapping)["intent"]) > WINDOW:
                break
            lapping.writer.commit()
        assert reader.reader.ready()
        assert reader.reader.read() is None
        assert reader.reader.overruns == 1
        lapping.writer.cancel()
        assert reader.reader.read() is None
        lapping.writer.write(b"next")
        assert read_all(reader) == [b"next"]


def test_intent_covers_every_byte_before_it_is_written(lapping: OwnedChannel) -> None:
    for number in range(5 * FIT):
        place = lapping.writer.claim(number % 1000)
        assert place is not None
        end = lapping.writer.head + layout.RECORD_HEADER + layout.round_up(number % 1000, 8) + layout.RECORD_ALIGN
        assert end <= int(header_of(lapping)["intent"]) <= lapping.writer.head + WINDOW
        lapping.writer.commit()


@pytest.mark.parametrize("runs", [[FIT], [FIT + 1], [200], [FIT, 200], [200, 200, 200], [0, 100, FIT + 1, 300]])
def test_writer_never_overwrites_what_a_joiner_will_read(domain: str, runs: list[int]) -> None:
    """It may write so many records between any two steps of a joiner, but none over the first that is the joiner's."""

    class Outrun:
        """A reader whose tail the writer leaves behind as soon as it was read."""

        def __init__(self) -> None:
            self.capacity = WINDOW
            self.left = list(runs)

        @property
        def tail(self) -> int:
            seen = channel.writer.head
            for _ in range(self.left.pop(0) if self.left else FIT):
                channel.writer.write(BODY)
            return seen

        def start(self, position: int) -> None:
            probe.reader.start(position)

    with owned(domain) as channel, joined(domain) as probe:
        table = probe.slots
        table._words.store32(table._state(probe.index), layout.SLOT_JOINING)
        position = table.join(probe.index, Outrun())  # type: ignore[arg-type]
        while channel.writer.write(BODY):
            pass
        assert 0 <= channel.writer.head - position <= WINDOW
        assert len(read_all(probe)) == (channel.writer.head - position) // STEP
        assert not probe.reader.broken


def test_joining_wakes_a_writer_that_waited_for_the_joiner(domain: str) -> None:
    """While it joins, a reader shows a position that may hold the writer up; nobody else would tell it of the room."""
    with owned(domain) as channel:

        def fill_and_want(step: str) -> None:
            if step == "join: active":
                fill(channel)
                assert channel.writer.want_event(len(BODY))

        reader = join(domain, checkpoint=fill_and_want)
        assert reader.joined_at == channel.writer.head
        assert int(control_of(channel)["writer_waits"]) == layout.WRITER_RUNS
        assert channel.writer.write(BODY)
        reader.leave()


def test_reader_that_pauses_says_that_the_writer_wants_an_event(channel: OwnedChannel, domain: str) -> None:
    with joined(domain) as reader:
        fill(channel)
        assert channel.writer.want_event(len(BODY))
        assert reader.slots.pause(reader.reader.slot_index)
        assert channel.writer.write(BODY)


class LateReader:
    """A reader that joins so slowly that the writer goes on each time after it looked at the tail."""

    def __init__(self, reader: RingReader, write_on: Callable[[int], None]) -> None:
        self._reader, self._write_on = reader, write_on
        self._rings = [1.5, 1.4]
        self.capacity = reader.capacity

    @property
    def tail(self) -> int:
        found = self._reader.tail
        if self._rings:
            self._write_on(int(self._rings.pop(0) * WINDOW))
        return found

    def start(self, position: int) -> None:
        self._reader.start(position)


def test_slow_joiner_shows_its_place_again_until_the_writer_heeds_it(channel: OwnedChannel, domain: str) -> None:
    """The writer ignores a place that is more than two rings behind it, and overwrites what a reader there reads."""
    numbers = itertools.count()

    def write_on(size: int) -> None:
        for _ in range(size // STEP):
            channel.writer.write(next(numbers).to_bytes(len(BODY), "little"))

    with joined(domain) as reader:
        reader.slots.pause(reader.reader.slot_index)
        begin = reader.slots.join(reader.reader.slot_index, LateReader(reader.reader, write_on))
        assert channel.writer.head - begin <= WINDOW
        write_on(WINDOW // 2)
        found = [int.from_bytes(body, "little") for body in read_all(reader)]
        assert found == list(range(found[0], next(numbers)))
        assert len(found) == WINDOW // 2 // STEP
