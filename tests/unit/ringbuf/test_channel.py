from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from ringbuf import layout, liveness, segment
from ringbuf.channel import JoinedChannel, OwnedChannel
from ringbuf.ring import RingReader, RingWriter
from ringbuf.ring_errors import SegmentGone, SegmentMismatch, SegmentRefused, SlotsFull
from ringbuf.slots import OWNER_BYTE
from tests.rings.channels import (
    WINDOW,
    control_name,
    control_of,
    header_of,
    join,
    joined,
    owned,
    read_all,
    ring_name,
    shape,
    slots_of,
    who,
)
from tests.rings.children import Children, Flag

if TYPE_CHECKING:
    from collections.abc import Callable

PAGE = layout.PAGE


def objects(domain: str) -> list[str]:
    return segment.names(f"ipcbus.{domain}.")


def test_both_objects_exist_as_long_as_the_owner_wants(domain: str) -> None:
    with owned(domain) as channel:
        assert objects(domain) == [control_name(domain), ring_name(domain)]
        assert channel.fd >= 0
    assert objects(domain) == []
    channel.close()


def test_reader_reads_on_after_the_owner_closed(domain: str) -> None:
    with owned(domain) as channel:
        reader = join(domain)
        channel.writer.write(b"last words")
        assert reader.owner_lives()
    assert not reader.owner_lives()
    assert read_all(reader) == [b"last words"]
    assert reader.reader.ended
    reader.leave()


@pytest.mark.parametrize("taken", [ring_name, control_name])
def test_taken_name_is_refused_and_the_other_object_is_not_left(domain: str, taken: Callable[[str], str]) -> None:
    os.close(segment.create(taken(domain), PAGE))
    with pytest.raises(FileExistsError):
        OwnedChannel(ring_name(domain), control_name(domain), shape())
    assert objects(domain) == [taken(domain)]
    segment.remove(taken(domain))


@pytest.mark.parametrize("values", [{"record_max": WINDOW}, {"slots_max": 65}, {"slots_max": 0}, {"record_max": 8}])
def test_impossible_shape_is_refused_and_leaves_nothing(domain: str, values: dict[str, int]) -> None:
    with pytest.raises(SegmentMismatch, match="sizes do not fit"):
        OwnedChannel(ring_name(domain), control_name(domain), shape(**values))  # type: ignore[arg-type]
    assert objects(domain) == []


def test_unknown_group_leaves_nothing(domain: str) -> None:
    with pytest.raises(SegmentRefused, match="no such group"), owned(domain, group="no such group"):
        pass
    assert objects(domain) == []


def test_user_areas_belong_to_the_layer_above(domain: str) -> None:
    with owned(domain, control_user=64) as channel, joined(domain) as reader:
        assert bytes(layout.ring_view(reader.ring.view())[1]) == bytes(128)
        layout.ring_view(channel.ring.view())[1][:] = 7
        layout.control_view(reader.control.view())[1][:] = 9
        assert bytes(layout.ring_view(reader.ring.view())[1]) == bytes([7]) * 128
        assert bytes(layout.control_view(channel.control.view())[1]) == bytes([9]) * 64
        channel.writer.write(b"x")
        assert read_all(reader) == [b"x"]


def test_receivers_map_the_ring_read_only(domain: str) -> None:
    with owned(domain), joined(domain) as reader:
        assert not reader.ring.writable
        assert reader.ring.view().readonly
        assert reader.control.writable


def test_missing_session_is_gone(domain: str) -> None:
    with pytest.raises(SegmentGone):
        join(domain)


def test_session_of_another_user_than_promised_is_refused(domain: str) -> None:
    with owned(domain):
        for name in (ring_name, control_name):
            os.chown(segment.ROOT / name(domain), os.geteuid(), os.getegid())
        with pytest.raises(
            SegmentRefused, match=f"belongs to uid {os.geteuid()}, but its session belongs to uid 12345"
        ):
            JoinedChannel(ring_name(domain), control_name(domain), who(), owner_uid=12345)
        channel = JoinedChannel(ring_name(domain), control_name(domain), who(), owner_uid=os.geteuid())
        channel.leave()


