"""Both ends of a control channel over UDP, in one process: contexts that are driven by each call of a link."""

from __future__ import annotations

import threading
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from tests.kit.bus import LBTRM, Bus
from tests.kit.network import isolated_or_skip

if TYPE_CHECKING:
    from collections.abc import Iterator, Sized

    from ipcbus import Context
    from ipcbus.recovery.frame_link import FrameLink
    from ipcbus.transport.udp.udp_link import UdpLink
    from ipcbus.transport.udp.udp_receiver import UdpReceiver
    from ipcbus.transport.udp.udp_sender import UdpSender
    from tests.kit.bus import Kind


class UdpEnds:
    """A source and a receiver over UDP that have joined, without messages."""

    def __init__(self, bus: Bus, **limits: object) -> None:
        """Joins them; `limits` are options of the sending context."""
        own = f"transport_{bus.kind.transport}"
        fast = {f"{own}_data_rate_limit": 0, f"{own}_retransmit_rate_limit": 0, **limits}
        self.bus = bus
        self.lock = threading.RLock()
        self.sending = bus.context("sending", mode="sequential", **fast)
        self.receiving = bus.context("receiving", mode="sequential")
        self.source = bus.source(context=self.sending)
        self.receiver = bus.receiver(context=self.receiving)
        bus.joined(self.source)
        leave_links(self.udp_sender)

    @property
    def udp_sender(self) -> UdpSender:
        """The sending session."""
        found: UdpSender = self.sending._network._udp_senders[0]
        return found

    @property
    def udp_receiver(self) -> UdpReceiver:
        """The receiving session."""
        found: UdpReceiver = self.receiving._network._udp_receivers[0]
        return found

    def turn(self) -> None:
        """Drives both contexts."""
        with self.lock:
            for _ in range(2):
                for context in (self.receiving, self.sending):
                    if not context._closed:
                        context.process_events(0)

    def open(self) -> tuple[DrivenLink, DrivenLink]:
        """The two ends of a link: the receiver's, and the source's."""
        here = DrivenLink(self, self.udp_receiver.open_link())
        ((context_id, there),) = self.opened()
        assert context_id == context_id_of(self.receiving)
        self.bus.until(lambda: here.link.window.peer_epoch, "the answer")
        return here, DrivenLink(self, there)

    def opened(self) -> list[tuple[int, UdpLink]]:
        """Waits for a link that a receiver has opened, and returns it."""
        return opened(self.bus, self.udp_sender)


def leave_links(udp_sender: UdpSender) -> None:
    """Keeps the context of a source from taking the links that receivers open."""
    udp_sender.on_links = lambda: None


def opened(bus: Bus, udp_sender: UdpSender) -> list[tuple[int, UdpLink]]:
    """Waits for a link that a receiver has opened, and returns it with the id of the receiver's context."""
    found: list[tuple[int, UdpLink]] = []

    def look() -> bool:
        found.extend(udp_sender.take_opened())
        return bool(found)

    bus.until(look, "the link")
    return found


def context_id_of(context: Context) -> int:
    """The id of a context."""
    return int(context._id)


class DrivenLink:
    """A link whose contexts are driven by each of its calls (recovery.frame_link.FrameLink)."""

    def __init__(self, ends: UdpEnds, link: UdpLink) -> None:
        self.ends, self.link = ends, link
        self.frame_max = link.frame_max

    @property
    def broken(self) -> str:
        """As in the protocol."""
        self.ends.turn()
        return self.link.broken

    def put(self, frame: bytes) -> bool:
        """As in the protocol, with a `push`."""

        def put_and_push() -> bool:
            is_taken = self.link.put(frame)
            self.link.push()
            return is_taken

        return bool(self._do(put_and_push))

    def put_alone(self, frame: bytes, waiting: Sized) -> bool:
        """As in the protocol."""
        return self.link.put_alone(frame, waiting)

    def push(self) -> None:
        """As in the protocol; `put` has done it."""

    def take(self) -> bytes | None:
        """As in the protocol."""
        with self.ends.lock:
            found = self.link.take()
            if found is None:
                self.ends.turn()
                found = self.link.take()
            return found

    def close(self) -> None:
        """As in the protocol."""
        self._do(self.link.close)

    def _do(self, call: Any) -> Any:  # noqa: ANN401 - as the call
        with self.ends.lock:
            found = call()
            self.ends.turn()
            return found


@contextmanager
def udp_pair(domain: str, kind: Kind) -> Iterator[tuple[FrameLink, FrameLink]]:
    """Both ends of an open link over a transport."""
    with isolated_or_skip() if kind is LBTRM else nullcontext():
        bus = Bus(domain, kind, "sequential")
        try:
            yield UdpEnds(bus).open()
        finally:
            bus.close()
