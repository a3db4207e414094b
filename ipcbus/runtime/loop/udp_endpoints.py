"""The UDP endpoints of a context: its sockets, its sessions over UDP, and their timers."""

from __future__ import annotations

import functools
import itertools
import logging
import select
import threading
import time
import weakref
from dataclasses import dataclass
from random import Random, SystemRandom
from typing import TYPE_CHECKING

from ipcbus.delivery import timer_grid
from ipcbus.errors import ConfigError
from ipcbus.resolution.local.registry import lives
from ipcbus.runtime.discovery.peers import Peers
from ipcbus.runtime.discovery.topic_resolution import TopicResolution
from ipcbus.runtime.loop.seals import Seals
from ipcbus.runtime.loop.shared_ports import SharedPorts
from ipcbus.runtime.loop.timerfd import FOREVER_NS
from ipcbus.runtime.weak_sets import members
from ipcbus.transport.tcp.tcp_plan import receiver_port, stream_receiver_settings, tls_of
from ipcbus.transport.tcp.tcp_receiver import TcpReceiver
from ipcbus.transport.tcp.tcp_sender import TcpSender
from ipcbus.transport.udp.datagram_relay import CAME, HAS_MORE, LEFT
from ipcbus.transport.udp.udp_plan import receiver_settings
from ipcbus.transport.udp.udp_receiver import BACKLOG_BYTES, UdpReceiver
from ipcbus.transport.udp.udp_sender import UdpSender
from ipcbus.wire.wire_layout import TOPIC_BITS, TRANSPORT_LBTRM, TRANSPORT_LBTTCP

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ipcbus.config import Config, ContextOptions, ReceiverOptions
    from ipcbus.reliability.receiver_settings import ReceiverSettings
    from ipcbus.resolution.local.adverts import SessionAdvert
    from ipcbus.resolution.local.registry import Registry
    from ipcbus.resolution.source_string import Endpoint
    from ipcbus.runtime.loop.event_loop import EventLoop
    from ipcbus.transport.tcp.stream_port import StreamPort
    from ipcbus.transport.udp.mmsg import Address
    from ipcbus.transport.udp.session_socket import PacketHandler, SessionSocket
    from ipcbus.transport.udp.udp_plan import Kind
    from ipcbus.transport.udp.udp_sender import UdpSenderListener
    from ringbuf.slots import Identity

log = logging.getLogger("ipcbus")

_all: weakref.WeakSet[UdpEndpoints] = weakref.WeakSet()
"""Those of all contexts of this process."""

_FIRST_LOCAL = 0x8000
"""The lowest number of rings for messages that come over UDP; lower numbers are of sending sessions."""
_TURNS = 16
_UDP_RECEIVERS_MAX = 1024
"""The most sessions that a context joins over UDP: each has a ring, and resolution may offer any number of sessions."""
_PATIENCE_NS = 5_000_000
"""Time in ns for which the sockets are not read while the pump reads a full ring."""
_LINGER_S = 0.02
_PUSH_MAX_NS = 1_500_000_000
_PUSH_S = 0.001
_PAUSE_NS = 100_000_000
"""Time in ns without a read, as in a slow callback, after which all that waits is read before timers run."""
_TURNS_AFTER_PAUSE = 512
"""Enough for full socket buffers; a peer that sends without end does not hold the timers up."""

_SEND_SPARE = BACKLOG_BYTES // 2
"""Bytes that an undriven context takes beyond its ring, so that a send in its thread goes on."""
_BEHIND_MAX_NS = 1_000_000_000
"""Longest time for which timers of receivers wait, after a pause, for packets that a full ring keeps in a socket."""


@dataclass(frozen=True, slots=True)
class _Listener:
    """A session's listener (`UdpSenderListener`)."""

    clients_changed: Callable[[], None]
    ring_has_room: Callable[[], None]
    turn_is_due: Callable[..., None]
    context_lives: Callable[[int], bool | None]


