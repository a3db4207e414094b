"""A session with its control channels, and the doorbells of both contexts, all in one thread."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ipcbus.delivery.pump import Pump
from ipcbus.recovery.control_channel import ControlChannel
from ipcbus.resolution.local import object_names
from ipcbus.runtime.sending.response_taker import ResponseTaker
from ipcbus.transport.ring.pipe_link import CHANNEL
from ipcbus.transport.ring.ring_receiver import RingReceiver
from ipcbus.transport.ring.session_pipes import SessionPipes
from ipcbus.wire import control_messages
from ringbuf import segment
from ringbuf.doorbell import Doorbell
from ringbuf.shared_words import SharedWords
from tests.kit.sessions import SMALL, Pair

if TYPE_CHECKING:
    from collections.abc import Callable

    from ipcbus.transport.receiving_session import ReceivingSession
    from ipcbus.transport.ring.pipe_link import PipeLink, ReceiverPipeLink
    from ipcbus.transport.ring.response_frames import ResponseWriter
    from ipcbus.transport.ring.session_pipes import SourcePipeLink

QUEUE = 4096


class PipeStage:
    """A session, its pipes, and the doorbells of both contexts."""

    def __init__(self, domain: str) -> None:
        self.domain = domain
        self.pair = Pair(domain, **SMALL)
        self.bell_of_source = Doorbell(object_names.bell(domain, 7))
        self.bell_of_receiver = Doorbell(object_names.bell(domain, 9))
        self.pipes = SessionPipes(self.pair.sending, queue_bytes=QUEUE)
        self.words = SharedWords(self.pair.sending.channel.control)
        self.links: list[ReceiverPipeLink] = []

    def join(self) -> tuple[ReceivingSession, ReceiverPipeLink]:
        """One more receiver, which has not asked yet."""
        session = self.pair.join()
        return session, self.link_of(session)

    def link_of(self, session: ReceivingSession) -> ReceiverPipeLink:
        """A new link of a receiver."""
        assert isinstance(session.datagram_source, RingReceiver)
        self.links.append(session.datagram_source.control_link())
        return self.links[-1]

    def open(self) -> tuple[ReceivingSession, ReceiverPipeLink, SourcePipeLink]:
        """One more receiver whose link is open on both sides."""
        session, link = self.join()
        link.request()
        self.pipes.look()
        assert link.attend()
        self.pipes.look()
        source = self.pipes.link(session.datagram_source.index)
        assert source is not None
        self.hear()
        return session, link, source

    def hear(self) -> tuple[bytes, bytes]:
        """What was rung: at the source, and at the receivers."""
        return self.bell_of_source.drain(), self.bell_of_receiver.drain()

    def state(self, slot: int) -> int:
        """The channel word of a slot without number and generation."""
        return self.words.load64(self.pair.sending.channel.slots.offset(slot) + CHANNEL) & 0xFF

    def take_with(self, respond: Callable[[int, bytes | memoryview], int]) -> None:
        """Hands the responses to a function."""
        self.pipes.inlet.hand(control_messages.RESPONSE, ResponseTaker(respond, lambda _: None))

    def names(self) -> list[str]:
        """The pipes that have names."""
        found = segment.names(object_names.context_prefix(self.domain, 7))
        return [name for name in found if name.rpartition(".")[2].startswith("p")]

    def close(self) -> None:
        self.pipes.close()
        for link in self.links:
            link.close()
        self.pair.close()
        self.bell_of_source.close()
        self.bell_of_receiver.close()


def channel(link: PipeLink) -> ControlChannel:
    """A control channel over a link."""
    return ControlChannel(link, queue_max=1 << 20, message_max=1 << 20)


def writer(link: ReceiverPipeLink, over: ControlChannel | None = None, pump: Pump | None = None) -> ResponseWriter:
    """The short way over an open link, of a context that no thread drives."""
    made = link.response_writer(over or channel(link), pump or Pump())
    assert made is not None
    return made


def taken(stage: PipeStage) -> tuple[list[tuple[int, bytes]], bool]:
    """The responses that the source takes in one call, and whether there is something else."""
    got: list[tuple[int, bytes]] = []

    def respond(number: int, data: bytes | memoryview) -> int:
        got.append((number, bytes(data)))
        return 1

    stage.take_with(respond)
    messages, more = stage.pipes.inlet.take_now()
    assert messages == len(got)
    return got, more
