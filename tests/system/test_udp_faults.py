"""Sessions over UDP whose datagrams are lost and whose processes are killed or stopped: every account is right."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest

from tests.kit.bus import LBTRM, LBTRU, Kind
from tests.kit.network import isolated_or_skip
from tests.kit.payload import Ledger, balanced
from tests.kit.peers import PeerProcess, Peers, joined, settled, told_of_the_end

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.kit.zygote import Zygote

LOSS_PERCENT = 10
COUNT = 2000
RATE = 20_000_000
"""Bits a second; what is lost by chance is the matter here, not what is lost because it comes too fast."""

pytestmark = pytest.mark.parametrize(
    "kind",
    [pytest.param(LBTRU, id="lbtru"), pytest.param(LBTRM, id="lbtrm", marks=pytest.mark.long)],
)


@pytest.fixture
def network(kind: Kind) -> Iterator[None]:
    """For multicast one of the test's own."""
    with isolated_or_skip() if kind is LBTRM else contextlib.nullcontext():
        yield


@pytest.fixture
def mode() -> str:
    """Who drives the contexts."""
    return "embedded"


@pytest.fixture
def crew(network: None, zygote: Zygote, domain: str, kind: Kind) -> Iterator[Crew]:
    """Processes that lose datagrams."""
    del network
    # A process that is forked is in the network of who forked it.
    with contextlib.ExitStack() as stack:
        own = stack.enter_context(type(zygote)()) if kind is LBTRM else zygote
        started = Peers(own, domain)
        stack.callback(started.clear)
        yield Crew(started, kind)


class Crew:
    """Processes of one test."""

    def __init__(self, peers: Peers, kind: Kind) -> None:
        self.peers, self.kind = peers, kind

    def start(self, name: str, **options: object) -> PeerProcess:
        """A process whose sockets lose datagrams, each way."""
        peer = self.peers.start("", name)
        peer.do("lose", percent=LOSS_PERCENT)
        given = {f"transport_{self.kind.transport}_{limit}_rate_limit": RATE for limit in ("data", "retransmit")}
        peer.do("open", domain=self.peers.domain, name=name, **self.kind.context_options, **given, **options)
        return peer

    def meet(
        self, receivers: int, behavior: str = "receiver_paced", **options: object
    ) -> tuple[PeerProcess, list[PeerProcess], str]:
        """A source and its receivers, joined; and the source string."""
        sender = self.start("sender")
        crew = [self.start(f"receiver {number}") for number in range(receivers)]
        transport = self.kind.transport
        paced = {"transport": transport, f"transport_{transport}_behavior": behavior}
        return sender, crew, joined(sender, crew, paced, options)


def test_three_receivers_get_everything_though_a_tenth_is_lost_each_way(crew: Crew) -> None:
    sender, receivers, source = crew.meet(3)
    sent = sender.do("send", topic="t", count=COUNT, size=500)
    for peer in receivers:
        assert settled(peer, "t", source, sent).lost == 0
    sent = sender.do("send", topic="t", count=3)
    assert sender.do("end", topic="t") == sent
    for peer in receivers:
        ledger = Ledger(**peer.do("await_end", topic="t")["ledgers"][source])
        balanced(ledger, sent)
        assert ledger.lost == 0


def test_a_receiver_that_is_killed_disturbs_nobody(crew: Crew) -> None:
    sender, receivers, source = crew.meet(3)
    sender.do("stream", topic="t", size=500)
    receivers[1].do("await_messages", topic="t", count=COUNT)
    receivers[1].kill()
    receivers[0].do("await_messages", topic="t", count=3 * COUNT)
    sent = sender.do("halt")["t"]
    for peer in (receivers[0], receivers[2]):
        settled(peer, "t", source, sent)


def test_a_receiver_that_is_stopped_goes_on_with_an_exact_account(crew: Crew) -> None:
    sender, receivers, source = crew.meet(2, "source_paced")
    sender.do("stream", topic="t", size=500)
    receivers[0].do("await_messages", topic="t", count=COUNT)
    receivers[0].pause()
    receivers[1].do("await_messages", topic="t", count=3 * COUNT)
    receivers[0].resume()
    sent = sender.do("halt")["t"]
    for peer in receivers:
        settled(peer, "t", source, sent)


def test_the_end_of_a_source_that_is_killed_is_told(crew: Crew) -> None:
    sender, receivers, source = crew.meet(2)
    sender.do("stream", topic="t", size=500)
    for peer in receivers:
        peer.do("await_messages", topic="t", count=COUNT)
    sender.kill()
    told_of_the_end(receivers, source, COUNT)
