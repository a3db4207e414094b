"""What a control channel needs of its link, over every implementation."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

import pytest

from ipcbus.recovery.control_channel import ControlChannel
from tests.kit.bus import LBTRM, LBTRU
from tests.kit.frame_links import memory_links
from tests.kit.pipe_stage import PipeStage
from tests.kit.udp_links import udp_pair
from tests.rings.pipes import QUEUE, pipe_pair

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from ipcbus.recovery.frame_link import FrameLink

    Make = Callable[[str], AbstractContextManager[tuple[FrameLink, FrameLink]]]


@contextmanager
def in_memory(domain: str) -> Iterator[tuple[FrameLink, FrameLink]]:
    """Two ends in one process; the domain is not used."""
    del domain
    yield memory_links(frame_max=QUEUE // 4, room=QUEUE)


@contextmanager
def of_a_session(domain: str) -> Iterator[tuple[FrameLink, FrameLink]]:
    """The links of a ring session's source and of a receiver that asked for one."""
    stage = PipeStage(domain)
    try:
        _, link, source = stage.open()
        yield source, link
    finally:
        stage.close()


LINKS: dict[str, Make] = {
    "memory": in_memory,
    "pipe": pipe_pair,
    "session": of_a_session,
    "lbtru": partial(udp_pair, kind=LBTRU),
    "lbtrm": partial(udp_pair, kind=LBTRM),
}
"""Each makes both ends of an open link with room for a few KiB, over UDP for 256."""


@pytest.fixture(params=LINKS)
def links(request: pytest.FixtureRequest, domain: str) -> Iterator[tuple[FrameLink, FrameLink]]:
    with LINKS[request.param](domain) as ends:
        yield ends


Ends = tuple["FrameLink", "FrameLink"]


def test_each_frame_comes_once_whole_and_in_order(links: Ends) -> None:
    for one, other in (links, links[::-1]):
        frames = [bytes([n]) * length for n, length in enumerate((1, 2, 7, 8, 9, 100, one.frame_max))]
        waiting = list(frames)
        found: list[bytes] = []
        while waiting or found != frames:
            if waiting and one.put(waiting[0]):
                waiting.pop(0)
            elif (frame := other.take()) is not None:
                found.append(frame)
        assert other.take() is None


def test_a_frame_is_neither_empty_nor_too_long(links: Ends) -> None:
    for end in links:
        for length in (0, end.frame_max + 1):
            with pytest.raises(ValueError, match=str(end.frame_max)):
                end.put(bytes(length))
        assert end.take() is None


def test_it_is_bounded_and_goes_on_when_there_is_room(links: Ends) -> None:
    one, other = links
    sent = 0
    while one.put(sent.to_bytes(100, "little")):
        sent += 1
        assert sent < 100_000
    assert sent >= 4
    assert other.put(b"the other way is free")
    found = [other.take()]
    while not one.put(sent.to_bytes(100, "little")):
        found.append(other.take())
    while (frame := other.take()) is not None:
        found.append(frame)
    assert found == [n.to_bytes(100, "little") for n in range(sent + 1)]
    assert one.take() == b"the other way is free"


def test_a_closed_link_is_broken_on_both_sides(links: Ends) -> None:
    one, other = links
    assert one.broken == other.broken == ""
    one.close()
    assert one.broken
    for end in links:
        assert not end.put(b"x")
        assert end.take() is None
    assert other.broken
    one.close()
    other.close()


@pytest.mark.parametrize("frames", [256, pytest.param(2560, marks=pytest.mark.long)])
def test_a_long_message_passes_a_small_link_while_the_other_way_is_used(links: Ends, frames: int) -> None:
    """1 or 10 MiB in pieces, more where the pieces are long, both ways at once, and urgent messages between them."""
    size = max(frames << 12, links[0].frame_max * frames)
    ends = [ControlChannel(link, queue_max=size, message_max=size) for link in links]
    long = bytes(range(256)) * (size // 256)
    for end in ends:
        assert end.send(long, bulk=True)
    longs, urgent, came = [0, 0], 0, 0
    while min(longs) == 0:
        for index, end in enumerate(ends):
            urgent += end.send(b"urgent")
            end.flush()
            while (message := end.receive()) is not None:
                longs[index] += message == long
                came += message == b"urgent"
    assert longs == [1, 1]
    assert urgent >= came >= frames // 26
    assert [end.malformed for end in ends] == [0, 0]


def test_two_threads_use_the_two_ends(links: Ends) -> None:
    one, other = links
    frames = [n.to_bytes(2, "little") * 50 for n in range(500)]
    found: list[bytes] = []

    def take() -> None:
        while len(found) < len(frames) and not other.broken:
            if (frame := other.take()) is not None:
                found.append(frame)

    thread = threading.Thread(target=take)
    thread.start()
    try:
        for frame in frames:
            while not one.put(frame):
                assert not one.broken
        thread.join()
    finally:
        one.close()
        thread.join()
    assert found == frames
