from __future__ import annotations

import gc
import threading
from typing import TYPE_CHECKING

import pytest

from ringbuf.poller import Poller
from ringbuf.ring import RingReader
from tests.rings.channels import join, owned

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ringbuf.channel import JoinedChannel, OwnedChannel

FOREVER = 1 << 62


@pytest.fixture
def channel(domain: str) -> Iterator[OwnedChannel]:
    """The writing side of a small ring."""
    with owned(domain) as made:
        yield made


@pytest.fixture
def readers(channel: OwnedChannel, domain: str) -> Iterator[list[JoinedChannel]]:
    """Three readers of it."""
    made = [join(domain, number) for number in range(3)]
    yield made
    for reader in made:
        reader.leave()


def watching(readers: list[JoinedChannel]) -> Poller:
    poller = Poller()
    poller.watch([each.reader for each in readers])
    return poller


def test_record_for_any_reader_ends_the_look(channel: OwnedChannel, readers: list[JoinedChannel]) -> None:
    poller = watching(readers)
    assert not poller.spin(1, FOREVER)
    channel.writer.write(b"x")
    for reader in readers:
        assert poller.spin(1, FOREVER)
        reader.reader.read()
    assert not poller.spin(1, FOREVER)


def test_end_of_a_session_ends_the_look(channel: OwnedChannel, readers: list[JoinedChannel]) -> None:
    poller = watching(readers[:1])
    channel.writer.close()
    assert poller.spin(1, FOREVER)


@pytest.mark.parametrize(("loops", "timeout_ns"), [(0, FOREVER), (1000, FOREVER), (FOREVER, 0), (FOREVER, 1_000_000)])
def test_look_without_a_record_ends_by_loops_or_time(readers: list[JoinedChannel], loops: int, timeout_ns: int) -> None:
    assert not watching(readers).spin(loops, timeout_ns)


def test_nobody_to_watch_is_fine() -> None:
    poller = Poller()
    assert not poller.spin(10, FOREVER)
    poller.watch([])
    assert not poller.spin(10, FOREVER)


def test_only_readers_can_be_watched(readers: list[JoinedChannel]) -> None:
    poller = watching(readers)
    with pytest.raises(TypeError):
        poller.watch([readers[0]])  # type: ignore[list-item]
    assert not poller.spin(10, FOREVER)


def test_poke_ends_the_next_look_once(readers: list[JoinedChannel]) -> None:
    poller = watching(readers)
    poller.poke()
    assert not poller.spin(FOREVER, FOREVER)
    assert not poller.spin(10, FOREVER)


def test_look_without_end_is_ended_from_another_thread(channel: OwnedChannel, readers: list[JoinedChannel]) -> None:
    poller = watching(readers)
    found: list[bool] = []

    def look() -> None:
        found.append(poller.spin(FOREVER, FOREVER))
        found.append(poller.spin(FOREVER, FOREVER))

    thread = threading.Thread(target=look)
    thread.start()
    poller.poke()
    while not found:
        pass
    channel.writer.write(b"x")
    thread.join()
    assert found == [False, True]


def test_watched_readers_live_as_long_as_they_are_watched(channel: OwnedChannel, readers: list[JoinedChannel]) -> None:
    poller = Poller()
    poller.watch([RingReader(readers[0].ring, readers[0].control, readers[0].index)])
    gc.collect()
    assert not poller.spin(10, FOREVER)
    channel.writer.write(b"x")
    assert poller.spin(10, FOREVER)
