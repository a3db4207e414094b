"""Bad use and bad luck: typed errors whose texts name the object, the values and the cure."""

from __future__ import annotations

import grp
import logging
import os
import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import ipcbus
from ipcbus import Context
from ipcbus.resolution.local import object_names
from ipcbus.wire import wire_layout
from ringbuf import segment
from ringbuf.layout import RING_HEADER
from tests.kit.bus import GIVE_UP_S, LBTIPC, LBTSMX, RINGS, Bus, Kind
from tests.kit.forms import CallbackTaker
from tests.kit.look import ROOT, objects, rings
from tests.kit.payload import body
from tests.kit.peers import Peers, settled

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

every_kind = pytest.mark.parametrize("kind", RINGS, ids=lambda kind: str(kind.name))
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
NOBODY = 65534


# Options.


def test_an_unknown_option_is_named_with_the_nearest_one(domain: str) -> None:
    with Context(domain=domain, operational_mode="sequential") as context:
        with pytest.raises(ipcbus.ConfigError, match="'transprot'.*scope source.*transport "):
            context.source("t", transprot="lbtsmx")  # type: ignore[call-arg]
        with pytest.raises(ipcbus.ConfigError, match="'receive_queue_max'.*receive_queue_maximum"):
            context.receiver("t", receive_queue_max=5)  # type: ignore[call-arg]
        assert len(objects(domain)) == 2


def test_an_option_of_another_scope_is_named_with_its_own(domain: str) -> None:
    with pytest.raises(ipcbus.ConfigError, match="implicit_batching_interval.*scope context.*scope source"):
        Context({"context": {"implicit_batching_interval": 5}}, domain=domain)
    with Context(domain=domain, operational_mode="sequential") as context:
        with pytest.raises(ipcbus.ConfigError, match="receive_queue_maximum.*scope source.*scope receiver"):
            context.source("t", receive_queue_maximum=5)  # type: ignore[call-arg]
        with pytest.raises(ipcbus.ConfigError, match="operational_mode.*scope receiver.*scope context"):
            context.receiver("t", operational_mode="embedded")  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("option", "value", "limits"),
    [
        ("transport", "pgm", "lbtipc, lbtsmx"),
        ("transport_lbtipc_behavior", "fast", "receiver_paced, source_paced"),
        ("implicit_batching_interval", 2, "from 3"),
        ("implicit_batching_minimum_length", "many", "whole number"),
        ("transport_lbtipc_id", 2**16, "65535"),
        ("transport_lbtsmx_maximum_receivers_per_transport", 65, "64"),
    ],
)
def test_a_value_out_of_range_is_named_with_the_range(domain: str, option: str, value: object, limits: str) -> None:
    with Context(domain=domain, operational_mode="sequential") as context:
        with pytest.raises(ipcbus.ConfigError, match=f"{option}.*{limits}"):
            context.source("t", **{option: value})


def test_a_window_too_small_for_its_datagrams_names_both_options(domain: str) -> None:
    with Context(domain=domain, operational_mode="sequential") as context:
        with pytest.raises(ipcbus.ConfigError, match=r"window_size.*datagram_max_size|datagram_max_size.*window_size"):
            context.source("t", transport="lbtsmx", transport_lbtsmx_transmission_window_size=4096)


def test_a_config_file_with_a_mistake_is_named(domain: str, tmp_path: Path) -> None:
    path = tmp_path / "bus.toml"
    path.write_text("[source]\ntransport = 'lbtipx'\n")
    with pytest.raises(ipcbus.ConfigError, match=r"bus\.toml"):
        Context(path, domain=domain)
    with pytest.raises(ipcbus.ConfigError, match="nowhere"):
        Context(tmp_path / "nowhere.toml", domain=domain)
    with pytest.raises(ipcbus.ConfigError, match="domain"):
        Context(domain="")
    assert objects(domain) == []


