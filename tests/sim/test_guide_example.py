"""The long example of the Concepts Guide, in virtual time: three topics, a batch, fragments, loss and recovery, a
deleted source, unrecoverable loss, the end of the session.

The ends of the session, the topic layer and the delivery controllers are the real ones; only the wire and the clock are
not. Backoffs are the middle of what they are drawn from.
"""

from __future__ import annotations

import pytest

from ipcbus import FragmentInfo
from ipcbus.reliability.registration import State
from tests.sim.udp_bus import UdpReceiver, UdpSender
from tests.sim.world import MS, SECOND, Terms, World

BOTH = pytest.mark.parametrize("multicast", [True, False], ids=["LBT-RM", "LBT-RU"])


class Example:
    """Publisher and subscriber of the guide."""

    def __init__(self, multicast: bool) -> None:
        self.world = World()
        self.publisher = UdpSender(self.world, Terms(), multicast)
        self.a, self.b, self.c = (self.publisher.topic(name) for name in "ABC")
        self.lost: set[int] = set()
        self.subscriber = UdpReceiver(self.publisher, lambda number: number in self.lost)
        self.subscriber.receive(self.a, 0)
        self.subscriber.receive(self.b, 1)
        self._seen = 0

    def pass_ms(self, ms: int = 1) -> list[tuple[str, str, int]]:
        """Lets time pass; returns what the subscriber was told meanwhile."""
        self.world.run(self.world.now_ns + ms * MS)
        new = self.subscriber.events[self._seen :]
        self._seen += len(new)
        return [(event.topic, event.kind, event.last) for event in new]

    def datagrams(self) -> int:
        """How many were sent."""
        return len(self.publisher.sent)


@BOTH
def test_the_guides_example_line_by_line(multicast: bool) -> None:
    example = Example(multicast)
    send = example.publisher.send

    # Sources and receivers are there and resolved: the session exists, and has not started.
    assert example.pass_ms(20_000) == []
    assert example.datagrams() == 0

    # The first message, flushed: datagram 0. Both receivers are told of the beginning, topic B without a message.
    send(example.a, b"A0", flush=True)
    assert example.pass_ms() == [("A", "BOS", -1), ("B", "BOS", -1), ("A", "DATA", 0)]
    assert example.datagrams() == 1

    # Two messages in one datagram by intelligent batching; nobody receives C.
    send(example.b, b"B0")
    assert example.pass_ms() == []
    send(example.c, b"C0", flush=True)
    assert example.pass_ms() == [("B", "DATA", 0)]
    assert example.datagrams() == 2
    assert example.subscriber.delivery.demux.no_topic == 1

    # A message larger than a datagram: two fragments with numbers of their own, in datagrams 2 and 3.
    large = bytes(range(250)) * 8
    send(example.a, large, flush=True)
    assert example.datagrams() == 4
    assert example.pass_ms() == [("A", "DATA", 2)]
    whole = example.subscriber.events[-1]
    assert (whole.data, whole.first, whole.fragment) == (large, 1, FragmentInfo(1, 0, len(large)))

    # A message for C is lost in datagram 4; then the sources of B and C are deleted. Nothing happens.
    example.lost = {4}
    send(example.c, b"C1", flush=True)
    example.publisher.delete(example.b)
    example.publisher.delete(example.c)
    assert example.pass_ms() == []

    # Datagram 5 shows the gap, and is delivered all the same at once.
    send(example.a, b"A3", flush=True)
    assert example.pass_ms() == [("A", "DATA", 3)]
    assert list(example.subscriber.missing) == [4]
    # What was lost is asked for and sent again, though its source is gone; nobody receives it.
    example.lost = set()
    assert example.pass_ms(100) == []
    assert example.subscriber.missing == {}
    assert example.subscriber.delivery.demux.no_topic == 2


