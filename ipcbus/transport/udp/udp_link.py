"""The control channels of sessions over UDP: frame links, and the packets of all links of a session.

A receiving context opens the link to a session that it has joined; the link uses the context's registration there, so
only a client whose cookie came back has one. The source keeps one link for each client, and drops it with the client.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ipcbus.recovery.frame_window import LONG_WINDOW, FrameAcceptor, FrameCounts, FrameSettings, FrameWindow
from ipcbus.transport.udp.network_interface import is_loopback
from ipcbus.wire import udp_packets
from ipcbus.wire.transport_names import TRANSPORT_LBTTCP
from ipcbus.wire.udp_packets import ENDED, LONG_FRAME_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sized
    from contextlib import AbstractContextManager
    from random import Random

    from ipcbus.recovery.frame_window import Pace
    from ipcbus.reliability.clients import Client
    from ipcbus.wire.udp_packets import Frame, FrameAck

LINKS_MAX: Final = 256
"""Most links of a sending session; the source refuses others."""
_UNSENT_MAX: Final = 64
_KEPT_MAX: Final = 1024
"""Most links of which a session knows how many frames have come."""


def frame_settings(transport: int, host: str) -> FrameSettings:
    """Returns the settings of the channels of a session, which both sides know: long frames within one host.

    Args:
        transport: the number of the transport.
        host: the address of the source.
    """
    long = {"frame_bytes": LONG_FRAME_BYTES, "window": LONG_WINDOW} if is_loopback(host) else {}
    return FrameSettings(resends=transport != TRANSPORT_LBTTCP, **long)


class UdpLink:
    """One end of a control channel over UDP (recovery.frame_link.FrameLink)."""

    def __init__(self, window: FrameWindow, flush: Callable[[], object], lock: AbstractContextManager[object]) -> None:
        """Takes a window.

        Args:
            window: the frames of this end.
            flush: sends the packets that the window has, and sees to its timers.
            lock: held for each call, since other threads may run the session.
        """
        self.window, self._flush, self._lock = window, flush, lock
        self.frame_max = window.frame_max
        self._unsent = False

    @property
    def is_open(self) -> bool:
        """Whether the other side has answered; frames can be put from then on."""
        return self.window.peer_epoch != 0

    @property
    def broken(self) -> str:
        """The reason why the link cannot be used any more; empty while it can be used."""
        return self.window.broken

    def put(self, frame: bytes) -> bool:
        """Takes a frame to send, as in `FrameLink`."""
        with self._lock:
            is_taken = self.window.put(frame)
            self._unsent |= is_taken
            return is_taken

    def put_alone(self, frame: bytes, waiting: Sized) -> bool:
        """Returns False: the thread that drives the context sends."""
        del frame, waiting
        return False

    def push(self) -> None:
        """Sends the frames that were put, as in `FrameLink`."""
        if self._unsent:
            with self._lock:
                self._unsent = False
                self._flush()

    def take(self) -> bytes | None:
        """Returns the next frame, as in `FrameLink`."""
        with self._lock:
            frame = self.window.take()
            if frame is not None and self.window.has_news:
                self._flush()
            return frame

    def ready(self) -> bool:
        """Returns whether there is something to do: a frame to take, or room that the last `put` missed."""
        return self.window.ready

    @property
    def is_unread(self) -> bool:
        """Whether the other side still uses the link, and some frames have not come to it yet."""
        return self.window.is_unread

    def close(self) -> None:
        """Ends the link for both sides."""
        with self._lock:
            self.window.close()
            self._flush()


@dataclass(frozen=True, slots=True)
class OpenedLink:
    """A link that a client has opened.

    Attributes:
        context_id: the id of the receiving context.
        window: the end of this side.
    """

    context_id: int
    window: FrameWindow


@dataclass(slots=True)
class _Peer:
    client: Client
    acceptor: FrameAcceptor


class SenderLinks:
    """The links of one sending session, by the addresses of its clients. No clock and no socket."""

    def __init__(self, session_id: int, random: Random, pace: Pace, settings: FrameSettings | None = None) -> None:
        """Starts without links.

        Args:
            session_id: the session's id.
            random: draws epochs.
            pace: limits the frames of all links together.
            settings: the times of a channel, and the size of its frames.
        """
        self._session_id, self._random, self._pace = session_id, random, pace
        self._settings = settings or FrameSettings()
        self._peers: dict[Hashable, _Peer] = {}
        # The addresses of links that may have something to send, or a timer.
        self._busy: dict[Hashable, None] = {}
        self._refusals: list[tuple[bytes, Hashable]] = []
        # By the epoch of the client, also those that are over; None for a link that was ended before it existed.
        self._windows: dict[int, FrameWindow | None] = {}
        self.opened: deque[OpenedLink] = deque()
        """Links that were opened and not taken by the owner of the session, the latest last."""
        self.has_news = False
        """Whether a link was opened, broken, or got a packet; the owner sets it back."""
        self.refused = 0
        """Packets of links that were refused, since the session had its largest number of them, or ends."""
        self.counts = FrameCounts()
        """The counters of all links."""
        self._closed = False

    def __len__(self) -> int:
        """Returns the number of clients that have, or had, a link."""
        return len(self._peers)

    def receive(self, packet: Frame | FrameAck, client: Client, now_ns: int) -> None:
        """Takes a packet of a client."""
        address = client.address
        self.has_news = True
        if self._closed:
            self._refuse(packet, client)
            return
        if self._windows.get(packet.sender, self) is None:
            self.counts.packets_dropped += 1
            return
        peer = self._peers.get(address)
        if peer is None or peer.client is not client:
            if peer is not None:
                self._drop(address)
            if len(self._peers) >= LINKS_MAX:
                self._refuse(packet, client)
                return
            acceptor = FrameAcceptor(self._settings, self._random, self._pace, self.counts)
            peer = self._peers[address] = _Peer(client, acceptor)
        self._busy[address] = None
        if peer.acceptor.receive(packet, now_ns) and peer.acceptor.window is not None:
            window = peer.acceptor.window
            self._note(window.peer_epoch, window)
            self.opened.append(OpenedLink(client.context_id, window))
            while len(self.opened) > LINKS_MAX:
                self.opened.popleft().window.close()

    def _note(self, epoch: int, window: FrameWindow | None) -> None:
        self._windows.pop(epoch, None)
        self._windows[epoch] = window
        if len(self._windows) > _KEPT_MAX:
            del self._windows[next(iter(self._windows))]

    def _refuse(self, packet: Frame | FrameAck, client: Client) -> None:
        self.refused += 1
        if not packet.flags & ENDED and len(self._refusals) < _UNSENT_MAX:
            answer = _ended(self._session_id, client.cookie, packet)
            self._refusals.append((answer, client.address))

    def counters(self) -> dict[str, int]:
        """Returns the counters of the links, by their names in the statistics."""
        return counters(self.counts) | {"links_refused": self.refused}

    def wake(self, window: FrameWindow) -> None:
        """Takes note that a window was used."""
        for address, peer in self._peers.items():
            if peer.acceptor.window is window:
                self._busy[address] = None
                return

    def end(self, epoch: int) -> int:
        """Ends a link that a client has replaced.

        Args:
            epoch: the epoch of the client.

        Returns:
            How many frames have come over it; no later one is taken, also when the first packets still come.
        """
        window = self._windows.get(epoch)
        if window is None:
            self._note(epoch, None)
            return 0
        window.end("the receiving context goes on over another link")
        return window.came

    def keep(self, client_at: Callable[[Hashable], Client | None]) -> None:
        """Breaks the links of clients that are not registered any more."""
        for address, peer in list(self._peers.items()):
            if client_at(address) is not peer.client:
                self._drop(address)

    def close(self) -> None:
        """Closes all links, and refuses others; the next `turn` returns the packets that say so."""
        self._closed = True
        for address, peer in self._peers.items():
            if peer.acceptor.window is not None:
                peer.acceptor.window.close()
                self._busy[address] = None
        self.has_news = True

    def turn(self, now_ns: int) -> list[tuple[bytes, Hashable]]:
        """Runs the timers that have expired; returns the packets to send now, with their addresses."""
        found, self._refusals = self._refusals, []
        for address in list(self._busy):
            peer = self._peers[address]
            window = peer.acceptor.window
            if window is not None:
                window.turn(now_ns)
                self.has_news |= bool(window.over)
            cookie = peer.client.cookie
            found += [(packet, address) for packet in peer.acceptor.packets(self._session_id, cookie, now_ns)]
            if window is None or window.next_ns is None:
                del self._busy[address]
        return found

    @property
    def next_ns(self) -> int | None:
        """The time at which to call `turn`; None when nothing is due before the next packet or call of a link."""
        times = [self._peers[address].acceptor.next_ns for address in self._busy]
        return min((time for time in times if time is not None), default=None)

    def _drop(self, address: Hashable) -> None:
        window = self._peers.pop(address).acceptor.window
        self._busy.pop(address, None)
        self.has_news = True
        if window is not None:
            window.end("the receiving context has left the session, or is silent")


class ReceiverEnd:
    """The link of one receiving context to one session. No clock and no socket."""

    def __init__(self, session_id: int, random: Random, settings: FrameSettings | None = None) -> None:
        """Starts without a link.

        Args:
            session_id: the session's id.
            random: draws epochs.
            settings: the times of a channel, and the size of its frames.
        """
        self._session_id, self._random = session_id, random
        self._settings = settings or FrameSettings()
        self.window: FrameWindow | None = None
        """The end of the link that was opened last; it may be broken."""
        self.counts = FrameCounts()
        """The counters of all links."""
        self._answers: list[bytes] = []
        self.has_news = False
        """Whether the link was opened or broken, or got a packet; the owner sets it back."""

    def open(self, now_ns: int) -> FrameWindow:
        """Opens the link; closes one that is open."""
        if self.window is not None:
            self.window.end("this side has opened another channel")
        epoch = self._random.getrandbits(32) or 1
        self.window = FrameWindow(self._settings, epoch, now_ns, counts=self.counts)
        return self.window

    def receive(self, packet: Frame | FrameAck, now_ns: int) -> None:
        """Takes a packet of the source."""
        self.has_news = True
        if self.window is not None and not self.window.over and packet.to == self.window.epoch:
            self.window.receive(packet, now_ns)
        elif packet.to and not packet.flags & ENDED and not self._answers:
            self._answers.append(_ended(self._session_id, packet.cookie, packet))

    def turn(self, cookie: int, now_ns: int) -> list[bytes]:
        """Runs the timer if it has expired; returns the packets to send now.

        Args:
            cookie: the cookie of the client; 0 while it is not registered.
            now_ns: the time.
        """
        window = self.window
        if window is not None:
            was_over = window.over
            window.turn(now_ns)
            self.has_news |= window.over != was_over
        if not cookie:
            return []
        found, self._answers = self._answers, []
        return found + (window.packets(self._session_id, cookie, now_ns) if window is not None else [])

    def end(self, reason: str) -> None:
        """Ends the link; frames that have come can still be taken."""
        if self.window is not None and not self.window.over:
            self.window.end(reason)
            self.has_news = True

    @property
    def next_ns(self) -> int | None:
        """The time at which to call `turn`; None when nothing is due before the next packet or call of the link."""
        return self.window.next_ns if self.window is not None else None


def counters(counts: FrameCounts) -> dict[str, int]:
    """Returns the counters of links, by their names in the statistics."""
    return {
        "frames_sent": counts.frames_sent,
        "frames_retransmitted": counts.frames_retransmitted,
        "frames_rcved": counts.frames_rcved,
    }


def _ended(session_id: int, cookie: int, packet: Frame | FrameAck) -> bytes:
    """Returns the answer to a packet of a link that does not exist."""
    return udp_packets.frame_ack(session_id, cookie, packet.sender, packet.to, (0, 0, 0), ENDED)