def test_an_impossible_mode_is_refused_before_anything_is_made(domain: str) -> None:
    with pytest.raises(ipcbus.ConfigError, match="operational_mode.*embedded, sequential"):
        Context(domain=domain, operational_mode="parallel")
    with pytest.raises(ipcbus.ConfigError, match="context_name"):
        Context(domain=domain, name="x" * 32)
    assert objects(domain) == []


# Messages and handles.


@every_kind
def test_a_message_that_is_too_large_names_the_option(domain: str, kind: Kind) -> None:
    bus = Bus(domain, kind, "sequential")
    source = bus.source(**kind.small())
    assert source.message_max == kind.datagram_max - 16
    source.send(bytes(source.message_max))
    with pytest.raises(ipcbus.MessageTooLarge, match="make the source with message_max=") as raised:
        if kind is LBTSMX:
            source.send(bytes(source.message_max + 1))
        else:  # in place; what is sent otherwise goes in fragments
            source.acquire(source.message_max + 1).__enter__()
    assert str(source.message_max) in str(raised.value)
    assert "'t'" in str(raised.value)
    assert source.sequence_number == 0
    bus.close()


@every_kind
@pytest.mark.parametrize("closed", ["handle", "context"])
def test_a_closed_handle_says_so(domain: str, kind: Kind, mode: str, closed: str) -> None:
    bus = Bus(domain, kind, mode)
    context = bus.context("of interest")
    source, receiver = bus.source("t", context), bus.receiver("t", None, context)
    rows = np.zeros((1, 1), np.uint8)
    if closed == "context":
        context.close()
    else:
        source.close()
        receiver.close()
    uses: list[Callable[[], object]] = [
        lambda: source.send(b"x"),
        lambda: source.send(b"x", flush=True, block=False),
        lambda: source.send_many([b"x"]),
        lambda: source.acquire(1).__enter__(),
        lambda: source.wait_for_receivers(0, 0),
        lambda: receiver.receive(0),
        receiver.receive,
        lambda: receiver.receive_many(1, 0),
        lambda: receiver.receive_into(rows, 0),
    ]
    if closed == "context":
        uses += [lambda: context.source("x"), lambda: context.receiver("x"), lambda: context.process_events(0)]
        uses += [context.fileno]
    for use in uses:
        with pytest.raises(ipcbus.ClosedError, match=r"'t'|'of interest'"):
            use()
    assert list(receiver) == []
    assert "closed" in repr(source) + repr(context)
    bus.close()


@pytest.mark.parametrize("data", ["text", 5, None, [1, 2], object()], ids=lambda data: type(data).__name__)
def test_what_is_not_bytes_like_is_a_type_error(domain: str, data: object) -> None:
    bus = Bus(domain, LBTIPC, "sequential")
    source = bus.source()
    with pytest.raises(TypeError):
        source.send(data)
    with pytest.raises((BufferError, ValueError)):
        source.send(np.zeros((4, 4), np.uint8)[:, 1])
    assert source.sequence_number == -1
    bus.close()


# Shared memory.


@every_kind
def test_too_little_shared_memory_is_told_with_need_and_room(domain: str, kind: Kind, mode: str) -> None:
    bus = Bus(domain, kind, mode)
    context = bus.context()
    stat = os.statvfs(ROOT)
    if not stat.f_blocks or stat.f_bavail * stat.f_frsize > 2**38:
        pytest.skip("this /dev/shm is too large to fill")
    option = f"transport_{kind.transport}_transmission_window_size"
    before = objects(domain)
    with pytest.raises(ipcbus.SharedMemoryFull, match=rf"needs \d+ bytes.*{ROOT}.*are free.*window_size") as raised:
        bus.source("t", context, **{option: 2**39})
    assert isinstance(raised.value, ipcbus.TransportError)
    assert objects(domain) == before
    source = bus.source("t", context)  # a smaller one fits
    taker = CallbackTaker(bus)
    bus.joined(source)
    source.send(b"x", flush=True)
    assert taker.data(1) == [b"x"]
    bus.close()


