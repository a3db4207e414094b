"""What is left in shared memory: nothing, however a program ends; and what the sweep must not touch."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import ipcbus
from ipcbus import Context
from ipcbus.resolution.local import object_names
from ipcbus.resolution.local.stale_cleanup import ORPHAN_AGE_S, sweep
from tests.kit.bus import GIVE_UP_S, RINGS, Bus, Kind, mode_options
from tests.kit.look import ROOT, objects
from tests.unit.sources import ROOT as REPOSITORY

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.kit.peers import Peers

every_kind = pytest.mark.parametrize("kind", RINGS, ids=lambda kind: str(kind.name))


@every_kind
def test_open_handles_have_objects_and_closed_ones_have_none(domain: str, kind: Kind, mode: str) -> None:
    bus = Bus(domain, kind, mode)
    assert objects(domain) == []
    context = bus.context()
    assert len(objects(domain)) == 2  # registry and doorbell
    sources = [bus.source(topic, context, **kind.small(), **kind.id(700 + n // 2)) for n, topic in enumerate("abc")]
    assert len(objects(domain)) == 2 + 2 * 2  # two sessions: ring and control block each
    sources[0].close()
    assert len(objects(domain)) == 6
    sources[1].close()
    assert len(objects(domain)) == 4
    receiver = bus.receiver("c", None, context)
    assert len(objects(domain)) == 4
    receiver.close()
    context.close()
    context.close()
    assert objects(domain) == []


@every_kind
def test_closing_handles_twice_and_in_any_order_is_fine(domain: str, kind: Kind, mode: str) -> None:
    bus = Bus(domain, kind, mode)
    context = bus.context()
    source, receiver = bus.source("t", context), bus.receiver("t", None, context)
    context.close()
    for _ in range(2):
        source.close()
        receiver.close()
        context.close()
    assert source.closed
    assert receiver.closed
    assert objects(domain) == []


@every_kind
def test_names_are_portable_and_only_for_this_user(domain: str, kind: Kind) -> None:
    bus = Bus(domain, kind, "sequential")
    bus.source()
    bus.receiver()
    for name in objects(domain):
        assert len(name) <= 30
        assert name.startswith("ipcbus.")
        mode = os.stat(f"{ROOT}/{name}").st_mode & 0o777
        assert mode == (0o644 if name.endswith("." + object_names.REGISTRY) else 0o600), name
    bus.close()


def test_a_hidden_registry_is_only_for_this_user(domain: str) -> None:
    with Context({"context": {"registry_hidden": True}}, domain=domain):
        assert {os.stat(f"{ROOT}/{name}").st_mode & 0o777 for name in objects(domain)} == {0o600}


def test_long_and_odd_domains_have_objects_of_their_own(domain: str) -> None:
    odd = [domain + "x" * 55, domain + "..", domain + ".a", domain.upper(), "ä" + domain]
    contexts = [Context(domain=each, operational_mode="sequential") for each in odd]
    assert len({object_names.domain_tag(each) for each in odd}) == len(odd)
    for each in odd:
        assert len(objects(each)) == 2
        assert all(len(name) <= 30 and "/" not in name for name in objects(each))
    for context in contexts:
        context.close()
    assert [name for each in odd for name in objects(each)] == []


@pytest.mark.parametrize("how", ["exit", "end"])
def test_a_program_that_closes_nothing_leaves_nothing(domain: str, peers: Peers, mode: str, how: str) -> None:
    peer = peers.start(mode)
    peer.do("source", topic="t")
    peer.do("receiver", topic="t")
    if how == "exit":
        peer.start("exit")
    peer.end()
    assert objects(domain) == []


def test_a_program_that_drops_its_context_leaves_nothing(domain: str, peers: Peers, mode: str) -> None:
    peer = peers.start(mode)
    peer.do("source", topic="t")
    peer.do("receiver", topic="t")
    peer.do("drop")
    peer.end()
    assert objects(domain) == []


def test_a_handle_works_on_when_its_context_is_dropped(domain: str, mode: str) -> None:
    def made() -> tuple[ipcbus.Source, ipcbus.Receiver]:
        context = Context({"context": mode_options(mode)}, domain=domain)
        return context.source("t"), context.receiver("t")

    source, receiver = made()
    source.wait_for_receivers(1, GIVE_UP_S)
    source.send(b"x", flush=True)
    got = [receiver.receive(GIVE_UP_S), receiver.receive(GIVE_UP_S)]
    assert [message.data for message in got if message] == [b"", b"x"]
    source._context.close()


SCRIPT = """
import json, signal, sys
import ipcbus
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job inherits it ignored
context = ipcbus.Context({"context": json.loads(sys.argv[2])}, domain=sys.argv[1])
source = context.source("t")
receiver = context.receiver("t")
source.wait_for_receivers(1, 30)
print("ready", flush=True)
while True:
    source.send(b"x" * 100)
    receiver.receive(0.01)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["Ctrl-C", "SIGTERM"])
