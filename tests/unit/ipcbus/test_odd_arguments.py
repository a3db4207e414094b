"""The public face with arguments that cannot be meant: each is refused with a text, or works; nothing hangs."""

from __future__ import annotations

import asyncio
import copy
import decimal
import fractions
import math
import pickle
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import ipcbus
from ipcbus import stats
from ipcbus.delivery.received_message import Origin, whole_message
from ipcbus.errors import ConfigError, IpcBusError, MessageTooLarge
from tests.kit.bus import GIVE_UP_S
from tests.kit.cases import each_of
from tests.kit.look import objects

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ipcbus import Context, Receiver, Source

ODD: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1.5, -0.5, math.nan, math.inf, -math.inf, 2**31, 2**64, -(2**64), 10**400, 1j),
    *("", "x", "1", "\ud800", "a\0b", "a/b", "ä" * 200, b"", b"\xff", [], [1], {}, {1: 2}, {"x": {}}, object(), print),
    *(np.float64("nan"), np.float32(-1), np.int64(-1), np.bool_(True), np.zeros(0), np.zeros((2, 2), object)),
    *(np.array("x"), decimal.Decimal("NaN"), fractions.Fraction(-1, 3), range(3), memoryview(b"abcd")[::2], type),
)
REFUSED = (IpcBusError, TypeError, ValueError, BufferError)
RAW = (UnicodeError, OSError)
"""Of which some are kinds of those: a text of Python's own does not name the object and the cure."""
NO_TIMES: tuple[Any, ...] = (
    True,
    "x",
    "1",
    math.nan,
    b"",
    [],
    object(),
    1j,
    np.bool_(True),
    np.float64("nan"),
    decimal.Decimal(1),
)


def message_of(data: bytes) -> ipcbus.Message:
    """A message as a pull returns it."""
    return whole_message(Origin("t", "s"), data, 0, 0, 0, 0, None)


class Stand:
    """A context that sends to itself."""

    def __init__(self, domain: str, mode: str) -> None:
        self.context: Context = ipcbus.Context(domain=domain, operational_mode=mode)
        self.receiver: Receiver = self.context.receiver("t")
        self.source: Source = self.context.source("t")
        self.source.wait_for_receivers(1, GIVE_UP_S)
        self.queue = ipcbus.EventQueue(100_000)
        self.context.receiver("t", lambda message: None, event_queue=self.queue)
        self.source.wait_for_receivers(1, GIVE_UP_S)

    def ready(self) -> None:
        """Has something for every call that would wait."""
        self.source.send(b"abcd", flush=True)
        if self.context._sequential:
            self.context.process_events(0)
        message = self.receiver.receive(GIVE_UP_S)
        assert message is not None
        self.receiver._sink.queue.appendleft(message)

    def reserve(self, length: Any) -> None:  # noqa: ANN401
        with self.source.acquire(length) as view:
            view[:] = bytes(len(view))

    def process(self, timeout: Any) -> int:  # noqa: ANN401
        self.source.send(b"x", flush=True)
        return self.context.process_events(timeout)

    def calls(self, domain: str) -> dict[str, Callable[[Any], object]]:
        """Every public call with one argument that is odd."""
        made, receiver, source, queue = self.context, self.receiver, self.source, self.queue
        array = np.zeros((4, 4), np.uint8)

        def closed(handle: Any) -> None:  # noqa: ANN401
            handle.close()

        return {
            "Context(config)": lambda odd: closed(ipcbus.Context(odd, domain=domain)),
            "Context(name)": lambda odd: closed(ipcbus.Context(name=odd, domain=domain)),
            "Context(domain)": lambda odd: closed(ipcbus.Context(domain=odd)),
            "Context(mode)": lambda odd: closed(ipcbus.Context(domain=domain, operational_mode=odd)),
            "source(topic)": lambda odd: closed(made.source(odd)),
            "source(on_event)": lambda odd: closed(made.source("u", on_event=odd)),
            "source(transport)": lambda odd: closed(made.source("u", transport=odd)),
            "source(id)": lambda odd: closed(made.source("u", transport_lbtipc_id=odd)),
            "receiver(topic)": lambda odd: closed(made.receiver(odd)),
            "receiver(on_message)": lambda odd: closed(made.receiver("u", odd)),
            "receiver(on_data)": lambda odd: closed(made.receiver("u", on_data=odd)),
            "receiver(on_view)": lambda odd: closed(made.receiver("u", on_view=odd)),
            "receiver(events)": lambda odd: closed(made.receiver("u", events=odd)),
            "receiver(event_queue)": lambda odd: closed(made.receiver("u", print, event_queue=odd)),
            "receiver(source_notification)": lambda odd: closed(made.receiver("u", source_notification=odd)),
            "wildcard(pattern)": lambda odd: closed(made.wildcard_receiver(odd)),
            "wildcard(on_create)": lambda odd: closed(made.wildcard_receiver("u", on_create=odd)),
            "process_events": self.process,
            "receive": receiver.receive,
            "receive_many(limit)": lambda odd: receiver.receive_many(odd, 0),
            "receive_many(timeout)": lambda odd: receiver.receive_many(1, odd),
            "receive_into(array)": lambda odd: receiver.receive_into(odd, 0),
            "receive_into(timeout)": lambda odd: receiver.receive_into(array, odd),
            "send(data)": source.send,
            "send(headers)": lambda odd: source.send(b"", headers=odd),
            "send_many": source.send_many,
            "acquire": self.reserve,
            "acquire_array(shape)": lambda odd: source.acquire_array(odd, "u1"),
            "acquire_array(dtype)": lambda odd: source.acquire_array(4, odd),
            "array(shape)": lambda odd: message_of(b"abcd").array(odd, "u1"),
            "array(dtype)": lambda odd: message_of(b"abcd").array(1, odd),
            "wait_for_receivers(n)": lambda odd: source.wait_for_receivers(odd, 0),
            "wait_for_receivers(timeout)": lambda odd: source.wait_for_receivers(1, odd),
            "wait_for_sources(n)": lambda odd: receiver.wait_for_sources(odd, 0),
            "wait_for_sources(timeout)": lambda odd: receiver.wait_for_sources(1, odd),
            "EventQueue(maximum)": lambda odd: closed(ipcbus.EventQueue(odd)),
            "EventQueue(policy)": lambda odd: closed(ipcbus.EventQueue(policy=odd)),
            "EventQueue(config)": lambda odd: closed(ipcbus.EventQueue(config=odd)),
            "dispatch": queue.dispatch,
            "take_snapshot": stats.take_snapshot,
        }