def test_too_little_room_for_a_context_leaves_nothing(domain: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment, "free_bytes", lambda: 4096)
    with pytest.raises(ipcbus.SharedMemoryFull, match="4096 are free"):
        Context(domain=domain)
    assert objects(domain) == []


def test_too_little_room_for_the_second_object_takes_the_first_back(
    domain: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Context(domain=domain, operational_mode="sequential") as context:
        before = objects(domain)
        monkeypatch.setattr(segment, "free_bytes", lambda: 600_000)  # the control block fits, the ring does not
        with pytest.raises(ipcbus.SharedMemoryFull, match="ipcbus"):
            context.source("t")
        assert objects(domain) == before


def test_a_registry_that_cannot_grow_is_told(domain: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with Context(domain=domain, operational_mode="sequential") as context:
        monkeypatch.setattr(segment, "free_bytes", lambda: 0)
        with pytest.raises(ipcbus.SharedMemoryFull):
            for number in range(1000):
                context.receiver(f"topic {number}")
        monkeypatch.undo()
        with pytest.MonkeyPatch.context() as patch:
            before = objects(domain)
            patch.setattr(segment, "free_bytes", lambda: 2**30 if len(objects(domain)) < 4 else 0)
            with pytest.raises(ipcbus.SharedMemoryFull):
                context.source("t")
            assert objects(domain) == before
        source = context.source("t")
        source.wait_for_receivers(0, 0)


# Other layouts.


def damage(name: str, offset: int, value: int) -> None:
    """Changes a 32-bit word of an object."""
    with open(f"{ROOT}/{name}", "r+b") as file:
        file.seek(offset)
        file.write(value.to_bytes(4, "little"))


def offset_of(kind: np.dtype[np.void], field: str) -> int:
    """Where a field lies in a structure."""
    assert kind.fields is not None
    return int(kind.fields[field][1])


def test_a_registry_of_another_layout_is_not_read_and_that_is_logged(
    domain: str, mode: str, caplog: pytest.LogCaptureFixture
) -> None:
    bus = Bus(domain, LBTIPC, mode)
    source = bus.source()
    (registry,) = [name for name in objects(domain) if name.endswith("." + object_names.REGISTRY)]
    damage(registry, offset_of(wire_layout.REGISTRY_HEADER, "layout_id"), 0x1234567)
    with caplog.at_level(logging.WARNING, "ipcbus"):
        receiver = bus.receiver()
        bus.turn()
        assert receiver.sessions == []
    assert source.receivers == 0
    (record,) = caplog.records
    assert "0x01234567" in record.getMessage()
    assert f"{wire_layout.LAYOUT_ID:#010x}" in record.getMessage()
    assert "same release" in record.getMessage()
    assert f"was made by ipcbus {ipcbus.__version__} with layout" in record.getMessage()
    damage(registry, offset_of(wire_layout.REGISTRY_HEADER, "layout_id"), wire_layout.LAYOUT_ID)
    bus.close()


@pytest.mark.parametrize(
    ("field", "reason"),
    [("layout_id", "0x01234567.*same release"), ("session_id", "expected.*01234567"), ("kind", "not a ring")],
)
def test_a_ring_of_another_layout_is_not_joined_and_says_why(domain: str, mode: str, field: str, reason: str) -> None:
    bus = Bus(domain, LBTIPC, mode)
    source = bus.source(udp_fallback="none")
    damage(rings(domain)[0], offset_of(RING_HEADER, field), 0x1234567)
    receiver = bus.receiver()
    (session,) = receiver.sessions
    assert (session.source, session.state, session.owner_pid) == (source.source, "refused", os.getpid())
    assert re.search(reason, session.reason)
    assert source.receivers == 0
    bus.close()


def test_a_ring_that_is_cut_short_is_not_joined(domain: str) -> None:
    bus = Bus(domain, LBTIPC, "sequential")
    bus.source(udp_fallback="none")
    # Only to look at; the owner maps the whole of it and must not send any more.
    os.truncate(f"{ROOT}/{rings(domain)[0]}", 100)
    (session,) = bus.receiver().sessions
    assert session.state == "refused"
    assert "100 bytes" in session.reason
    bus.close()


# Places and permissions.


@pytest.mark.parametrize("kind", [LBTIPC, LBTSMX], ids=lambda kind: str(kind.name))
def test_a_session_without_a_free_place_says_so_until_one_is_free(domain: str, kind: Kind, mode: str) -> None:
    bus = Bus(domain, kind, mode)
    most = {f"transport_{kind.transport}_maximum_receivers_per_transport": 2}
    source = bus.source(**most, udp_fallback="none")
    seated = [bus.receiver("t") for _ in range(2)]
    bus.joined(source, 2)
    context = bus.context("standing", resolution_scan_interval=10)
    standing = CallbackTaker(bus, context=context)
    (session,) = standing.receiver.sessions
    assert (session.source, session.state) == (source.source, "refused")
    assert "maximum_receivers_per_transport" in session.reason
    assert "all receiver slots" in session.reason
    seated[0].close()
    bus.until(lambda: standing.receiver.sessions[0].state == "joined", "the place")
    source.send(b"x", flush=True)
    assert standing.data(1) == [b"x"]
    bus.close()


@as_root
def test_another_user_is_told_why_it_may_not_join(domain: str, peers: Peers, mode: str) -> None:
    bus = Bus(domain, LBTIPC, "embedded")
    source = bus.source(udp_fallback="none")
    stranger = peers.start("")
    stranger.do("become", uid=NOBODY, gid=NOBODY)
    stranger.do("open", domain=domain, mode=mode)
    stranger.do("receiver", topic="t")
    (session,) = stranger.do("await_sessions", topic="t", count=1, state="refused")
    assert (session["source"], session["pid"]) == (source.source, os.getpid())
    assert "uid 0" in session["reason"]
    assert f"uid {NOBODY}" in session["reason"]
    assert "shared_memory_group" in session["reason"]
    assert source.receivers == 0
    bus.close()


@as_root
def test_another_user_of_the_group_may_join(domain: str, peers: Peers, mode: str) -> None:
    group = {"shared_memory_group": grp.getgrgid(NOBODY).gr_name}
    bus = Bus(domain, LBTIPC, "embedded")
    source = bus.source("t", bus.context("sending", **group))
    member = peers.start("")
    member.do("become", uid=NOBODY, gid=NOBODY)
    member.do("open", domain=domain, mode=mode, **group)
    member.do("receiver", topic="t")
    source.wait_for_receivers(1, GIVE_UP_S)
    for number in range(100):
        source.send(body(number), flush=True)
    settled(member, "t", source.source, 100)
    bus.close()


@as_root
def test_a_hidden_context_is_not_seen_by_another_user(domain: str, peers: Peers) -> None:
    bus = Bus(domain, LBTIPC, "embedded")
    bus.source("t", bus.context("hidden", registry_hidden=True))
    stranger = peers.start("")
    stranger.do("become", uid=NOBODY, gid=NOBODY)
    stranger.do("open", domain=domain)
    stranger.do("receiver", topic="t")
    assert stranger.do("await_sessions", topic="t", count=0, state="refused") == []
    assert stranger.do("await_sessions", topic="t", count=0) == []
    bus.close()


@as_root
def test_another_user_does_not_sweep_what_is_not_its_own(domain: str, peers: Peers) -> None:
    owner, stranger = peers.start(), peers.start("")
    owner.do("source", topic="t")
    stranger.do("become", uid=NOBODY, gid=NOBODY)
    stranger.do("open", domain=domain)
    owner.kill()
    assert stranger.do("sweep") == []
    with Context(domain=domain):
        pass
    assert len(objects(domain)) == 2


def test_errors_are_one_tree() -> None:
    for name in ipcbus.__all__:
        found: Any = getattr(ipcbus, name)
        if isinstance(found, type) and issubclass(found, Exception):
            assert issubclass(found, ipcbus.IpcBusError)
