"""What the channels of a session do when a receiver calls; the conformance suites have the rest."""

from __future__ import annotations

import time
from contextlib import contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast
from unittest.mock import Mock

from ipcbus.config import Config
from ipcbus.recovery.control_channel import ControlChannel
from ipcbus.runtime.sending.control_channels import ControlChannels, SessionChannels
from ipcbus.runtime.sending.response_taker import ResponseTaker
from tests.kit.pipe_stage import PipeStage

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ipcbus.runtime.sending.guaranteed_sources import GuaranteedSources
    from ipcbus.runtime.sending.shared_sources import SharedSources
    from ipcbus.transport.udp.udp_sender import UdpSender

MESSAGE = bytes(16_384)
MANY = 40
"""Messages that fill the queue of the pipe and then wait in the channel."""


@contextmanager
def served_stage(
    domain: str, context: dict[str, object] | None = None, **guaranteed: object
) -> Iterator[tuple[PipeStage, SessionChannels]]:
    """A session with its control channels."""
    stage = PipeStage(domain)
    options = Config({"context": context or {}}).values("context")
    sources = SimpleNamespace(**{"any": False, "lost": lambda *_: None, "inlet": lambda _: None} | guaranteed)
    responses = ResponseTaker(lambda *_: 0, lambda _: None)
    guaranteeing = cast("GuaranteedSources", sources)
    shares = cast("SharedSources", SimpleNamespace(lost=lambda *_: None, serve=lambda *_: None))
    made = SessionChannels(stage.pair.sending, options, responses, lambda: None, guaranteeing, shares, lambda: 0)
    try:
        yield stage, made
    finally:
        made.close()
        stage.close()


def test_a_call_for_room_sends_what_waits_and_tells_the_guaranteed_sources(domain: str) -> None:
    with_room: list[object] = []
    context: dict[str, object] = {"control_channel_size": 65_536}
    with served_stage(domain, context, any=True, has_room=with_room.append) as (stage, served):
        _, link = stage.join()
        receiver = ControlChannel(link, queue_max=1 << 20, message_max=1 << 20)
        link.request()
        served.look()
        assert link.attend()
        served.look()
        link.put(b"?")
        served.look()
        (peer,) = served._peers
        for _ in range(MANY):
            assert served.send(peer, MESSAGE, bulk=True)
        got = 0
        while got < MANY:
            before = got
            while receiver.receive() is not None:
                got += 1
            assert got > before, f"the source has not gone on after {got} of {MANY} messages"
            served.look()
        assert with_room
        assert set(map(id, with_room)) == {id(stage.pair.sending)}


def test_a_receiver_without_a_channel_may_be_about_to_ask(domain: str) -> None:
    with served_stage(domain) as (stage, served):
        joined, link = stage.join()
        assert not served.is_recovering(0, time.monotonic_ns())
        link.request()
        assert served.is_recovering(0, time.monotonic_ns())
        served.look()
        later_ns = time.monotonic_ns() + 10**12
        (context_id,) = served.pipes.opening()
        assert served.is_recovering(0, later_ns)
        assert not served.is_recovering(0, later_ns, {context_id})
        assert served.is_recovering(0, time.monotonic_ns(), {context_id})
        assert link.attend()
        served.look()
        assert served.pipes.opening() == []
        assert not served.is_recovering(0, later_ns)
        del joined


def test_a_client_over_the_network_counts_from_the_moment_it_has_come(domain: str) -> None:
    with served_stage(domain) as (stage, served):
        clients = SimpleNamespace(changes=0, addresses=())
        sender = SimpleNamespace(reliable_sender=clients, take_opened=lambda: [], close_links=lambda: None)
        stage.pair.sending.udp_sender = cast("UdpSender", sender)
        try:
            now_ns = time.monotonic_ns()
            assert not served.is_recovering(0, now_ns)
            clients.changes, clients.addresses = 1, (1,)
            assert served.is_recovering(0, now_ns)  # the driver has yet to take note
            served._note_call()
            later_ns = served._called_ns + 999_000_000
            assert served.is_recovering(0, later_ns)
            assert not served.is_recovering(0, later_ns + 1_000_000)
            clients.changes, clients.addresses = 2, ()
            assert not served.is_recovering(0, later_ns + 1_000_000)  # it has left
        finally:
            stage.pair.sending.udp_sender = None


def test_a_receiver_that_has_not_read_everything_still_recovers_and_may_then_ask_for_more(domain: str) -> None:
    options: dict[str, object] = {"control_channel_size": 65_536}
    with served_stage(domain, options, any=True, has_room=lambda _: None) as (stage, served):
        _, link = stage.join()
        receiver = ControlChannel(link, queue_max=1 << 20, message_max=1 << 20)
        link.request()
        served.look()
        assert link.attend()
        link.put(b"?")
        served.look()
        later_ns = time.monotonic_ns() + 10**12
        assert not served.is_recovering(0, later_ns)
        (peer,) = served._peers
        for _ in range(MANY):
            assert served.send(peer, MESSAGE, bulk=True)
        got = 0
        while got < MANY:
            later_ns += 10**12
            assert served.is_recovering(0, later_ns), f"{MANY - got} messages still wait"
            got += receiver.receive() is not None
            served.look()
        assert served.is_recovering(0, later_ns + 1)
        assert not served.is_recovering(0, later_ns + 10**12)


def test_the_first_call_after_the_last_receiver_has_left_rings_the_doorbell(domain: str) -> None:
    with served_stage(domain) as (stage, served):
        joined, link = stage.join()
        link.request()
        served.look()
        assert link.attend()
        link.put(b"?")
        served.look()
        assert len(served._channels) == 1
        link.close()
        joined.leave()
        stage.pair.sending.channel.slots.reclaim()
        served.check()
        assert not served.any
        stage.hear()
        _, later = stage.join()
        later.request()
        assert stage.hear()[0]


def test_a_call_hurries_the_loop_unless_the_driver_looks_right_after_its_read() -> None:
    hurry = Mock()
    channels = ControlChannels(Mock(), Mock(), hurry, Mock(), Mock(), Mock())
    channels.looks_after_read = True
    channels._note_call()
    assert channels.is_called
    assert not hurry.called
    channels.looks_after_read = False
    channels._note_call()
    assert hurry.call_count == 1