@pytest.fixture(params=["embedded", "sequential"])
def stand(domain: str, request: pytest.FixtureRequest) -> Iterator[Stand]:
    found = Stand(domain, request.param)
    yield found
    found.context.close()
    found.queue.close()


def test_odd_arguments_are_refused_with_a_text_or_work(stand: Stand, domain: str) -> None:
    before = objects(domain)
    for name, call in stand.calls(domain).items():
        for odd in ODD:
            stand.ready()
            try:
                call(odd)
            except TimeoutError:
                assert name.startswith("wait_for_"), name
            except REFUSED as error:
                if isinstance(error, RAW) or not str(error):
                    pytest.fail(f"{name} of {odd!r} raised {error!r}")
    assert objects(domain) == before
    while stand.receiver.receive(0) is not None:
        pass
    stand.source.send(b"it goes on", flush=True)
    while (message := stand.receiver.receive(GIVE_UP_S)) is not None and message.data != b"it goes on":
        pass
    assert message is not None


def test_what_is_no_time_is_refused_by_every_call_that_waits(stand: Stand) -> None:
    while stand.receiver.receive(0) is not None:
        pass
    while stand.queue.dispatch(0):
        pass
    rows = np.zeros((1, 1), np.uint8)
    waits: list[Callable[[Any], object]] = [
        stand.receiver.receive,
        lambda timeout: stand.receiver.receive_many(1, timeout),
        lambda timeout: stand.receiver.receive_into(rows, timeout),
        lambda timeout: stand.source.wait_for_receivers(1, timeout),
        lambda timeout: stand.receiver.wait_for_sources(1, timeout),
        stand.queue.dispatch,
    ]
    if stand.context._sequential:
        waits.append(stand.context.process_events)
    for wait in waits:
        for timeout in NO_TIMES:
            with pytest.raises((TypeError, ValueError), match=r"timeout = .* is not a time; give seconds as a number"):
                wait(timeout)
        for timeout in (-1, -math.inf, -0.5, -(10**400), np.float32(-1), fractions.Fraction(-1, 3)):
            assert not wait(timeout)  # over already
    pulls: list[Callable[[Any], object]] = [
        *waits[:3],
        lambda timeout: stand.receiver.lease(timeout).__enter__(),
        lambda timeout: asyncio.run(stand.receiver.alease(timeout).__aenter__()),
    ]
    for pull in pulls:
        for timeout in NO_TIMES:
            stand.ready()  # also where a message waits
            with pytest.raises((TypeError, ValueError), match=r"timeout = .* is not a time; give seconds as a number"):
                pull(timeout)
            assert stand.receiver.receive(fractions.Fraction(GIVE_UP_S))  # type: ignore[call-overload]
            while stand.receiver.receive(0) is not None:
                pass
    stand.ready()
    for timeout in (math.inf, 10**400, np.float64("inf")):
        assert stand.receiver.receive(timeout)
        stand.ready()