def test_all_slots_taken_is_an_error_that_names_the_option(domain: str) -> None:
    with owned(domain, slots_max=2), joined(domain, 1) as first, joined(domain, 2) as second:
        with pytest.raises(SlotsFull, match=r"all receiver slots.*transport_.*_maximum_receivers_per_transport"):
            join(domain, 3)
        assert (first.index, second.index) == (0, 1)
        first.leave()
        with joined(domain, 3) as third:
            assert third.index == 0


def test_slot_says_who_holds_it_and_since_when(domain: str) -> None:
    with owned(domain) as channel:
        for generation in (1, 2):
            with joined(domain, 5) as reader:
                slot = slots_of(channel)[reader.index]
                assert (slot["pid"], slot["uid"], slot["context_id"]) == (os.getpid(), os.geteuid(), 5)
                assert slot["generation"] == generation
                assert slot["joined_ns"] > header_of(channel)["start_ns"]
                channel.writer.write(b"x")
                read_all(reader)
                assert slot["msgs_rcved"] == 1
        with joined(domain, 6):
            assert slots_of(channel)[0]["msgs_rcved"] == 0
            assert slots_of(channel)[0]["latency"].sum() == 0


def test_owner_killed_leaves_what_it_published_readable(domain: str) -> None:
    def publish(ready: Flag, go: Flag) -> None:
        channel = OwnedChannel(ring_name(domain), control_name(domain), shape())
        ready.raise_it()
        go.wait()
        channel.writer.write(b"published")
        channel.writer.claim(8)
        os.kill(os.getpid(), 9)

    with Children() as children, Flag() as ready, Flag() as go:
        child = children.run(publish, ready, go)
        children.until(ready)
        reader = join(domain)
        assert reader.owner_lives()
        go.raise_it()
        assert child.wait() == -9
        assert not reader.owner_lives()
        assert read_all(reader) == [b"published"]
        assert not reader.reader.ended
        reader.leave()
    for name in objects(domain):
        segment.remove(name)


def test_forked_child_that_abandons_changes_nothing_for_its_parent(domain: str) -> None:
    with owned(domain) as channel, joined(domain) as reader:

        def abandon() -> None:
            channel.abandon()
            reader.abandon()
            reader.leave()
            channel.abandon()

        with Children() as children:
            children.run(abandon).result()
        assert reader.owner_lives()
        assert channel.slots.reclaim() == []
        channel.writer.write(b"still here")
        assert read_all(reader) == [b"still here"]


def test_forked_child_that_lives_on_does_not_keep_the_locks_of_its_dead_parent(domain: str) -> None:
    """It inherited mappings too, and a mapping keeps its open file alive."""

    def fork_and_die(ready: Flag, until: Flag) -> None:
        channel = OwnedChannel(ring_name(domain), control_name(domain), shape())
        reader = join(domain)
        if os.fork() == 0:
            channel.abandon()
            reader.abandon()
            ready.raise_it()
            until.wait_or_end()
            os._exit(0)
        ready.wait()
        os.kill(os.getpid(), 9)

    with Children() as children, Flag() as ready, Flag() as until:
        assert children.run(fork_and_die, ready, until).wait() == -9
        with joined(domain) as reader:
            assert not reader.owner_lives()
            assert reader.index == 0
        until.raise_it()
    for name in objects(domain):
        segment.remove(name)


def test_owner_in_a_process_that_also_reads_is_alive(domain: str) -> None:
    with owned(domain) as channel, joined(domain) as reader:
        assert reader.owner_lives()
        assert channel.slots.reclaim() == []
        assert not liveness.held_by_other(channel.fd, OWNER_BYTE)


