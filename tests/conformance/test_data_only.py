"""Callbacks that get the data only, and receivers without events: every message comes, and no event does."""

from __future__ import annotations

import gc
import logging
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import ipcbus
from ipcbus import MessageType
from ipcbus.errors import ConfigError
from tests.kit.bus import LBTIPC, RECEIVER_PACED, Bus
from tests.kit.guaranteed import MEMORY, acknowledged, expected, send, source
from tests.kit.look import advert, callback_errors
from tests.kit.payload import body

if TYPE_CHECKING:
    from collections.abc import Callable

    from ipcbus import Source
    from tests.kit.forms import Taker

takes = pytest.mark.parametrize("takes", ["on_data", "on_view"])
receiver_paced = pytest.mark.parametrize("kind", RECEIVER_PACED, ids=lambda kind: str(kind.name))
on_one = pytest.mark.parametrize("kind", [LBTIPC], ids=lambda kind: str(kind.name))


class Given:
    """A receiver of data only; `got` is all that its callback got."""

    def __init__(self, bus: Bus, takes: str, topic: str = "t", *, wildcard: bool = False, **options: Any) -> None:  # noqa: ANN401
        self.got: list[bytes] = []
        self._type = bytes if takes == "on_data" else memoryview
        self._bus = bus
        context = bus.context("receiving")
        make = context.wildcard_receiver if wildcard else context.receiver
        self.receiver = make(topic, **{takes: self.take, **options})

    def take(self, data: bytes | memoryview) -> None:
        assert type(data) is self._type
        self.got.append(bytes(data))

    def until(self, sent: list[bytes]) -> None:
        """Waits until everything that was sent has come; then nothing more may."""
        self._bus.until(lambda: len(self.got) >= len(sent), f"{len(sent)} messages")
        assert self.got == sent


def sent_in_turns(bus: Bus, count: int) -> Source:
    """The source of the smallest ring after so many messages of 500 bytes, each with a turn of the receiver."""
    sending = bus.source(**bus.kind.small())
    bus.joined(sending)
    for number in range(count):
        sending.send(body(number, 500), flush=True)
        bus.turn()
    return sending


@takes
def test_every_payload_comes_and_no_event_does(bus: Bus, takes: str) -> None:
    given = Given(bus, takes)
    sending = bus.source()
    bus.joined(sending)
    sent = [b"", *(body(number, 16 + number * 13 % 200) for number in range(100))]
    for data in sent:
        sending.send(data)
    if bus.kind.batches:
        sent.append(body(101, 20_000))  # in fragments
        sending.send(sent[-1])
    sent.append(b"with headers")
    sending.send(sent[-1], headers=[("name", b"value")])
    sent.append(b"behind them")
    sending.send(sent[-1])
    sending.close()
    given.until(sent)
    bus.until(lambda: advert(bus.contexts[0]).receivers[0].events == 2, "BOS and EOS, which are counted")
    assert given.got == sent
    assert (given.receiver.delivered, given.receiver.lost, callback_errors(given.receiver)) == (len(sent), 0, 0)


def test_no_form_of_receiving_gets_events_if_it_wants_none(bus: Bus, form: type[Taker]) -> None:
    taker = form(bus, events=False, row=16)
    for count in (5, 10):  # the second source begins behind the end of the first one
        sending = bus.source()
        bus.joined(sending)
        for number in range(count - 5, count):
            sending.send(body(number, 16))
        sending.close()
        assert taker.data(count) == [body(number, 16) for number in range(count)]
    assert set(taker.kinds) == {MessageType.DATA}


@takes
@on_one
def test_what_was_sent_before_and_other_topics_of_a_pattern_come_too(bus: Bus, takes: str) -> None:
    sendings = [bus.source(f"t.{number}", late_join=1) for number in range(2)]
    sent = [body(number) for number in range(50)]
    for data in sent[:40]:
        sendings[0].send(data)
    given = Given(bus, takes, r"t\..*", wildcard=True)
    given.until(sent[:40])
    bus.joined(sendings[1])
    for data in sent[40:]:
        sendings[1].send(data)
    given.until(sent)


