"""WAKEUP never comes before its WouldBlock is dealt with, and always comes."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

import ipcbus
from ipcbus import SourceEventType
from ipcbus.runtime.sending import pending_wakeups
from tests.kit.bus import GIVE_UP_S, RECEIVER_PACED
from tests.kit.forms import ReceiveTaker
from tests.kit.payload import body

if TYPE_CHECKING:
    from collections.abc import Callable

    from ipcbus import Context, Source, SourceEvent
    from tests.kit.bus import Bus

pytestmark = pytest.mark.parametrize("kind", RECEIVER_PACED, ids=lambda kind: str(kind.name))


class Wakeups:
    """The WAKEUP events of a source."""

    def __init__(self) -> None:
        self.count = 0
        self.room = threading.Event()

    def __call__(self, event: SourceEvent) -> None:
        if event.type is SourceEventType.WAKEUP:
            self.count += 1
            self.room.set()


class Meddling:
    """A ring's writer; does something between the wish for an event and what follows."""

    def __init__(self, writer: Any, meddle: Callable[[], object]) -> None:  # noqa: ANN401 - as the real one
        self._writer, self._meddle = writer, meddle

    def want_event(self, need: int) -> bool:
        wanted = bool(self._writer.want_event(need))
        self._meddle()
        return wanted

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the real one has
        return getattr(self._writer, name)


def tell_now(context: Context) -> None:
    """Tells the sources of a context what there is to tell, as a turn of its driver does."""
    with context._event_loop.driver_lock():
        context._timers.peers_changed()
        context._timers.run_timers(time.monotonic_ns())


def filled(bus: Bus, wakeups: Wakeups) -> tuple[Source, ReceiveTaker, int]:
    """A source whose ring is full, who holds it up, and how many messages are in it."""
    source = bus.source("t", bus.context("sending"), on_event=wakeups, **bus.kind.small())
    taker = ReceiveTaker(bus, receive_queue_maximum=1)
    bus.joined(source)
    while source._session.channel.writer.has_room(512):
        source.send(bytes(400), flush=True, block=False)
    return source, taker, source.sequence_number + 1


def test_an_event_does_not_overtake_the_refusal(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pending_wakeups, "GRACE_NS", int(GIVE_UP_S * 1e9))  # room may take a busy machine long
    wakeups = Wakeups()
    source, taker, sent = filled(bus, wakeups)

    def make_room_and_tell() -> None:
        taker.data(sent)
        bus.until(lambda: not source._session.writer_waits(), "room")
        tell_now(source._context)

    meddling = Meddling(source._session.channel.writer, make_room_and_tell)
    seen = []
    with monkeypatch.context() as patch:
        patch.setattr(source._session.channel, "writer", meddling)
        try:
            source.send(bytes(400), block=False)
        except ipcbus.WouldBlock:
            tell_now(source._context)
            seen.append(wakeups.count)
    assert seen == [0]
    bus.until(lambda: wakeups.count == 1, "the event")


def test_an_exception_that_is_kept_holds_the_event_for_a_moment_only(bus: Bus) -> None:
    wakeups = Wakeups()
    source, taker, sent = filled(bus, wakeups)
    with pytest.raises(ipcbus.WouldBlock) as kept:
        source.send(bytes(400), block=False)
    taker.data(sent)
    bus.until(lambda: wakeups.count, "the event")
    assert "WAKEUP" in str(kept.value)


def test_an_exception_leaves_nothing_behind_when_it_is_gone(bus: Bus) -> None:
    source, _, _ = filled(bus, Wakeups())
    for _ in range(100):
        with contextlib.suppress(ipcbus.WouldBlock):
            source.send(bytes(400), block=False)
    # No collector has to run: the exception is in no cycle.
    assert source._context._sending_sessions.pending_wakeups._raised == {source._session: {}}
    source.close()
    assert source._context._sending_sessions.pending_wakeups._raised == {}


@pytest.mark.parametrize("rounds", [200, pytest.param(10_000, marks=pytest.mark.long)])
def test_who_waits_for_the_event_after_each_refusal_never_waits_in_vain(bus: Bus, rounds: int) -> None:
    wakeups = Wakeups()
    sending = bus.context("sending")
    source = bus.source("t", sending, on_event=wakeups, **bus.kind.small())
    receiving = bus.context("receiving", mode="embedded")
    receiver = receiving.receiver("t", lambda message: None)
    bus.joined(source)
    refused = 0
    size = source.message_max // 2
    while refused < rounds:
        try:
            source.send(body(0, size), flush=True, block=False)
        except ipcbus.WouldBlock:
            wakeups.room.clear()
            refused += 1
            blocked = True
        else:
            blocked = False
        if blocked and bus.sequential and not sending._thread:
            bus.until(wakeups.room.is_set, "the event")
        elif blocked:
            assert wakeups.room.wait(GIVE_UP_S)
    assert wakeups.count >= 1
    assert receiver.lost == 0
