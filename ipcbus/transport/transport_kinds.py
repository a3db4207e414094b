"""The kinds of transport sessions: names, ids, sizes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ipcbus.wire.wire_layout import OVER_UDP

if TYPE_CHECKING:
    from collections.abc import Callable

    from ipcbus.config import ContextOptions, SourceOptions
    from ipcbus.transport.tcp.tcp_plan import TcpPlan
    from ipcbus.transport.udp.session_socket import SessionSocket
    from ipcbus.transport.udp.udp_plan import UdpPlan


@dataclass(frozen=True, slots=True)
class SessionPlan:
    """The options that a session is made with, fixed by its first source.

    Two sources may share a session when their plans are equal.
    """

    transport: int
    window: int
    source_paced: bool
    datagram_max: int
    receivers_max: int
    topics_max: int
    sm_interval_ms: int
    batch_minimum: int
    batch_interval_ms: int
    explicit_batch_ms: int = 0
    evict_after_ms: int = 0
    checksums: bool = False
    fills_datagrams: bool = False
    """Whether datagrams of a burst are filled; else each goes out as soon as it has `batch_minimum` bytes."""
    udp: UdpPlan | TcpPlan | None = None
    """How the session goes over UDP or TCP; with a ring, its UDP twin for receivers that cannot map the ring."""

    @property
    def over_udp(self) -> bool:
        """Whether the session goes over UDP alone."""
        return self.transport in OVER_UDP

    @property
    def leaves_out(self) -> bool:
        """Whether a slow receiver loses messages by the behavior that the options name."""
        return self.source_paced or (self.udp is not None and self.udp.drops)

    def as_options(self, prefix: str) -> dict[str, object]:
        """Returns the options that ask for this plan, for texts; `prefix` is that of the transport's options."""
        own = f"{prefix}_"
        paced, evict_after_ms = not self.source_paced, self.evict_after_ms
        if self.over_udp and self.udp is not None:
            paced = self.udp.settings.sending.receiver_paced
            evict_after_ms = self.udp.settings.sending.evict_after // 1_000_000
        options: dict[str, object] = {
            f"{own}transmission_window_size": self.window,
            f"{own}behavior": "receiver_paced" if paced else "source_paced",
            f"{own}datagram_max_size": self.datagram_max,
            f"{own}maximum_receivers_per_transport": self.receivers_max,
            f"{own}maximum_topics_per_transport": self.topics_max,
            f"{own}sm_interval": self.sm_interval_ms,
            "implicit_batching_minimum_length": self.batch_minimum,
            "implicit_batching_interval": self.batch_interval_ms,
            "explicit_batching_interval": self.explicit_batch_ms,
            "slow_receiver_behavior": "evict" if evict_after_ms else "block",
        }
        if not self.over_udp:
            options[f"{own}record_checksum"] = self.checksums
        if evict_after_ms:
            options["slow_receiver_timeout"] = evict_after_ms
        return options if self.udp is None else options | {"udp_fallback": self.udp.kind}


def evict_after_ms(source: SourceOptions) -> int:
    """Returns how long a receiver may keep a receiver-paced session waiting, in ms; 0 means without limit."""
    return source.slow_receiver_timeout if source.slow_receiver_behavior == "evict" else 0


@dataclass(frozen=True, slots=True)
class Transport:
    """A kind of transport session.

    Attributes:
        code: its number in the registry.
        name: its name in source strings.
        option: the value of the option `transport` that chooses it.
        plan: returns the session plan that the options of a context and a source ask for.
        pool: returns the ids for sources that do not name one.
        explicit_id: returns the id that a source names, or 0.
        placed: returns the plan of the session that gets an id; for LBT-RM the id is the multicast group.
        id_option: the name of the option of `explicit_id`, without its prefix.
        shares_pool: whether `pool` belongs to all contexts of the network together. A context begins at any place of
            it then, so that the sessions of two contexts seldom have the same one.
    """

    code: int
    name: str
    option: str
    plan: Callable[[ContextOptions, SourceOptions], SessionPlan]
    pool: Callable[[ContextOptions], range]
    explicit_id: Callable[[SourceOptions], int]
    placed: Callable[[SessionPlan, int], SessionPlan] = lambda plan, _: plan
    id_option: str = "id"
    shares_pool: bool = False

    @property
    def prefix(self) -> str:
        """The beginning of the names of its options; Ultra Messaging calls LBT-TCP `tcp` there."""
        return f"transport_{'tcp' if self.option == 'lbttcp' else self.option}"

    def shown_id(self, number: int, session_socket: SessionSocket | None) -> int:
        """Returns the id for the registry; for a session over UDP, the port that it sends from."""
        return session_socket.socket.address[1] if self.code in OVER_UDP and session_socket else number