def test_a_program_ended_by_a_signal_leaves_nothing_for_long(domain: str, mode: str, number: signal.Signals) -> None:
    program = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, domain, json.dumps(mode_options(mode))],
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with program:
        assert program.stdout is not None
        assert program.stderr is not None
        assert program.stdout.readline() == "ready\n"
        program.send_signal(number)
        said = program.stderr.read()
    if number is signal.SIGINT:
        assert "KeyboardInterrupt" in said
        assert said.count("Traceback") == 1
    else:  # no Python runs in it any more; the next context clears up
        Context(domain=domain).close()
    assert objects(domain) == []


# The sweep.


def test_the_sweep_leaves_other_domains_and_the_living_alone(domain: str, peers: Peers) -> None:
    with Context(domain=domain + "x") as other, Context(domain=domain) as living:
        living.source("t")
        other.source("t")
        peer = peers.start()
        peer.do("source", topic="t")
        before, others = objects(domain), objects(domain + "x")
        assert sweep(domain) == []
        peer.kill()
        gone = sweep(domain)
        assert len(gone) == 4
        assert objects(domain) == sorted(set(before) - set(gone))
        assert objects(domain + "x") == others


def test_two_sweeps_at_once_harm_nobody(domain: str, peers: Peers) -> None:
    doomed = peers.several(3)
    sweepers = peers.several(2)
    for number, peer in enumerate(doomed):
        peer.do("source", topic=f"t{number}")
        peer.kill()
    for sweeper in sweepers:
        sweeper.start("sweep")
    gone = [name for sweeper in sweepers for name in sweeper.finish()]
    # A living context's own sweep may have been there first.
    assert len(gone) == len(set(gone)) <= 12
    assert len(objects(domain)) == 4
    for number, sweeper in enumerate(sweepers):
        sweeper.do("source", topic=f"of {number}")


def test_objects_without_a_registry_go_when_they_are_old(domain: str) -> None:
    path = Path(ROOT) / object_names.ring(domain, 0x1234, 0)
    path.write_bytes(bytes(4096))
    assert sweep(domain) == []  # somebody may be just starting
    now = time.time()
    real = time.time
    try:
        time.time = lambda: now + 2 * ORPHAN_AGE_S
        assert sweep(domain) == [path.name]
    finally:
        time.time = real
    assert objects(domain) == []


def test_what_only_looks_like_an_object_of_ours_is_left_alone(domain: str) -> None:
    strange = [f"ipcbus.{domain}.notours", f"ipcbus.{domain}.00000001.x9", f"ipcbus.{domain}.00000001"]
    for name in strange:
        (Path(ROOT) / name).write_bytes(b"")
    with Context(domain=domain):
        assert set(strange) <= set(objects(domain))
    for name in strange:
        (Path(ROOT) / name).unlink()


@pytest.mark.parametrize("what", ["link", "pipe", "directory", "empty", "short", "zeros"])
def test_what_somebody_puts_in_the_place_of_a_registry_stops_nobody(domain: str, tmp_path: Path, what: str) -> None:
    planted = Path(ROOT) / object_names.registry(domain, 1)
    target = tmp_path / "precious"
    target.write_bytes(b"data" * 4096)
    make: dict[str, Callable[[], object]] = {
        "link": lambda: planted.symlink_to(target),
        "pipe": lambda: os.mkfifo(planted),
        "directory": planted.mkdir,
        "empty": planted.touch,
        "short": lambda: planted.write_bytes(b"x"),
        "zeros": lambda: planted.write_bytes(bytes(65536)),
    }
    make[what]()
    if os.geteuid() == 0:  # as another user's, it is not swept either
        os.chown(planted, 65534, 65534, follow_symlinks=False)
        if what != "link":
            planted.chmod(0o777)
    try:
        with Context(domain=domain) as context:
            receiver, source = context.receiver("t"), context.source("t")
            source.wait_for_receivers(1, GIVE_UP_S)
            source.send(b"x", flush=True)
            got = [receiver.receive(GIVE_UP_S), receiver.receive(GIVE_UP_S)]
            assert [message.data for message in got if message] == [b"", b"x"]
    finally:
        if planted.is_dir() and not planted.is_symlink():
            planted.rmdir()
        planted.unlink(missing_ok=True)
    assert target.read_bytes() == b"data" * 4096