def _take_acks(endpoints: weakref.ref[UdpEndpoints]) -> int:
    found = endpoints()
    return found.take_acks() if found is not None else HAS_MORE


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
        self._sockets: dict[int, SessionSocket | StreamPort] = {}
        self._streams: set[StreamPort] = set()
        """The connections of this context's receivers."""
        self._latest: UdpReceiver | None = None
        """The receiver that has got something last."""
        self._latest_sender: UdpSender | None = None
        """The sender over UDP that has got an answer last."""
        self._udp_senders: list[UdpSender] = []
        self._udp_receivers: list[UdpReceiver] = []
        self._local_numbers = itertools.count()
        self._due_ns = FOREVER_NS
        self._full_receiver: UdpReceiver | None = None
        self._read_ns = 0
        self._behind_ns = 0
        """The time of the first read after a pause, while not all that waited has been read; 0 when it has."""
        self._hurried = False
        self._stood_in_ns = 0
        """The time of the last read for an application that did not drive the context."""
        self.seals = Seals(
            domain,
            options.network_key_file,
            options.network_replay_window,
            encrypts=options.network_protection == "encrypt",
        )
        self.tls = tls_of(options)
        self._shared_ports = SharedPorts(options, self.seals.receiver, self._random, self._add_port, self.release)
        self.resolution = TopicResolution(
            domain,
            who,
            (options, config.values("source"), config.values("receiver")),
            self.seals.resolution,
            self.hurry,
        )
        self.peers = Peers(domain, self.resolution)
        self._known_changes = 0
        for path in self.resolution.paths:
            for port in path.ports:
                self._listen(port)
        _all.add(self)

    # ------------------------------------------------------------------ sending

    def listener(self, ring_has_room: Callable[[], None]) -> UdpSenderListener:
        """Returns what a session over UDP of this context reports to; `ring_has_room` is called as it says there."""
        return _Listener(self._changed_soon, ring_has_room, self._hurry_by, self._context_lives)

    def _context_lives(self, context_id: int) -> bool | None:
        """Returns whether a context lives, as `LocalContexts` asks; any thread may call this."""
        # To open a registry takes 1 ms, and each client is looked at five times a second.
        known = self.peers.lives(context_id) if self._event_loop.is_driver() else None
        return lives(self._domain, context_id) if known is None else known

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

    def _hurry_by(self, due_ns: int = 0) -> None:
        """Makes the loop call `turn` at this time at the latest; any thread may call this."""
        if due_ns < self._due_ns:
            self.hurry()

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
        if advert.over_network == TRANSPORT_LBTTCP:
            return self._join_over_tcp(advert, endpoint, options, resume_at)
        # A context that only answers may know no group (`response_sessions`).
        kind: Kind = "lbtrm" if endpoint.group or advert.transport == TRANSPORT_LBTRM else "lbtru"
        own = self._shared_ports.own(kind, endpoint.host, options)
        ports = (own, self._shared_ports.group(endpoint.group, endpoint.group_port)) if endpoint.group else (own,)
        address = own.socket.peer(endpoint.host, endpoint.port)
        return self._receive(UdpReceiver, advert, ports, address, receiver_settings(kind, options), resume_at)

    def _join_over_tcp(
        self, advert: SessionAdvert, endpoint: Endpoint, options: ReceiverOptions, resume_at: int | None
    ) -> UdpReceiver:
        """Begins to connect to a session over TCP."""

        def unused(port: StreamPort) -> None:
            self._streams.discard(port)
            self._latest = None
            self.release(port)

        port = receiver_port(self._options, options, self.seals.receiver, self.tls, unused)
        self._streams.add(port)
        with self._lock:
            self._listen(port)
        address = port.socket.peer(endpoint.host, endpoint.port)
        settings = stream_receiver_settings(options)
        try:
            return self._receive(TcpReceiver, advert, (port,), address, settings, resume_at)
        except BaseException:
            unused(port)
            raise

    def _receive(
        self,
        kind: type[UdpReceiver],
        advert: SessionAdvert,
        ports: tuple[SessionSocket | StreamPort, ...],
        address: Address,
        settings: ReceiverSettings,
        resume_at: int | None,
    ) -> UdpReceiver:
        """Begins to receive a session from its sockets."""
        local = _FIRST_LOCAL | next(self._local_numbers) & (_FIRST_LOCAL - 1)
        entries: list[int] = []

        def left() -> None:
            for entry in entries:
                self._registry.remove(entry)

        udp_receiver = kind(
            self._domain,
            local,
            advert,
            self._who,
            ports,
            address,
            settings,
            # One generator a session, so that a source cannot guess the numbers that others see; SystemRandom is slow.
            Random(self._random.getrandbits(256)),
            multicast=len(ports) > 1,
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

    def _add_port(self, port: SessionSocket) -> None:
        with self._lock:
            self._listen(port)

    def _listen(self, port: SessionSocket | StreamPort) -> None:
        if self._epoll is None:
            self._epoll = select.epoll()
            self._event_loop.listen(self._epoll.fileno())
        number = port.socket.fileno()
        self._epoll.register(number, select.EPOLLIN)
        self._sockets[number] = port

    def release(self, port: SessionSocket | StreamPort) -> None:
        """Closes a socket that no session uses any more; any thread may call this."""
        with self._lock:
            self._sockets.pop(port.socket.fileno(), None)
        port.close()

    # ------------------------------------------------------------------ driving

    def first_fetch(self) -> Callable[[], int] | None:
        """Returns what reads the session that was read last; None without any. It does not keep the context alive."""
        if self._latest is not None:
            return self._latest.first_fetch
        return functools.partial(_take_acks, weakref.ref(self)) if self._latest_sender is not None else None

    def take_acks(self) -> int:
        """Takes ACKs of the sender that has got one last, or leaves them where nothing else has come."""
        sender = self._latest_sender
        if sender is None or (found := sender.take_acks(may_leave=True)) != LEFT:
            return HAS_MORE if sender is None else found
        return LEFT if all(fd == sender.session_socket.socket.fileno() for fd, _ in self._poll()) else HAS_MORE

    def read_first(self) -> bool:
        """Reads the session that was read last before all else; returns whether anything came, and nothing else."""
        if self._latest is None:
            return self._latest_sender is not None and self._latest_sender.take_acks() == CAME
        fetch = self._latest.first_fetch
        return fetch is not None and fetch() == CAME

    def read(self, *, briefly: bool = False) -> int:
        """Reads the sockets; returns when `turn` is due, in ns of the monotonic clock.

        Args:
            briefly: whether to leave for the next call what the system keeps, unless the last call was long ago. The
                pump then reads each small piece while the processor's cache still holds it.
        """
        now_ns = time.monotonic_ns()
        if self._full_receiver and now_ns < self._read_ns + _PATIENCE_NS and self._full_receiver.congested:
            return self._due_ns
        paused = now_ns - self._read_ns > _PAUSE_NS
        if paused and not self._behind_ns:
            self._behind_ns = now_ns
        for stream in self._streams:
            if stream.socket.is_paused:
                stream.look_for_room()
        addressees: set[PacketHandler] = set()
        if (latest := self._latest) is not None:
            latest.read_rest(now_ns)
            addressees.add(latest)
        for _ in range(_TURNS_AFTER_PAUSE if paused else _TURNS):
            ready = [port for number, _ in self._poll() if (port := self._sockets.get(number)) is not None]
            if not ready:
                break
            now_ns = time.monotonic_ns()
            self._full_receiver = None
            for addressee in set().union(*(port.read(now_ns) for port in ready)):
                addressees.add(addressee)
                if isinstance(addressee, UdpSender):
                    self._latest_sender = None if isinstance(addressee, TcpSender) else addressee
                if isinstance(addressee, UdpReceiver):
                    self._latest = addressee
                    if addressee.congested:
                        self._full_receiver = addressee
            # The rest waits in the kernel until the pump has read the ring.
            leaves = briefly and not paused
            if self._full_receiver or all((leaves and port.rest_waits) or not port.may_have_more for port in ready):
                break
        self._read_ns = now_ns
        if not self._full_receiver:
            self._behind_ns = 0
        # Last: what a timer is about to give up may be in a later packet.
        for addressee in addressees:
            if isinstance(addressee, UdpReceiver) and not addressee.needs_turn(now_ns):
                continue
            self._due_by(self._turn_of(addressee, now_ns))
        full = self._full_receiver is not None or any(stream.socket.is_paused for stream in self._streams)
        self._event_loop.pump.room_awaited = full or any(each.awaits_room for each in self._udp_receivers)
        self._look_for_news()
        return self.due_ns

    def read_after_pause(self, now_ns: int) -> int:
        """Reads the sockets if that was long ago, so that no packet that waits there counts as missing.

        Returns:
            The time now, by which the timers are to be judged.
        """
        if now_ns - self._read_ns <= _PAUSE_NS:
            return now_ns
        self.read()
        return time.monotonic_ns()

    def read_for_undriven(self, udp_sender: UdpSender, *, closing: bool = False) -> bool:
        """Reads the sockets of clients in this process that no thread drives: the waiting one may be theirs.

        Nothing is delivered. Any thread may call this.

        Args:
            udp_sender: the session whose clients the calling thread waits for.
            closing: whether it has ended: its clients take all the rest, also those that were driven just now.

        Returns: whether there is such a client.
        """
        sender = udp_sender.reliable_sender
        clients = {client.context_id for client in sender.clients}
        # A newcomer may be any of them; it says who it is when its sockets are read.
        undriven = [e for e in members(_all) if e is not self and (sender.newcomers or e._who.context_id in clients)]
        return any([each._stand_in(sender.session_id, closing=closing) for each in undriven])

    def undriven(self, context_ids: Iterable[int]) -> list[str]:
        """Returns the names of those that are other contexts of this process, and that no thread drives now."""
        found = {each._who.context_id: each for each in members(_all) if each is not self and each._event_loop.is_idle}
        return [found[context_id]._who.context_name for context_id in context_ids if context_id in found]

    def _stand_in(self, session_id: int, *, closing: bool) -> bool:
        """Reads the sockets for an application that does not drive the context."""
        event_loop = self._event_loop
        driven = self._read_ns != self._stood_in_ns and time.monotonic_ns() - self._read_ns <= _PAUSE_NS
        if (driven and not closing) or not event_loop.sequential or event_loop.closing:
            return False
        with event_loop.driver_lock_if_free() as free:
            if not free or event_loop.closing:
                return False
            receivers = [each for each in self._udp_receivers if each.session_id == session_id]
            try:
                for udp_receiver in receivers:
                    udp_receiver.spare = udp_receiver.rest_max if closing else _SEND_SPARE
                self._read_and_turn()
            finally:
                for udp_receiver in receivers:
                    udp_receiver.spare = 0
            self._stood_in_ns = self._read_ns
            event_loop.hurry()
        event_loop.kick()  # its descriptor becomes readable, although its sockets are read
        return True

    def _read_and_turn(self) -> None:
        """Reads the sockets, and runs a turn whether it is due or not; for the driver only."""
        self.read()
        self._due_ns = 0
        self.turn(time.monotonic_ns())

    def push_out(self, udp_sender: UdpSender) -> None:
        """Sends what an ended session still holds to clients of this thread, which may not drive this context again."""
        if not self._event_loop.sequential or self._event_loop.is_driver():
            return
        until_ns = time.monotonic_ns() + _PUSH_MAX_NS
        while (
            self._epoll is not None
            and udp_sender.reliable_sender.blocked
            and time.monotonic_ns() < until_ns
            and self.read_for_undriven(udp_sender, closing=True)
        ):
            self._epoll.poll(_PUSH_S)
            with self._event_loop.driver_lock():
                self._read_and_turn()

    def is_behind(self, now_ns: int) -> bool:
        """Returns whether packets that came during a pause still wait: no message counts as missing for long."""
        return bool(self._behind_ns) and now_ns - self._behind_ns < _BEHIND_MAX_NS

    def _turn_of(self, addressee: PacketHandler, now_ns: int) -> int | None:
        """Has an addressee do what is due."""
        if isinstance(addressee, UdpReceiver):
            return self._patient_turn(addressee, now_ns, shows=True)
        return addressee.turn(now_ns)

    def _patient_turn(self, udp_receiver: UdpReceiver, now_ns: int, *, shows: bool) -> int | None:
        """Has a receiver do what is due; its timers wait for packets that came during a pause."""
        return now_ns + _PATIENCE_NS if self.is_behind(now_ns) else udp_receiver.turn(now_ns, shows=shows)

    def _look_for_news(self) -> None:
        if self.resolution.changes != self._known_changes:
            self._known_changes = self.resolution.changes
            self._changed_soon()

    def _poll(self) -> list[tuple[int, int]]:
        return self._epoll.poll(0) if self._epoll is not None else []

    @property
    def due_ns(self) -> int:
        """When `turn` is due, in ns of the monotonic clock."""
        return 0 if self._hurried else self._due_ns

    def turn(self, now_ns: int, *, early: bool = False) -> int:
        """Does what is due, with `early` also what is soon; returns when to call again, in ns (monotonic clock)."""
        for step in self.steps(now_ns, early=early):
            step(now_ns)
        return self.due_ns

    def steps(self, now_ns: int, *, early: bool = False) -> list[Callable[[int], None]]:
        """Returns what `turn` does, for a caller that goes on later; nothing where nothing is due."""
        if now_ns < self._due_ns - early * timer_grid.LEAD_MAX_NS and not self._hurried:
            return []
        # First: the steps, and any other thread, may call `hurry`; what is due is not known meanwhile.
        self._hurried, self._due_ns = False, FOREVER_NS
        steps: list[Callable[[int], None]] = [self._turn_resolution]
        for sender in self._udp_senders:
            parts = (self._settle_sender, self._turn_sender, self._show_sender)
            steps += [functools.partial(part, sender) for part in parts]
        for receiver in self._udp_receivers:
            steps += [functools.partial(part, receiver) for part in (self._turn_receiver, self._show_receiver)]
        return [*steps, self._note_activity]

    def _turn_resolution(self, now_ns: int) -> None:
        self._due_by(min(self.resolution.turn(now_ns), self.seals.turn(now_ns)))
        if self.tls is not None:
            self._due_by(self.tls.turn(now_ns))
        self._look_for_news()

    def _settle_sender(self, udp_sender: UdpSender, _now_ns: int) -> None:
        udp_sender.settle()

    def _show_sender(self, udp_sender: UdpSender, now_ns: int) -> None:
        if udp_sender in self._udp_senders:
            self._due_by(udp_sender.show_stats(now_ns))

    def _turn_sender(self, udp_sender: UdpSender, now_ns: int) -> None:
        if udp_sender in self._udp_senders:
            self._due_by(udp_sender.turn(now_ns, shows=False))
            if udp_sender.over(now_ns):
                self._drop(udp_sender)

    def _turn_receiver(self, udp_receiver: UdpReceiver, now_ns: int) -> None:
        if not udp_receiver.has_left:
            # It had its turn when the sockets were read, unless something is due, or comes early with this turn.
            is_due = udp_receiver.needs_turn(now_ns + timer_grid.LEAD_MAX_NS)
            self._due_by(
                self._patient_turn(udp_receiver, now_ns, shows=False) if is_due else udp_receiver.idle_until_ns
            )
        elif udp_receiver in self._udp_receivers:
            self._udp_receivers.remove(udp_receiver)
            if self._latest is udp_receiver:
                self._latest = None

    def _show_receiver(self, udp_receiver: UdpReceiver, now_ns: int) -> None:
        if not udp_receiver.has_left and not self.is_behind(now_ns):
            udp_receiver.show_stats(now_ns)

    def _due_by(self, at_ns: int | None) -> None:
        if at_ns is not None and at_ns < self._due_ns:
            self._due_ns = at_ns

    def has_packets(self) -> bool:
        """Returns whether a socket has something to read."""
        return bool(self._poll())

    def _note_activity(self, _now_ns: int = 0) -> None:
        """Sets whether the event loop reads the sockets often: not for UDP twins without a receiver."""
        active = any(udp_sender.active for udp_sender in list(self._udp_senders))
        self._event_loop.network_is_busy = active or bool(self._udp_receivers or self.resolution.paths)

    def show_counters(self) -> None:
        """Writes the counters of topic resolution and of the seals into the registry."""
        if self.resolution.paths:
            self._registry.show_counters(self.resolution.counters())
        if self._options.network_key_file:
            self._registry.show_counters({"dgrams_dropped_seal": self.seals.dropped()})

    def _drop(self, udp_sender: UdpSender) -> None:
        self._udp_senders.remove(udp_sender)
        if self._latest_sender is udp_sender:
            self._latest_sender = None
        udp_sender.detach()

    def close(self) -> None:
        """Closes every socket, after the clients of ended sessions have got what they miss."""
        while self._epoll is not None and any(
            not udp_sender.over(time.monotonic_ns(), context_closes=True) for udp_sender in list(self._udp_senders)
        ):
            with self._event_loop.driver_lock():
                self._read_and_turn()
            for udp_sender in list(self._udp_senders):
                self.read_for_undriven(udp_sender, closing=True)
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
            port.abandon()
        if self._epoll is not None:
            self._epoll.close()
