"""`kill -9` of a receiver or of a source between any two steps of making a control channel."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from ipcbus.resolution.local import object_names, stale_cleanup
from ipcbus.transport.ring.ring_receiver import RingReceiver
from ipcbus.transport.ring.session_pipes import SessionPipes
from ringbuf import segment
from ringbuf.slots import Identity
from tests.kit.sessions import SMALL, Pair
from tests.rings.children import Children, Flag, kill_myself

if TYPE_CHECKING:
    from collections.abc import Callable

    from ipcbus.transport.ring.pipe_link import PipeLink, ReceiverPipeLink

USE_STEPS = ["put: copied", "put: published", "take: copied", "take: released"]
RECEIVER_STEPS = ["request: wanted", "request: called", "attend: mapped", "attend: open", *USE_STEPS]
SOURCE_STEPS = ["make: created", "make: ready", "make: notified", "look: name removed", *USE_STEPS]
QUEUE = 4096


def dying_at(step: str) -> Callable[[str], None]:
    """A checkpoint that ends the process at a step."""
    return lambda name: kill_myself() if name == step else None


def use(link: PipeLink, step: str, frame: bytes) -> None:
    """Puts a frame and takes what there is, and dies at a step of that."""
    if link._pipe is not None:
        link._pipe.checkpoint = dying_at(step)
    link.put(frame)
    link.take()


def pipe_names(domain: str) -> list[str]:
    """The names of pipes of a domain."""
    found = (object_names.parse(name) for name in segment.names(object_names.domain_prefix(domain)))
    return [each[2] for each in found if each is not None and each[2].startswith("p")]


def receiver_of(domain: str, pair: Pair, step: str = "") -> tuple[RingReceiver, ReceiverPipeLink]:
    """A joined receiver with a link that dies at a step."""
    who = Identity(os.getpid(), os.geteuid(), 9, "joining")
    receiver = RingReceiver(domain, pair.sending.advert, who, owner_uid=os.geteuid(), sample_every=1)
    return receiver, receiver.control_link(dying_at(step))


@pytest.mark.parametrize("step", RECEIVER_STEPS)
def test_a_killed_receiver_leaves_nothing_and_the_next_one_gets_a_channel(domain: str, step: str) -> None:
    pair = Pair(domain, **SMALL)

    def receive() -> None:
        _, link = receiver_of(domain, pair, step)
        link.request()
        while True:
            if link.attend():
                use(link, step, b"from the receiver")

    pipes = SessionPipes(pair.sending, queue_bytes=QUEUE)
    frames: list[bytes] = []
    with Children() as children:
        child = children.run(receive)
        while not child.ended():
            for link in pipes.look():
                link.put(b"for the killed one")
                if (frame := link.take()) is not None:
                    frames.append(frame)
        assert set(frames) <= {b"from the receiver"}
        assert child.wait() < 0
        pipes.look()
        pair.sending.channel.slots.reclaim()
        for link in pipes.check():
            assert link.broken
        assert pipes.links == []
        assert pipe_names(domain) == []
    receiver, later = receiver_of(domain, pair)
    later.request()
    pipes.look()
    assert later.attend()
    assert later.take() is None
    (source,) = pipes.links
    source.put(b"mine")
    assert later.take() == b"mine"
    pipes.close()
    later.close()
    receiver.leave()
    pair.close()


@pytest.mark.parametrize("step", SOURCE_STEPS)
def test_a_killed_source_holds_no_receiver_up_and_its_objects_are_removed(
    domain: str, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stale_cleanup, "ORPHAN_AGE_S", 0.0)

    elsewhere = Pair(domain[:-1] + "_", **SMALL)  # an advert does not name its domain
    advert = elsewhere.sending.advert
    elsewhere.close()

    def send() -> None:
        source = Pair(domain, **SMALL)
        pipes = SessionPipes(source.sending, queue_bytes=QUEUE, checkpoint=dying_at(step))
        made.raise_it()
        while True:
            for link in pipes.look():
                use(link, step, b"from the source")

    with Flag() as made, Children() as children:
        child = children.run(send)
        children.until(made)
        who = Identity(os.getpid(), os.geteuid(), 9, "joining")
        receiver = RingReceiver(domain, advert, who, owner_uid=os.geteuid(), sample_every=1)
        link = receiver.control_link()
        link.request()
        frames = []
        while not child.ended():
            link.attend()
            link.put(b"for the killed one")
            if (frame := link.take()) is not None:
                frames.append(frame)
        assert child.wait() < 0
        assert not receiver.owner_lives()
        link.attend()
        while (frame := link.take()) is not None:
            frames.append(frame)
        assert set(frames) <= {b"from the source"}
        link.put(b"to nobody")
        link.close()
        receiver.leave()
    stale_cleanup.sweep(domain)
    assert segment.names(object_names.domain_prefix(domain)) == []
