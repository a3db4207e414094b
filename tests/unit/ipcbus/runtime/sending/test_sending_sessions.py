"""What a context sends on, where other threads come in between."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import ipcbus
from ipcbus.runtime.loop.timerfd import FOREVER_NS
from ipcbus.runtime.sending.sending_sessions import _slowest_client
from ipcbus.transport.udp.udp_plan import UdpPlan
from tests.kit.network import isolated_or_skip

if TYPE_CHECKING:
    from ipcbus import Source


class Meanwhile:
    """The infos of a session that let another source be made while they are told."""

    def __init__(self, context: ipcbus.Context) -> None:
        self.context = context
        self.made: list[Source] = []

    def send_due(self, now_ticks: int) -> None:
        """Nothing is left to tell on this session."""
        if not self.made:
            self.made.append(self.context.source("late", transport_lbtipc_id=2))

    def remove(self, source: Source) -> None:
        """At its end."""


def test_the_slowest_receiver_over_the_network_is_a_client() -> None:
    client = SimpleNamespace(pid=7, name="far", next=3)
    sender: Any = SimpleNamespace(network="UDP", reliable_sender=SimpleNamespace(slowest=client, lead=10))
    assert _slowest_client(sender) == "pid 7 'far', 7 datagrams behind"
    sender.network = "TCP"
    assert _slowest_client(sender) == "pid 7 'far'"
    sender.reliable_sender.slowest = None
    assert _slowest_client(sender) == "none: the source waits for TCP"


def test_a_source_made_while_sequence_numbers_are_told_is_told_of_as_well(domain: str) -> None:
    with ipcbus.Context(domain=domain, operational_mode="sequential") as context:
        early = context.source("early", transport_lbtipc_id=1)
        early._session.infos = Meanwhile(context)  # type: ignore[assignment]
        context._sending_sessions.inform_due(FOREVER_NS)
        assert context._sending_sessions.inform_due(0) < FOREVER_NS


def group(source: Source) -> str:
    """The multicast group of its session."""
    udp = source._session.plan.udp
    assert isinstance(udp, UdpPlan)
    return udp.group


def test_contexts_spread_their_sessions_over_the_groups_of_the_pool(domain: str) -> None:
    """A receiver reads all that comes to a group: with the first group for each context, all read what all send."""
    first = set[str]()
    with isolated_or_skip():
        for _ in range(40):
            config = {"context": {"resolver_multicast_interface": "127.0.0.1"}}
            with ipcbus.Context(config, domain=domain, operational_mode="sequential") as context:
                used = [group(context.source(f"t{each}", transport="lbtrm")) for each in range(5)]
            assert sorted(used) == [f"224.10.10.{each}" for each in range(10, 15)]
            first.add(used[0])
    assert len(first) > 1  # by chance in one of 10^27 runs