@pytest.mark.parametrize("length", [1.5, "1", None, True, b"1", math.nan])
def test_a_reservation_of_no_whole_number_is_refused(stand: Stand, length: Any) -> None:  # noqa: ANN401
    with pytest.raises(TypeError, match=r"topic 't': acquire\(.*whole number of bytes"):
        stand.source.acquire(length)


def test_a_reservation_that_is_negative_or_too_long_is_refused(stand: Stand) -> None:
    with pytest.raises(ValueError, match=r"acquire\(-1\)"):
        stand.source.acquire(-1)
    for length in (2**64, 2**63, 2**32, stand.source.message_max + 1):
        with pytest.raises(MessageTooLarge, match=rf"topic 't': acquire\({length}\) exceeds"):
            stand.reserve(length)
    stand.reserve(np.int64(8))
    stand.reserve(stand.source.message_max)


@each_of("domain_name", ["a/b", "/", "a\0b", "\ud800", "", "x" * 64, "ä" * 32, 5, None, b"x"])
def test_what_is_no_domain_is_refused(domain_name: Any) -> None:  # noqa: ANN401
    with pytest.raises(ConfigError, match="is not a valid name of a domain: give 1 to 63 bytes"):
        ipcbus.Context(domain=domain_name)
    with pytest.raises(ConfigError, match="is not a valid name of a domain"):
        stats.take_snapshot(domain_name)


def test_handles_and_messages_say_what_to_do_instead_of_being_copied(stand: Stand) -> None:
    stand.ready()
    message = stand.receiver.receive(GIVE_UP_S)
    for value, cure in (
        (message, r"msg\.data"),
        (stand.source, r"ctx\.source\(topic\)"),
        (stand.receiver, r"ctx\.receiver\(topic\)"),
        (stand.context, r"ipcbus\.Context"),
        (stand.queue, r"ipcbus\.EventQueue"),
    ):
        for act in (pickle.dumps, copy.copy, copy.deepcopy, lambda each: pickle.dumps(each, 0)):
            with pytest.raises(TypeError, match=rf"cannot be pickled or copied.*{cure}"):
                act(value)


def test_dir_shows_the_public_face_only() -> None:
    face = {
        ipcbus.Source: "acquire acquire_array arequest close closed flush gmd_delete gmd_forget gmd_num_pending "
        "gmd_receivers gmd_resend gmd_sequence_number gmd_set_max_size gmd_statistics gmd_status message_max receivers "
        "request requests send send_many sequence_number shares source topic unheard wait_durable "
        "wait_for_receivers",
        ipcbus.Receiver: "alease areceive close closed delivered dropped gmd_statistics lease lost receive "
        "receive_into receive_many sessions wait_for_sources",
        ipcbus.WildcardReceiver: "alease areceive close closed delivered dropped gmd_statistics lease lost pattern "
        "receive receive_into receive_many sessions wait_for_sources",
        ipcbus.Message: "ack array data first_gmd_sequence_number first_sequence_number flags fragment_info "
        "gmd_incarnation gmd_sender gmd_sequence_number headers nack properties_block respond return_address "
        "send_time_ns sequence_number source topic type view",
        ipcbus.Context: "close fileno process_events receiver respond source wildcard_receiver",
        ipcbus.EventQueue: "close closed dispatch dropped statistics",
    }
    for kind, names in face.items():
        assert [name for name in dir(kind) if not name.startswith("_")] == names.split(), kind
        assert not [name for name in dir(kind) if "cython" in name], kind


def test_an_application_cannot_make_a_message_without_an_origin() -> None:
    with pytest.raises(TypeError, match="comes from a receiver"):
        ipcbus.Message()
