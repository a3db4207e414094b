from __future__ import annotations

import grp
import os
import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringbuf import layout, segment
from ringbuf.pipe import Pipe, create_pipe
from ringbuf.poller import Poller
from ringbuf.ring_errors import SegmentFull, SegmentGone, SegmentMismatch, SegmentRefused
from tests.rings.children import Children
from tests.rings.pipes import (
    GENERATION,
    QUEUE,
    SESSION,
    SLOT,
    create,
    data_at,
    join_it,
    mapped,
    pipe_name,
    pipe_pair,
    queues,
)
from tests.rings.systems import NOBODY, as_nobody, in_small_shm

TO_RECEIVER, TO_SOURCE = 0, 1


def test_frames_go_both_ways_in_order(domain: str) -> None:
    with pipe_pair(domain) as (source, receiver):
        assert [source.put(b"one"), source.put(b"two"), receiver.put(b"three")] == [True] * 3
        assert [receiver.take(), receiver.take(), receiver.take()] == [b"one", b"two", None]
        assert [source.take(), source.take()] == [b"three", None]
        assert source.broken == receiver.broken == ""


def test_a_frame_has_at_least_one_byte_and_at_most_the_maximum(domain: str) -> None:
    with pipe_pair(domain) as (source, receiver):
        longest = bytes(range(256)) * 4
        longest = longest[: source.frame_max]
        assert source.put(longest)
        assert receiver.take() == longest
        for wrong in (b"", longest + b"x"):
            with pytest.raises(ValueError, match=f"1 to {source.frame_max} bytes"):
                source.put(wrong)


