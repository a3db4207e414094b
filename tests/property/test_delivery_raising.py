"""A callback that raises what is no Exception costs nobody a number: each is delivered or reported lost, once."""

from __future__ import annotations

import contextlib

from hypothesis import given
from hypothesis import strategies as st

from ipcbus import Message, MessageType
from ipcbus.delivery.delivery_rules import DeliveryRules
from ipcbus.delivery.delivery_session import DeliverySession
from ipcbus.delivery.reassembly_budget import ReassemblyBudget
from ipcbus.delivery.sink import Sink
from tests.kit.datagrams import Item, compose, fragments

TOLD = (MessageType.DATA, MessageType.UNRECOVERABLE_LOSS, MessageType.UNRECOVERABLE_LOSS_BURST)


class Interrupt(BaseException):
    """As KeyboardInterrupt, which is no Exception either."""


class Receiver:
    """Notes the numbers that it is told of, and raises at some of its calls."""

    def __init__(self, raises: set[int]) -> None:
        self.raises = raises
        self.calls = 0
        self.numbers: list[int] = []
        self.ends = 0

    def __call__(self, message: Message) -> None:
        self.calls += 1
        if message.type in TOLD:
            self.numbers += range(message.first_sequence_number, message.sequence_number + 1)
        self.ends += message.type == MessageType.EOS
        if self.calls in self.raises:
            raise Interrupt


def passed_on(sink: Sink, error: BaseException) -> None:
    """Raises it again, as whoever hears of it may."""
    raise error


def stream(lengths: list[int], cut: set[int]) -> tuple[list[Item], int]:
    """Messages of these lengths, in pieces of 10 bytes; of those of the numbers in `cut` the last piece is not sent."""
    items: list[Item] = []
    for at, length in enumerate(lengths):
        pieces = fragments(len(items), bytes(length), 10) if length > 10 else [Item(1, len(items), bytes(length))]
        items += pieces[:-1] if at in cut and len(pieces) > 1 else pieces
    return items, len(items)


@given(
    st.lists(st.integers(0, 45), min_size=1, max_size=25),
    st.sets(st.integers(0, 24), max_size=8),
    st.sets(st.integers(0, 80), max_size=20),
    st.sets(st.integers(1, 60), max_size=30),
    st.sampled_from([1, -1]),
    st.sampled_from([2, 1024]),
)
def test_every_number_is_told_of_once(
    lengths: list[int], cut: set[int], missing: set[int], raises: set[int], ordered: int, burst: int
) -> None:
    items, end = stream(lengths, cut)
    receiver = Receiver(raises)
    session = DeliverySession("s", 4, budget=ReassemblyBudget(), failed=passed_on, delivered=lambda count: None)
    session.receive(1, "t", [Sink(receiver, 1)], DeliveryRules(ordered=ordered, burst_loss=burst), 0)
    for item in items:
        if item.sequence in missing:
            continue
        fed = False
        while not fed or session.demux.holds_datagram:
            try:
                session.demux.resume(0) if session.demux.holds_datagram else session.demux.feed(compose(item), 0, 0)
                fed = True
            except Interrupt:
                fed = session.demux.holds_datagram
    controller = session.topic(1)
    assert controller is not None
    with contextlib.suppress(Interrupt):
        session.end_topic(controller, end)
    assert sorted(receiver.numbers) == list(range(end))
    assert receiver.ends == (receiver.calls > 0)
