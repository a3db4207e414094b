"""The UDP endpoints of a context: its sockets, its sessions over UDP, and their timers."""

from __future__ import annotations

import functools
import itertools
import logging
import select
import threading
import time
from dataclasses import dataclass
from random import Random, SystemRandom
from typing import TYPE_CHECKING

from ipcbus.errors import ConfigError
from ipcbus.resolution.local.registry import lives
from ipcbus.runtime.discovery.topic_resolution import TopicResolution
from ipcbus.runtime.loop.timerfd import FOREVER_NS
from ipcbus.transport.udp import datagram_socket, network_interface
from ipcbus.transport.udp.loss_injection import from_environment
from ipcbus.transport.udp.sealing import Seals
from ipcbus.transport.udp.session_socket import SessionSocket
from ipcbus.transport.udp.udp_plan import receiver_buffers, receiver_ports, receiver_settings
from ipcbus.transport.udp.udp_receiver import UdpReceiver
from ipcbus.wire.wire_layout import TOPIC_BITS, TRANSPORT_LBTRM

if TYPE_CHECKING:
    from collections.abc import Callable

    from ipcbus.config import Config, ContextOptions, ReceiverOptions
    from ipcbus.resolution.local.adverts import SessionAdvert
    from ipcbus.resolution.local.registry import Registry
    from ipcbus.runtime.loop.event_loop import EventLoop
    from ipcbus.transport.udp.datagram_socket import DatagramSocket
    from ipcbus.transport.udp.udp_plan import Kind
    from ipcbus.transport.udp.udp_sender import UdpSender, UdpSenderListener
    from ringbuf.slots import Identity

log = logging.getLogger("ipcbus")

_FIRST_LOCAL = 0x8000
"""The lowest number of rings for messages that come over UDP; lower numbers are of sending sessions."""
_TURNS = 16
_UDP_RECEIVERS_MAX = 1024
"""The most sessions that a context joins over UDP: each has a ring, and resolution may offer any number of sessions."""
_PATIENCE_NS = 5_000_000
"""Time in ns for which the sockets are not read while the pump reads a full ring."""
_LINGER_S = 0.02
_LONG_NS = 500_000_000
"""Time in ns without a read, after which the sockets are read before a peer counts as silent."""


@dataclass(frozen=True, slots=True)
class _Listener:
    """A session's listener (`UdpSenderListener`)."""

    clients_changed: Callable[[], None]
    ring_has_room: Callable[[], None]
    turn_is_due: Callable[[], None]
    context_lives: Callable[[int], bool | None]