@given(st.lists(st.integers(1, QUEUE // 4 - 4) | st.just(0), max_size=120))
def test_every_frame_comes_out_as_it_went_in(lengths: list[int]) -> None:
    """0 takes a frame out; the positions wrap many times."""
    domain = f"t{os.getpid() % 10**7:07}"
    with pipe_pair(domain) as (source, receiver):
        waiting: list[bytes] = []
        for index, length in enumerate(lengths):
            frame = bytes((index + at) & 255 for at in range(length))
            if length and source.put(frame):
                waiting.append(frame)
            elif waiting:
                assert receiver.take() == waiting.pop(0)
            else:
                assert length == 0
                assert receiver.take() is None
        while waiting:
            assert receiver.take() == waiting.pop(0)
        assert source.broken == receiver.broken == ""


def test_a_full_queue_takes_nothing_until_a_frame_is_taken(domain: str) -> None:
    with pipe_pair(domain) as (source, receiver):
        sent = 0
        while source.put(sent.to_bytes(60, "little")):
            sent += 1
        assert sent == QUEUE // 64
        assert receiver.take() == bytes(60)
        assert source.put(sent.to_bytes(60, "little"))
        assert not source.put(b"x")
        assert [receiver.take() for _ in range(sent)] == [n.to_bytes(60, "little") for n in range(1, sent + 1)]


def test_the_other_side_takes_what_was_put_before_the_end(domain: str) -> None:
    with pipe_pair(domain) as (source, receiver):
        source.put(b"last")
        source.close()
        assert not receiver.put(b"too late")
        assert receiver.ready()
        assert [receiver.take(), receiver.broken] == [b"last", ""]
        assert [receiver.take(), receiver.broken] == [None, "the other side has closed the pipe"]
        assert [source.put(b"x"), source.take(), source.broken] == [False, None, "the pipe is closed"]
        assert not source.ready()


def test_a_child_after_a_fork_says_nothing_to_the_other_side(domain: str) -> None:
    with pipe_pair(domain) as (source, receiver):
        source.abandon()
        source.close()
        assert "parent" in source.broken
        assert not source.put(b"x")
        assert [receiver.take(), receiver.broken] == [None, ""]


def test_ready_and_its_word(domain: str) -> None:
    with pipe_pair(domain) as (source, receiver):
        word = receiver.watched()
        assert [receiver.ready(), word.changed()] == [False, False]
        source.put(b"x")
        assert [receiver.ready(), word.changed()] == [True, True]
        receiver.take()
        assert [receiver.ready(), word.changed()] == [False, False]


def test_who_found_no_room_is_ready_when_half_of_the_queue_is_free(domain: str) -> None:
    with pipe_pair(domain) as (source, receiver):
        sent = 0
        while source.put(bytes(500)):
            sent += 1
        taken = 0
        while not source.ready():
            assert not receiver.room_wanted
            receiver.take()
            taken += 1
        assert receiver.room_wanted
        assert taken == sent // 2
        assert source.put(bytes(500))
        assert not source.ready()
        receiver.take()
        assert not receiver.room_wanted


def test_a_frame_ends_the_spin_of_a_poller(domain: str) -> None:
    with pipe_pair(domain) as (source, receiver):
        poller = Poller()
        poller.watch([], [receiver.watched()])
        assert not poller.spin(1000, 1 << 40)
        found: list[bool] = []
        thread = threading.Thread(target=lambda: found.append(poller.spin(1 << 62, 1 << 60)))
        thread.start()
        source.put(b"x")
        thread.join()
        assert found == [True]
        receiver.take()
        assert not poller.spin(1000, 1 << 40)


def test_the_object_is_private_allocated_in_full_and_removable(domain: str) -> None:
    source = create(domain, queue_bytes=5000)
    try:
        status = os.stat(segment.ROOT / pipe_name(domain))
        assert status.st_mode & 0o777 == 0o600
        assert status.st_size == layout.pipe_bytes(8192)
        assert status.st_blocks * 512 >= status.st_size
        with pytest.raises(FileExistsError):
            create(domain)
    finally:
        segment.remove(pipe_name(domain))
    assert source.put(b"x")
    with pytest.raises(SegmentGone):
        join_it(domain)


def test_the_group_of_the_session_may_use_it(domain: str) -> None:
    create(domain, group=grp.getgrgid(os.getegid()).gr_name)
    try:
        status = os.stat(segment.ROOT / pipe_name(domain))
        assert (status.st_mode & 0o777, status.st_gid) == (0o660, os.getegid())
    finally:
        segment.remove(pipe_name(domain))


@pytest.mark.parametrize("size", [0, -1, layout.PIPE_QUEUE_MAX + 1])
def test_impossible_sizes_are_refused(domain: str, size: int) -> None:
    with pytest.raises(ValueError, match="impossible"):
        create(domain, queue_bytes=size)


def test_too_large_a_pipe_leaves_nothing(domain: str) -> None:
    def fills() -> list[str] | None:
        if not in_small_shm(1 << 20):
            return None
        with pytest.raises(SegmentFull):
            create(domain, queue_bytes=1 << 20)
        return segment.names(pipe_name(domain))

    with Children() as children:
        if (left := children.run(fills).result()) is None:
            pytest.skip("this system gives no process a /dev/shm of its own")
        assert left == []


def test_ends_are_not_made_by_hand() -> None:
    with pytest.raises(TypeError, match="create_pipe or join_pipe"):
        Pipe()


@pytest.mark.parametrize("other", [{"session_id": 1}, {"slot": SLOT + 1}, {"generation": GENERATION - 1}])
def test_the_pipe_of_another_receiver_is_refused(domain: str, other: dict[str, int]) -> None:
    create(domain)
    try:
        with pytest.raises(SegmentMismatch, match=f"session {SESSION:08x}, slot {SLOT}, generation {GENERATION}"):
            join_it(domain, **other)
    finally:
        segment.remove(pipe_name(domain))


def test_the_pipe_of_another_user_is_refused(domain: str) -> None:
    create(domain)
    try:
        with pytest.raises(SegmentRefused, match="belongs to uid"):
            join_it(domain, owner_uid=os.geteuid() + 1)
    finally:
        segment.remove(pipe_name(domain))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_user_cannot_open_it(domain: str) -> None:
    def opens() -> str:
        as_nobody()
        try:
            join_it(domain, owner_uid=0)
        except SegmentRefused as error:
            return str(error)
        return "opened"

    create(domain)
    try:
        with Children() as children:
            assert f"uid {NOBODY}" in children.run(opens).result()
    finally:
        segment.remove(pipe_name(domain))


@pytest.mark.parametrize(
    ("field", "value", "match"),
    [
        ("magic", 1, "not a pipe"),
        ("kind", layout.KIND_RING, "not a pipe"),
        ("layout_id", 1, "not a pipe"),
        ("queue_bytes", 0, "contradicts itself"),
        ("queue_bytes", QUEUE + 8, "contradicts itself"),
        ("queue_bytes", 2 * QUEUE, "contradicts itself"),
        ("queue_bytes", 1 << 31, "contradicts itself"),
        ("total_bytes", 1 << 40, "contradicts itself"),
    ],
)
def test_a_damaged_header_is_refused(domain: str, field: str, value: int, match: str) -> None:
    create(domain)
    try:
        path = segment.ROOT / pipe_name(domain)
        header = np.fromfile(path, layout.PIPE_HEADER, 1)
        header[field] = value
        with path.open("r+b") as file:
            file.write(header.tobytes())
        with pytest.raises(SegmentMismatch, match=match):
            join_it(domain)
    finally:
        segment.remove(pipe_name(domain))


def test_an_object_that_is_too_short_is_refused(domain: str) -> None:
    fd = segment.create(pipe_name(domain), layout.PAGE)
    os.close(fd)
    try:
        with pytest.raises(SegmentMismatch, match="too few for a pipe"):
            join_it(domain)
    finally:
        segment.remove(pipe_name(domain))


@pytest.mark.parametrize("position", [4, QUEUE + 8, 1 << 63, (1 << 64) - 8])
def test_an_impossible_written_position_breaks_the_reader_for_good(domain: str, position: int) -> None:
    with mapped(domain) as (source, receiver, memory):
        queues(memory)["written"][TO_RECEIVER] = position
        assert [receiver.take(), receiver.broken] == [None, "the other side shows an impossible position"]
        queues(memory)["written"][TO_RECEIVER] = 0
        source.put(b"x")
        assert receiver.take() is None
        assert not receiver.put(b"x")
        assert not receiver.ready()


@pytest.mark.parametrize("position", [8, 1 << 63, (1 << 64) - QUEUE - 8])
def test_an_impossible_read_position_breaks_the_writer(domain: str, position: int) -> None:
    with mapped(domain) as (source, _, memory):
        queues(memory)["read"][TO_RECEIVER] = position
        assert not source.put(b"x")
        assert source.broken == "the other side shows an impossible position"


@pytest.mark.parametrize("length", [0, 5, QUEUE // 4 - 3, QUEUE, (1 << 32) - 1])
def test_an_impossible_length_breaks_the_reader(domain: str, length: int) -> None:
    with mapped(domain) as (source, receiver, memory):
        source.put(b"four")
        np.frombuffer(memory, "<u4", 1, data_at(TO_RECEIVER))[0] = length
        assert [receiver.take(), receiver.broken] == [None, "the other side has written an impossible length"]


def test_own_positions_are_never_read_back(domain: str) -> None:
    with mapped(domain) as (source, receiver, memory):
        source.put(b"one")
        assert receiver.take() == b"one"
        queues(memory)["read"][TO_RECEIVER] = 0
        queues(memory)["written"][TO_SOURCE] = 0
        source.put(b"two")
        assert receiver.take() == b"two"


def test_a_pipe_that_is_cut_short_is_broken(domain: str) -> None:
    source = create(domain)
    try:
        receiver = join_it(domain)
        source.put(b"x")
        os.truncate(segment.ROOT / pipe_name(domain), 0)
        assert receiver.take() is None
        assert [receiver.take(), receiver.broken] == [None, "the pipe was cut short by another program"]
        source.put(bytes(100))
        assert not source.put(bytes(100))
        assert "cut short" in source.broken
    finally:
        segment.remove(pipe_name(domain))


def test_two_processes_pass_frames_on(domain: str) -> None:
    def echo(rounds: int) -> int:
        for _ in range(rounds):
            while not receiver.ready():
                pass
            frame = receiver.take()
            assert frame is not None
            while not receiver.put(frame[::-1]):
                pass
        return rounds

    with pipe_pair(domain) as (source, receiver), Children() as children:
        child = children.run(echo, 500)
        for n in range(500):
            assert source.put(n.to_bytes(8, "big"))
            while (answer := source.take()) is None:
                assert not source.broken
            assert answer == n.to_bytes(8, "little")
        assert child.result() == 500


def test_create_names_what_it_takes(domain: str) -> None:
    with pytest.raises(TypeError):
        create_pipe(pipe_name(domain), QUEUE)  # type: ignore[call-arg, misc]