@BOTH
def test_the_guides_unrecoverable_loss_on_its_timeline(multicast: bool) -> None:
    example = Example(multicast)
    send = example.publisher.send
    example.pass_ms(1)
    for number in range(6):  # up to datagram 5, number 3 of topic A
        source = (example.a, example.b, example.c, example.a, example.a, example.a)[number]
        send(source, b"x", flush=True)
    example.pass_ms(500)
    example.publisher.delete(example.b)
    example.publisher.delete(example.c)
    start = example.world.now_ns
    example.subscriber.naks_blocked = True

    # T = 0: number 4 of topic A is sent in datagram 6 and lost.
    example.lost = {6}
    send(example.a, b"A4", flush=True)
    example.lost = {6}
    assert example.datagrams() == 7
    assert example.pass_ms(199) == []
    assert example.subscriber.missing == {}

    # T = 0.2: a session message tells the transport.
    example.pass_ms(2)
    assert list(example.subscriber.missing) == [6]
    assert example.subscriber.missing[6] == start + 200 * MS + example.publisher.terms.delay

    # T = 0.25: the transport asks for it, then every 0.2 s, in vain.
    example.pass_ms(400)
    asked = [((at - start) // MS, numbers) for at, numbers in example.subscriber.asked]
    assert asked == [(250, (6,)), (450, (6,))]

    # T = 5: sequence number info tells the delivery controller; it starts a time of its own and does nothing else.
    assert example.pass_ms(4398) == []
    infos = [at for at, what in example.publisher.journal if what == "sequence number info" and at > start]
    assert infos == []
    assert example.pass_ms(2) == []
    infos = [at for at, what in example.publisher.journal if what == "sequence number info" and at > start]
    assert infos == [start + 5 * SECOND]
    told = start + 5 * SECOND + example.publisher.terms.delay

    # What is sent now has to wait behind the gap.
    send(example.a, b"A5", flush=True)
    assert example.pass_ms(5198) == []

    # T = 10.2: the transport gives up, and tells nobody.
    assert example.pass_ms(5) == []
    assert [(at // MS - start // MS, number) for at, number in example.subscriber.lost_datagrams] == [(10_200, 6)]
    assert example.subscriber.missing == {}

    # T = 15: the delivery controller gives up. The loss comes within a check interval, and then what waited.
    example.pass_ms(15_000 - (example.world.now_ns - start) // MS - 1)
    assert example.subscriber.events[-1].kind != "UNRECOVERABLE_LOSS"
    assert example.pass_ms(252) == [("A", "UNRECOVERABLE_LOSS", 4), ("A", "DATA", 5)]
    lost = next(event for event in example.subscriber.events if event.kind == "UNRECOVERABLE_LOSS")
    recovery = example.publisher.terms.nak_generation
    assert told + recovery <= lost.at_ns <= told + recovery + example.publisher.terms.loss_check


@BOTH
@pytest.mark.parametrize("dies", [True, False], ids=["the source dies", "the final notice is lost"])
def test_the_end_of_the_session_comes_by_silence_when_nobody_hears_of_it(multicast: bool, dies: bool) -> None:
    example = Example(multicast)
    example.pass_ms(1)
    example.publisher.send(example.a, b"A0", flush=True)
    example.pass_ms(1000)
    last = max(at for at, _ in example.publisher.journal)
    example.publisher.delete(example.a)
    if dies:
        example.publisher.ended = True
    else:
        example.publisher.cut = True
        example.publisher.end()
    silent_for = example.publisher.terms.activity_timeout // MS
    assert example.pass_ms(silent_for - 1000) == []
    assert sorted(example.pass_ms(1000)) == [("A", "EOS", -1), ("B", "EOS", -1)]
    assert example.subscriber.udp.state is State.SILENT
    assert {event.at_ns for event in example.subscriber.events if event.kind == "EOS"} == {
        last + example.publisher.terms.delay + example.publisher.terms.activity_timeout
    }
    kinds = [(event.topic, event.kind) for event in example.subscriber.events]
    assert kinds.count(("A", "BOS")) == kinds.count(("A", "EOS")) == 1
    assert kinds.count(("B", "BOS")) == kinds.count(("B", "EOS")) == 1


@BOTH
def test_the_end_of_the_session_is_told(multicast: bool) -> None:
    example = Example(multicast)
    example.pass_ms(1)
    example.publisher.send(example.a, b"A0", flush=True)
    example.pass_ms(1000)
    example.publisher.end()
    assert sorted(example.pass_ms()) == [("A", "EOS", -1), ("B", "EOS", -1)]
    assert example.subscriber.udp.state is State.ENDED
