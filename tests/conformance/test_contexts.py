"""Several contexts in one process."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

import ipcbus
from ipcbus import MessageType
from tests.kit.bus import GIVE_UP_S, on_all
from tests.kit.forms import CallbackTaker
from tests.kit.look import objects
from tests.kit.payload import Books, balanced, body

if TYPE_CHECKING:
    from ipcbus import Message, Source
    from tests.kit.bus import Bus
    from tests.kit.forms import Taker


def send(source: Source, count: int, sender: int = 0) -> None:
    for number in range(source.sequence_number + 1, source.sequence_number + 1 + count):
        source.send(body(number, sender=sender))
    source.flush()


def test_source_and_receiver_in_two_contexts_of_one_process(bus: Bus, form: type[Taker]) -> None:
    sending, receiving = bus.context("sending"), bus.context("receiving")
    taker = form(bus, "t", receiving)
    source = bus.source("t", sending)
    bus.joined(source)
    send(source, 50)
    assert taker.data(50) == [body(number) for number in range(50)]
    sending.close()
    taker.event(MessageType.EOS)


@on_all
def test_three_contexts_that_all_send_and_receive_one_topic(bus: Bus) -> None:
    contexts = [bus.context(f"number {number}") for number in range(3)]
    books = [Books() for _ in contexts]
    for context, book in zip(contexts, books, strict=True):
        context.receiver("t", book.enter)
    sources = [bus.source("t", context) for context in contexts]
    for source in sources:
        bus.joined(source, 3)
    for _ in range(5):
        for source in sources:
            send(source, 10)
    for book in books:
        bus.until(lambda book=book: book.accounted == 150, "the messages")  # type: ignore[misc]
        assert book.ledgers.keys() == {source.source for source in sources}
        for ledger in book.ledgers.values():
            balanced(ledger, 50)


@on_all
def test_closing_one_context_leaves_the_others_alone(bus: Bus, domain: str) -> None:
    sending = bus.context("sending")
    contexts = [bus.context(f"number {number}") for number in range(3)]
    source = bus.source("t", sending)
    takers = [CallbackTaker(bus, "t", context) for context in contexts]
    bus.joined(source, 3)
    send(source, 10)
    for taker in takers:
        taker.data(10)
    before = len(objects(domain))
    contexts[1].close()
    # Registry and doorbell; over UDP also the ring and control block that it read.
    assert len(objects(domain)) == before - (4 if bus.kind.over_udp else 2)
    bus.until(lambda: source.receivers == 2, "the leaving")
    send(source, 10)
    sending.close()
    for number in (0, 2):
        takers[number].event(MessageType.EOS)
        assert takers[number].data(20) == [body(number) for number in range(20)]
    assert takers[1].count() == 10
    assert MessageType.EOS not in takers[1].kinds


def test_a_callback_may_use_another_context(bus: Bus) -> None:
    """A relay: what one context receives a callback sends on another one."""
    relay_in, relay_out = bus.context("in"), bus.context("out")
    onward = bus.source("onward", relay_out)
    taker = CallbackTaker(bus, "onward")
    bus.joined(onward)

    def relay(message: Message) -> None:
        if message.type is MessageType.DATA:
            onward.send(message.data, flush=True)

    relay_in.receiver("t", relay)
    source = bus.source()
    bus.joined(source)
    send(source, 30)
    assert taker.data(30) == [body(number) for number in range(30)]


def test_a_callback_may_close_another_context(bus: Bus) -> None:
    other = bus.context("other")
    gone = CallbackTaker(bus, "t", other)
    closed = threading.Event()

    def close(message: Message) -> None:
        if message.type is MessageType.DATA and not closed.is_set():
            bus.contexts.remove(other)
            other.close()
            closed.set()

    control = bus.context("closing")
    control.receiver("close", close)
    source, order = bus.source("t", bus.context()), bus.source("close", bus.context())
    bus.joined(source)
    bus.joined(order)
    send(order, 1)
    bus.until(closed.is_set, "the closing")
    bus.until(lambda: source.receivers == 0, "the leaving")
    assert gone.count() == 0


@pytest.mark.parametrize("mode", ["embedded"])  # each context has a thread
def test_contexts_in_threads_do_not_disturb_each_other(bus: Bus) -> None:
    failed: list[BaseException] = []

    def exchange(number: int) -> None:
        try:
            for life in range(5):
                with ipcbus.Context(domain=bus.domain) as context:
                    receiver = context.receiver(f"t{number}")
                    source = context.source(f"t{number}", transport=bus.kind.transport, **bus.kind.options)
                    source.wait_for_receivers(1, GIVE_UP_S)
                    source.send(body(life), flush=True)
                    messages = [receiver.receive(GIVE_UP_S) for _ in range(2)]
                    assert [message.data for message in messages if message] == [b"", body(life)]
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=exchange, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(GIVE_UP_S)
    assert failed == []
