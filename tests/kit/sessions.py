"""A sending session and its receiving ones without contexts around them, all in one thread."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ipcbus.config import ContextOptions, ReceiverOptions, SourceOptions
from ipcbus.delivery.reassembly_budget import ReassemblyBudget
from ipcbus.delivery.sink import Sink
from ipcbus.resolution.local.adverts import SourceAdvert
from ipcbus.topic.topic_source import TopicSource
from ipcbus.transport.receiving_session import ReceivingSession
from ipcbus.transport.ring.lbtipc import LBTIPC
from ipcbus.transport.ring.ring_receiver import RingReceiver
from ipcbus.transport.sending_session import SendingSession
from ringbuf.slots import Identity

if TYPE_CHECKING:
    from ipcbus import Message
    from ipcbus.delivery.pump import Pump

SMALL = {"transport_lbtipc_transmission_window_size": 65536, "transport_lbtipc_maximum_topics_per_transport": 5}
SOURCE_PACED = {**SMALL, "transport_lbtipc_behavior": "source_paced"}


class Quiet:
    """A policy for rings that never fill, with readers that never sleep."""

    def ring_full(self, need: int, block: bool, source: TopicSource) -> bool:
        raise AssertionError("the ring is full")

    def begin_fragments(self, need: int, block: bool, source: TopicSource) -> bool:
        return False

    def wait_for_release(self, block: bool, is_shut: object) -> None:
        raise AssertionError("reserved")

    def released(self) -> None: ...

    def batch_opened(self) -> None: ...


class Pair:
    """A sending session, and as many receiving ones as the test wants."""

    def __init__(self, domain: str, **options: object) -> None:
        self.domain = domain
        checked = {name: SourceOptions.rows[name].check(value) for name, value in options.items()}
        context = ContextOptions({"transport_lbtipc_datagram_max_size": 8192})
        plan = LBTIPC.plan(context, SourceOptions(checked))
        self.sending = SendingSession(domain, 7, 0, 0xABC, 20001, plan, "")
        self.sending.start(Quiet())
        self.receiving: list[ReceivingSession] = []
        self.got: list[str] = []
        self.told = 0

    def topic(self, name: str) -> tuple[TopicSource, SourceAdvert]:
        """A new source and how others are told of it."""
        number = self.sending.add_topic()
        return TopicSource(self.sending.batch, name, number), SourceAdvert(self.sending.advert, name, number)

    def receive(self, session: ReceivingSession, advert: SourceAdvert, *sinks: Sink, **options: object) -> None:
        """Receives a topic."""
        checked = {name: ReceiverOptions.rows[name].check(value) for name, value in options.items()}
        session.receive(advert, sinks, ReceiverOptions(checked))

    def join(self) -> ReceivingSession:
        """One more receiving session."""
        who = Identity(os.getpid(), os.geteuid(), 9, "joining")
        ring_receiver = RingReceiver(self.domain, self.sending.advert, who, owner_uid=os.geteuid(), sample_every=1)
        session = ReceivingSession(
            self.sending.advert,
            ring_receiver,
            owner_pid=ring_receiver.owner_pid,
            begun=ring_receiver.begun,
            budget=ReassemblyBudget(),
            failed=lambda sink, error: self.got.append(repr(error)),
            delivered=self._count,
            activity_timeout_ns=60_000_000_000,
            options=ReceiverOptions(),
        )
        self.receiving.append(session)
        return session

    def _count(self, told: int) -> None:
        self.told += told

    def sink(self) -> Sink:
        """A sink that notes what it gets."""
        return Sink(self._note, 1)

    def _note(self, message: Message) -> None:
        numbers = f" {message.first_sequence_number}..{message.sequence_number}"
        self.got.append(message.data.decode() or message.type.name + (numbers if message.sequence_number >= 0 else ""))

    def close(self) -> None:
        """Ends all of it."""
        for session in self.receiving:
            session.leave()
        self.sending.close()


def received(domain: str, pump: Pump) -> tuple[Pair, ReceivingSession, TopicSource]:
    """A pair with a session that the pump watches, and a source whose messages a receiver of the session gets."""
    pair = Pair(domain)
    session = pair.join()
    source, advert = pair.topic("t")
    pair.receive(session, advert, pair.sink())
    pump.watch([session.demux])
    return pair, session, source
