"""A session in virtual time: real topic layer and delivery controllers, a wire that loses what it is told to.

The transport is as simple as a reliable one can be: datagrams have numbers, session messages tell the last one, a
receiver asks for what is missing until it gives up, the source sends it again.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from ipcbus.delivery.delivery_rules import DeliveryRules
from ipcbus.delivery.delivery_session import DeliverySession
from ipcbus.delivery.reassembly_budget import ReassemblyBudget
from ipcbus.delivery.sink import Sink
from ipcbus.topic.batch import BatchWriter
from ipcbus.topic.batch_timer import publish_old
from ipcbus.topic.topic_source import TopicSource
from ipcbus.topic.tsni import SequenceInfos
from ipcbus.wire import wire_layout
from ringbuf.channel import Shape
from ringbuf.layout import RECORD_HEADER, RING_HEADER, round_up
from tests.kit.private_channel import PrivateChannel

if TYPE_CHECKING:
    from collections.abc import Callable

    from ipcbus import Message
    from ipcbus.wire.properties import Headers

MS = 1_000_000
SECOND = 1000 * MS
TOPICS_MAX = 8


class World:
    """The time, and what is to happen."""

    def __init__(self) -> None:
        self.now_ns = 0
        self._todo: list[tuple[int, int, Callable[[], object]]] = []
        self._count = 0

    def after(self, delay_ns: int, work: Callable[[], object]) -> None:
        """Has something happen later; what is due together happens in this order."""
        self._count += 1
        heapq.heappush(self._todo, (self.now_ns + delay_ns, self._count, work))

    def run(self, until_ns: int) -> None:
        """Lets time pass."""
        while self._todo and self._todo[0][0] <= until_ns:
            self.now_ns, _, work = heapq.heappop(self._todo)
            work()
        self.now_ns = until_ns


@dataclass
class Terms:
    """What a simulated session is made with; times in ns, named as the options."""

    datagram_max: int = 1500
    minimum_length: int = 2048
    batching_interval: int = 200 * MS
    explicit_interval: int = 1000 * MS
    tsni_interval: int = 5 * SECOND
    tsni_active: int = 60 * SECOND
    sm_minimum: int = 200 * MS
    sm_maximum: int = 10 * SECOND
    delay: int = MS // 10
    nak_backoff: int = 50 * MS
    nak_repeat: int = 200 * MS
    nak_generation: int = 10 * SECOND
    activity_timeout: int = 60 * SECOND
    loss_check: int = 250 * MS


class Sender:
    """The source side: a topic layer on a private ring, whose records go onto the wire (`SendPolicy`)."""

    def __init__(self, world: World, terms: Terms) -> None:
        self.world, self.terms = world, terms
        record_max = RECORD_HEADER + round_up(terms.datagram_max, 8)
        self.channel = PrivateChannel(
            Shape(1, max(65536, 4 * record_max), record_max, False, 1, TOPICS_MAX * wire_layout.TOPIC_LINE.itemsize, 0)
        )
        self.batch = BatchWriter(
            self.channel.writer,
            self,
            lambda mask: None,
            minimum_length=terms.minimum_length,
            datagram_max=terms.datagram_max,
            topics_max=TOPICS_MAX,
            topics_offset=RING_HEADER.itemsize,
            interval_ns=terms.batching_interval,
        )
        self.timed_out = 0
        self.infos = SequenceInfos(self.batch)
        self.sent: list[bytes] = []
        self.journal: list[tuple[int, str]] = []
        self.receivers: list[Receiver] = []
        self.ended = False
        self._topics = 0
        self._sm_turn = 0
        self.channel.writer.set_time(0)

    def topic(self, name: str) -> TopicSource:
        """A new source of the session; its number is the order of the calls."""
        source = TopicSource(self.batch, name, self._topics)
        self._topics += 1
        self.infos.add(source, self.terms.tsni_interval, self.terms.tsni_active)
        return source

    def send(self, source: TopicSource, data: bytes, headers: Headers | None = None, **flags: bool) -> None:
        """Sends a message now."""
        self._now()
        source.send(data, headers=headers, **flags)
        self.pump()

    def delete(self, source: TopicSource) -> None:
        """Ends a source; nobody is told."""
        source._refuse_sends()
        self.batch.flush()
        self.infos.remove(source)
        self.pump()

    def end(self) -> None:
        """Ends the session; nobody is told."""
        self.ended = True

    def pump(self) -> None:
        """What was published goes onto the wire."""
        while (datagram := self.channel.reader.read()) is not None:
            self.sent.append(datagram)
            self.journal.append((self.world.now_ns, f"datagram {len(self.sent) - 1}"))
            self._transmit(len(self.sent) - 1)
            self._rest()
        self.channel.reader.show()

    def again(self, number: int) -> None:
        """Somebody misses a datagram."""
        if not self.ended:
            self._transmit(number)

    # What the topic layer asks (`SendPolicy`).

    def ring_full(self, need: int, block: bool, source: TopicSource) -> bool:
        """Makes room: the ring is only on the way to the wire."""
        self.pump()
        return False

    def begin_fragments(self, need: int, block: bool, source: TopicSource) -> bool:
        return False

    def wait_for_release(self, block: bool, is_shut: object) -> None: ...

    def released(self) -> None: ...

    def batch_opened(self) -> None:
        self.world.after(self.terms.batching_interval, self._flush_due)

    # Timers.

    def _now(self) -> int:
        self.channel.writer.set_time(self.world.now_ns)
        return self.world.now_ns

    def _flush_due(self) -> None:
        terms = self.terms
        again_ns, timed_out = publish_old(self.batch, self._now(), terms.batching_interval, terms.explicit_interval)
        self.timed_out += timed_out
        self.pump()
        if again_ns is not None:
            self.world.after(again_ns, self._flush_due)

    def _rest(self) -> None:
        """A datagram was sent: session messages and sequence number info wait again."""
        self._sm_turn += 1
        self._next_sm(self._sm_turn, self.terms.sm_minimum)
        self.world.after(self.terms.tsni_interval, self._tell)

    def _next_sm(self, turn: int, interval: int) -> None:
        def session_message() -> None:
            if turn == self._sm_turn and not self.ended:
                self.journal.append((self.world.now_ns, "session message"))
                for receiver in self.receivers:
                    self.world.after(self.terms.delay, partial(receiver.session_message, len(self.sent)))
                self._next_sm(turn, min(2 * interval, self.terms.sm_maximum))

        self.world.after(interval, session_message)

    def _tell(self) -> None:
        if not self.ended:
            before = self.batch.infos_sent
            self.infos.send_due(self._now())
            if self.batch.infos_sent != before:
                self.journal.append((self.world.now_ns, "sequence number info"))
            self.pump()

    def _transmit(self, number: int) -> None:
        for receiver in self.receivers:
            receiver.wire(number, self.sent[number])


@dataclass
class Event:
    """What a receiver was given, and when."""

    at_ns: int
    topic: str
    kind: str
    first: int
    last: int
    data: bytes = b""
    fragment: object = None
    flags: int = 0


@dataclass
class Receiver:
    """The receive side: transport, delivery controllers, and what came out of them."""

    sender: Sender
    budget: ReassemblyBudget = field(default_factory=ReassemblyBudget)
    loses: Callable[[int], bool] = lambda number: False
    naks_blocked: bool = False

    def __post_init__(self) -> None:
        self.world, self.terms = self.sender.world, self.sender.terms
        self.events: list[Event] = []
        self.delivery = DeliverySession(
            "LBT-RM:sim:1", TOPICS_MAX, budget=self.budget, failed=self._failed, delivered=lambda told: None
        )
        self.next_number = 0
        self.missing: dict[int, int] = {}
        self.lost_datagrams: list[tuple[int, int]] = []
        self.over = False
        self._activity = 0
        self.sender.receivers.append(self)
        self._check()

    def receive(
        self, source: TopicSource, number: int, rules: DeliveryRules | None = None, floor: int | None = None
    ) -> None:
        """Receives a topic of the session."""
        rules = rules or DeliveryRules(loss_check_ns=self.terms.loss_check, recovery_ns=self.terms.nak_generation)
        self.delivery.receive(number, source.topic, [Sink(self._note, 1)], rules, floor)
        self.delivery.begin_topic(number)

    def wire(self, number: int, datagram: bytes) -> None:
        """A datagram is on its way."""
        if not self.loses(number):
            self.world.after(self.terms.delay, lambda: self.datagram(number, datagram))

    def datagram(self, number: int, datagram: bytes) -> None:
        """A datagram has come."""
        if self.over:
            return
        self._alive()
        if number >= self.next_number:
            self._lack(number)
            self.next_number = number + 1
        elif self.missing.pop(number, None) is None:
            return
        self.delivery.demux.feed(datagram, self.world.now_ns, self.world.now_ns)

    def session_message(self, sent: int) -> None:
        """The source has sent so many datagrams."""
        if self.over:
            return
        self._alive()
        self._lack(sent)
        self.next_number = max(self.next_number, sent)

    def _lack(self, until: int) -> None:
        for number in range(self.next_number, until):
            self.missing[number] = self.world.now_ns
            self.world.after(self.terms.nak_backoff, partial(self._nak, number))

    def _nak(self, number: int) -> None:
        since = self.missing.get(number)
        if since is None or self.over:
            return
        if self.world.now_ns - since >= self.terms.nak_generation:
            del self.missing[number]
            self.lost_datagrams.append((self.world.now_ns, number))
            return
        if not self.naks_blocked:
            self.world.after(self.terms.delay, lambda: self.sender.again(number))
        left = since + self.terms.nak_generation - self.world.now_ns
        self.world.after(min(self.terms.nak_repeat, left), lambda: self._nak(number))

    def _alive(self) -> None:
        self._activity += 1
        turn = self._activity

        def silent() -> None:
            if turn == self._activity and not self.over:
                self.over = True
                for controller in self.delivery.topics():
                    self.delivery.end_topic(controller, 0)

        self.world.after(self.terms.activity_timeout, silent)

    def _check(self) -> None:
        if not self.over:
            self.delivery.check(self.delivery.due(self.world.now_ns), self.world.now_ns)
            self.world.after(self.terms.loss_check, self._check)

    def _note(self, message: Message) -> None:
        self.events.append(
            Event(
                self.world.now_ns,
                message.topic,
                message.type.name,
                message.first_sequence_number,
                message.sequence_number,
                message.data,
                message.fragment_info,
                message.flags,
            )
        )

    def _failed(self, sink: Sink, error: BaseException) -> None:
        raise error