class UdpEndpoints:
    """The sending and receiving over UDP of a context. Everything runs on the driver, except where a text says not."""

    def __init__(
        self,
        domain: str,
        who: Identity,
        options: ContextOptions,
        registry: Registry,
        event_loop: EventLoop,
        changed: Callable[[], None],
        config: Config,
    ) -> None:
        """Opens only the sockets of topic resolution over the network.

        Args:
            domain: the bus domain.
            who: the identity of the context.
            options: the options of the context.
            registry: the registry of the context.
            event_loop: the event loop of the context.
            changed: makes the loop notify sources and receivers soon of receivers and sources that came or went.
            config: the options of sources and receivers without overrides.

        Raises:
            ConfigError, ipcbus.TransportError: the key cannot be read, or a socket cannot be opened.
        """
        self._domain, self._who, self._options, self._registry = domain, who, options, registry
        self._event_loop, self._changed = event_loop, changed
        self._lock = threading.Lock()
        self._random = SystemRandom()
        self._epoll: select.epoll | None = None
        self._sockets: dict[int, SessionSocket] = {}
        self._udp_senders: list[UdpSender] = []
        self._udp_receivers: list[UdpReceiver] = []
        self._shared: dict[tuple[str, ...], SessionSocket] = {}
        self._local_numbers = itertools.count()
        self._due_ns = FOREVER_NS
        self._full_receiver: UdpReceiver | None = None
        self._read_ns = 0
        self._hurried = False
        self.seals = Seals(domain, options.network_key_file, options.network_replay_window)
        self.resolution = TopicResolution(
            domain,
            who,
            (options, config.values("source"), config.values("receiver")),
            self.seals.resolution,
            self.hurry,
        )
        self._known_changes = 0
        for path in self.resolution.paths:
            for port in path.ports:
                self._listen(port)

    # ------------------------------------------------------------------ sending

    def listener(self, ring_has_room: Callable[[], None]) -> UdpSenderListener:
        """Returns what a session over UDP of this context reports to; `ring_has_room` is called as it says there."""
        return _Listener(self._changed_soon, ring_has_room, self.hurry, functools.partial(lives, self._domain))

    def add(self, udp_sender: UdpSender) -> None:
        """Takes care of a sending session from now on; any thread may call this."""
        with self._lock:
            self._udp_senders.append(udp_sender)
            self._listen(udp_sender.session_socket)
        self.hurry()

    def hurry(self) -> None:
        """Makes the loop call `turn` soon; any thread may call this."""
        self._hurried = True
        self._event_loop.hurry()
        if not self._event_loop.is_driver():
            self._event_loop.kick()

    def _changed_soon(self) -> None:
        self._note_activity()
        self._changed()
        self._event_loop.hurry()

    # ------------------------------------------------------------------ receiving

    def join(self, advert: SessionAdvert, options: ReceiverOptions, *, resume_at: int | None) -> UdpReceiver:
        """Begins to join a session over UDP, or the twin of one over a ring.

        Args:
            advert: the session; it has an endpoint.
            options: the options of the first receiver of the session.
            resume_at: the number of the first datagram to receive, see `ReliableReceiver`.

        Raises:
            ConfigError, ipcbus.TransportError: a socket cannot be opened.
            ringbuf.ring_errors.RingError: a ring cannot be made.
        """
        endpoint = advert.endpoint
        lines = advert.topics_max
        if endpoint is None or not 1 <= lines <= 1 << (TOPIC_BITS // 2) or lines & (lines - 1):
            raise ConfigError(
                f"{advert.source_string} has no endpoint over UDP, or {lines} lines; its advert is damaged"
            )
        if len(self._udp_receivers) >= _UDP_RECEIVERS_MAX:
            raise ConfigError(
                f"{advert.source_string}: this context has joined {_UDP_RECEIVERS_MAX} sessions over UDP, "
                "the maximum; receive in several contexts, and set network_key_file if strangers may offer sessions"
            )
        # A context that only answers may know no group (`response_sessions`).
        kind: Kind = "lbtrm" if endpoint.group or advert.transport == TRANSPORT_LBTRM else "lbtru"
        own = self._own_port(kind, endpoint.host, options)
        ports = (own, self._group_port(endpoint.group, endpoint.group_port)) if endpoint.group else (own,)
        local = _FIRST_LOCAL | next(self._local_numbers) & (_FIRST_LOCAL - 1)
        entries: list[int] = []

        def left() -> None:
            for entry in entries:
                self._registry.remove(entry)

        udp_receiver = UdpReceiver(
            self._domain,
            local,
            advert,
            self._who,
            ports,
            own.socket.peer(endpoint.host, endpoint.port),
            receiver_settings(kind, options),
            # One generator a session, so that a source cannot guess the numbers that others see; SystemRandom is slow.
            Random(self._random.getrandbits(256)),
            multicast=bool(endpoint.group),
            resume_at=resume_at,
            group=self._options.shared_memory_group,
            sample_every=self._options.latency_sampling_interval,
            on_leave=left,
            on_mark=self._event_loop.request_attention,
            on_due=self.hurry,
        )
        try:
            entries.append(self._registry.add_reception(advert, local))
        except BaseException:
            udp_receiver.leave()
            raise
        self._udp_receivers.append(udp_receiver)
        self.hurry()
        return udp_receiver

    def _own_port(self, kind: Kind, host: str, options: ReceiverOptions) -> SessionSocket:
        """Returns the socket for unicast to this context."""
        of_multicast = kind == "lbtrm"
        option = "resolver_multicast_interface" if of_multicast else "transport_lbtru_interface"
        text = self._options.resolver_multicast_interface if of_multicast else options.transport_lbtru_interface
        key = (kind, text, "6" if ":" in host else "4")
        if key not in self._shared:
            if not text:
                raise ConfigError(
                    "multicast is off in this context: set resolver_multicast_interface (scope context) to an address "
                    "of this host"
                )
            loss = from_environment(kind, "receiver", self._random)
            buffers = receiver_buffers(kind, self._options)
            ports = receiver_ports(kind, options)
            self._share(
                key,
                datagram_socket.unicast(network_interface.find(text, option), ports, buffers, loss),
            )
        return self._shared[key]

    def _group_port(self, group: str, port: int) -> SessionSocket:
        key = (group, str(port))
        if key not in self._shared:
            interface = network_interface.find(
                self._options.resolver_multicast_interface, "resolver_multicast_interface"
            )
            loss = from_environment("lbtrm", "receiver", self._random)
            buffers = receiver_buffers("lbtrm", self._options)
            self._share(key, datagram_socket.group_member(group, port, interface, buffers, loss))
        return self._shared[key]

    def _share(self, key: tuple[str, ...], socket: DatagramSocket) -> None:
        def unused(port: SessionSocket) -> None:
            self._shared.pop(key, None)
            self.release(port)

        self._shared[key] = port = SessionSocket(socket, self.seals.receiver, on_unused=unused)
        with self._lock:
            self._listen(port)

    def _listen(self, port: SessionSocket) -> None:
        if self._epoll is None:
            self._epoll = select.epoll()
            self._event_loop.listen(self._epoll.fileno())
        number = port.socket.fileno()
        self._epoll.register(number, select.EPOLLIN)
        self._sockets[number] = port

    def release(self, port: SessionSocket) -> None:
        """Closes a socket that no session uses any more; any thread may call this."""
        with self._lock:
            self._sockets.pop(port.socket.fileno(), None)
        port.close()

    # ------------------------------------------------------------------ driving

    def read(self) -> int:
        """Reads the sockets; returns when `turn` is due, in ns of the monotonic clock."""
        if self._full_receiver and time.monotonic_ns() < self._read_ns + _PATIENCE_NS and self._full_receiver.congested:
            return self._due_ns
        for _ in range(_TURNS):
            ready = [port for number, _ in self._poll() if (port := self._sockets.get(number)) is not None]
            if not ready:
                break
            now_ns = self._read_ns = time.monotonic_ns()
            self._full_receiver = None
            for addressee in set().union(*(port.read(now_ns) for port in ready)):
                following = addressee.turn(now_ns)
                if following is not None:
                    self._due_ns = min(self._due_ns, following)
                if isinstance(addressee, UdpReceiver) and addressee.congested:
                    self._full_receiver = addressee
            # The rest waits in the kernel until the pump has read the ring.
            if self._full_receiver or not any(port.may_have_more for port in ready):
                break
        self._look_for_news()
        return 0 if self._hurried else self._due_ns

    def _look_for_news(self) -> None:
        if self.resolution.changes != self._known_changes:
            self._known_changes = self.resolution.changes
            self._changed_soon()

    def _poll(self) -> list[tuple[int, int]]:
        return self._epoll.poll(0) if self._epoll is not None else []

    def turn(self, now_ns: int) -> int:
        """Does the work that is due; returns when to call again, in ns of the monotonic clock."""
        if now_ns < self._due_ns and not self._hurried:
            return self._due_ns
        self._hurried = False  # first: the work below, and any other thread, may call `hurry`
        if now_ns - self._read_ns > _LONG_NS:
            # A callback took long: a peer whose packets wait in a socket is not silent.
            self.read()
            now_ns = time.monotonic_ns()
        soon = self.resolution.turn(now_ns)
        self._look_for_news()
        for udp_sender in list(self._udp_senders):
            following = udp_sender.turn(now_ns)
            soon = soon if following is None else min(soon, following)
            if udp_sender.over(now_ns):
                self._drop(udp_sender)
        for udp_receiver in list(self._udp_receivers):
            if udp_receiver.has_left:
                self._udp_receivers.remove(udp_receiver)
                continue
            following = udp_receiver.turn(now_ns)
            soon = soon if following is None else min(soon, following)
        self._note_activity()
        self._due_ns = soon
        return 0 if self._hurried else soon

    def _note_activity(self) -> None:
        """Sets whether the event loop reads the sockets often: not for UDP twins without a receiver."""
        active = any(udp_sender.active for udp_sender in list(self._udp_senders))
        self._event_loop.network_is_busy = active or bool(self._udp_receivers or self.resolution.paths)

    def show_counters(self) -> None:
        """Writes the counters of topic resolution into the registry."""
        if self.resolution.paths:
            self._registry.show_counters(self.resolution.counters())

    def _drop(self, udp_sender: UdpSender) -> None:
        self._udp_senders.remove(udp_sender)
        udp_sender.detach()

    def close(self) -> None:
        """Closes every socket, after the clients of ended sessions have got what they miss."""
        while self._epoll is not None and any(
            not udp_sender.over(time.monotonic_ns(), context_closes=True) for udp_sender in list(self._udp_senders)
        ):
            with self._event_loop.driver_lock():
                self.read()
                self._due_ns = 0
                self.turn(time.monotonic_ns())
            self._epoll.poll(_LINGER_S)
        for udp_sender in list(self._udp_senders):
            self._drop(udp_sender)
        self.resolution.close()
        for port in list(self._sockets.values()):
            port.close()
        self._sockets.clear()
        if self._epoll is not None:
            self._epoll.close()
            self._epoll = None

    def abandon(self) -> None:
        """Closes the descriptors in the child of a fork."""
        for port in list(self._sockets.values()):
            port.close()
        if self._epoll is not None:
            self._epoll.close()