RING_DAMAGE: list[tuple[str, Any]] = [
    ("magic", 1),
    ("layout_id", 1),
    ("kind", layout.KIND_CONTROL),
    ("total_bytes", 0),
    ("total_bytes", 1 << 40),
    ("capacity", 0),
    ("capacity", WINDOW - 1),
    ("capacity", 2 * WINDOW),
    ("capacity", 1 << 63),
    ("data_offset", 0),
    ("data_offset", 8),
    ("data_offset", 2 * PAGE),
    ("data_offset", (1 << 32) - PAGE),
    ("user_offset", (1 << 32) - 1),
    ("user_bytes", (1 << 32) - 1),
    ("pacing", 3),
    ("record_max", 0),
    ("record_max", layout.RECORD_HEADER - 1),
    ("record_max", WINDOW // 2 + 1),
    ("clock", 77),
]

CONTROL_DAMAGE: list[tuple[str, Any]] = [
    ("magic", 1),
    ("layout_id", 1),
    ("kind", layout.KIND_RING),
    ("session_id", 1),
    ("total_bytes", 0),
    ("slots_max", 0),
    ("slots_max", layout.SLOTS_MAX + 1),
    ("slots_max", 5),
    ("slots_offset", (1 << 32) - 64),
    ("slots_offset", 4),
    ("slots_offset", 385),
    ("user_offset", (1 << 32) - 8),
    ("user_offset", 257),
    ("user_bytes", (1 << 32) - 8),
]


@pytest.mark.parametrize(("field", "value"), RING_DAMAGE)
def test_damaged_ring_header_is_refused_and_no_slot_is_touched(domain: str, field: str, value: int) -> None:
    with owned(domain) as channel:
        header_of(channel)[field] = value
        with pytest.raises(SegmentMismatch, match=r"damaged|same release|is not a ring|too small|another clock"):
            join(domain)
        with pytest.raises(SegmentMismatch):
            RingReader(channel.ring, channel.control, 0)
        assert field == "clock" or refuses_writer(channel)
        assert slots_of(channel)[0]["generation"] == 0


@pytest.mark.parametrize(("field", "value"), CONTROL_DAMAGE)
def test_damaged_control_header_is_refused(domain: str, field: str, value: int) -> None:
    with owned(domain) as channel:
        control_of(channel)[field] = value
        with pytest.raises(SegmentMismatch, match=r"damaged|same release|is not a control block|too small"):
            join(domain)
        assert refuses_writer(channel)


def refuses_writer(channel: OwnedChannel) -> bool:
    with pytest.raises(SegmentMismatch):
        RingWriter(channel.ring, channel.control)
    return True


def test_layout_of_another_release_is_refused_with_both_versions(domain: str) -> None:
    with owned(domain) as channel:
        header_of(channel)["layout_id"], header_of(channel)["version"] = 0xABCDEF, 99
        with pytest.raises(SegmentMismatch) as caught:
            join(domain)
    assert "layout 0x00abcdef version 99" in str(caught.value)
    assert f"{layout.LAYOUT_ID:#010x} version {layout.VERSION}" in str(caught.value)


@pytest.mark.parametrize("size", [0, 100, PAGE, 2 * PAGE])
def test_object_that_is_no_ring_is_refused(domain: str, size: int) -> None:
    with owned(domain):
        segment.remove(ring_name(domain))
        fd = segment.create(ring_name(domain), max(size, 1))
        os.ftruncate(fd, size)
        os.close(fd)
        with pytest.raises(SegmentMismatch):
            join(domain)


@pytest.mark.parametrize("size", [0, 100, PAGE])
def test_object_that_is_no_control_block_is_refused(domain: str, size: int) -> None:
    with owned(domain):
        segment.remove(control_name(domain))
        fd = segment.create(control_name(domain), max(size, 1))
        os.ftruncate(fd, size)
        os.close(fd)
        with pytest.raises(SegmentMismatch):
            join(domain)


@pytest.mark.parametrize("index", [-1, 4, 1 << 20])
def test_reader_of_a_slot_that_does_not_exist_is_refused(domain: str, index: int) -> None:
    with (
        owned(domain) as channel,
        pytest.raises(ValueError, match=f"slot {index} does not exist; the ring has slots 0 to 3"),
    ):
        RingReader(channel.ring, channel.control, index)


def test_control_block_is_big_enough_for_its_slots(domain: str) -> None:
    for slots in (1, 20, layout.SLOTS_MAX):
        with owned(domain, slots_max=slots, control_user=8 * slots) as channel:
            assert len(slots_of(channel)) == slots
            last = slots_of(channel)[slots - 1 :]
            last.view(np.uint8)[:] = 0xFF
            assert int(control_of(channel)["slots_max"]) == slots
            last.view(np.uint8)[:] = 0