@takes
@receiver_paced
def test_a_view_ends_with_its_callback_and_what_was_made_of_it_does_not(bus: Bus, takes: str) -> None:
    views: list[Any] = []
    arrays: list[Any] = []

    def keep(data: bytes | memoryview) -> None:
        views.append(data)
        if len(views) == 5:
            arrays.append(np.frombuffer(data, np.uint8))

    bus.receiver("t", **{takes: keep})
    sent_in_turns(bus, 400)  # several times round the ring
    bus.until(lambda: len(views) == 400, "the messages")
    gc.collect()
    assert arrays[0].tobytes() == body(4, 500)
    if takes == "on_data":
        assert views == [body(number, 500) for number in range(400)]
        return
    with pytest.raises(ValueError, match="released memoryview"):
        bytes(views[0])


@takes
def test_exceptions_are_counted_and_delivery_goes_on(bus: Bus, takes: str, caplog: pytest.LogCaptureFixture) -> None:
    got: list[bytes] = []

    def fail(data: bytes | memoryview) -> None:
        got.append(bytes(data))
        raise KeyError(len(got))

    with caplog.at_level(logging.ERROR, "ipcbus"):
        receiver = bus.receiver("t", **{takes: fail})
        sending = bus.source()
        bus.joined(sending)
        for number in range(20):
            sending.send(body(number))
        sending.close()
        bus.until(lambda: callback_errors(receiver) == 20, "the errors")
    assert got == [body(number) for number in range(20)]
    assert sum(record.exc_info is not None for record in caplog.records) == 1


@takes
@receiver_paced
def test_a_queue_gives_its_own_copy(bus: Bus, takes: str) -> None:
    kept: list[bytes | memoryview] = []
    with ipcbus.EventQueue() as queue:
        bus.receiver("t", event_queue=queue, **{takes: kept.append})
        sent_in_turns(bus, 100).close()
        bus.until(lambda: len(queue) == 100, "the messages, without events")
        assert queue.dispatch(0) == 100
        assert [bytes(data) for data in kept] == [body(number, 500) for number in range(100)]


@takes
@on_one
def test_a_guaranteed_message_is_acknowledged_when_the_callback_has_returned(bus: Bus, takes: str) -> None:
    got: list[bytes] = []
    pending: list[int] = []

    def take(data: bytes | memoryview) -> None:
        got.append(bytes(data))
        pending.append(sending.gmd_num_pending)
        if len(got) in (3, 4):
            raise KeyError(len(got))

    bus.receiver("t", gmd_name="receiver", **MEMORY, **{takes: take})
    sending = source(bus)
    expected(bus, sending, "receiver")
    send(bus, sending, 10)
    acknowledged(bus, sending)
    assert sorted(set(got)) == sorted(body(number) for number in range(1, 11))
    assert len(got) == 12  # the third one, and the fourth one or the third one again, came once more
    assert min(pending) > 0


@takes
@on_one
def test_the_data_of_a_request_comes_and_cannot_be_answered(bus: Bus, takes: str) -> None:
    given = Given(bus, takes)
    sending = bus.source()
    bus.joined(sending)
    with pytest.raises(ipcbus.RequestTimeout):
        sending.request(b"?", timeout=0.05)
    given.until([b"?"])


@on_one
@pytest.mark.parametrize("mode", ["embedded"])
@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"on_message": print, "on_data": print}, "on_message and on_data are given"),
        ({"on_data": print, "on_view": print}, "on_data and on_view are given"),
        ({"on_data": 5}, "on_data = 5 cannot be called"),
        ({"on_view": "f"}, "on_view = 'f' cannot be called"),
        ({"events": 0}, "events = 0: give True, or False"),
        ({"on_data": print, "gmd_name": "n", "ipc_gmd_auto_ack": False}, "on_data gets no message that it could ack"),
    ],
)
def test_what_contradicts_itself_is_refused(bus: Bus, options: dict[str, Any], text: str) -> None:
    context = bus.context("refusing")
    makes: list[Callable[..., object]] = [context.receiver, context.wildcard_receiver]
    for make in makes:
        with pytest.raises(ConfigError, match=text):
            make("t", **options)
