"""Many processes that come, go, stop and die in random order: every ledger is right at the end."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from ipcbus import Context
from tests.kit.bus import RINGS, Kind
from tests.kit.look import objects
from tests.kit.payload import Ledger

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.kit.peers import PeerProcess, Peers

pytestmark = pytest.mark.stress

MOST_SOURCES, MOST_RECEIVERS = 3, 3


@dataclass
class Life:
    """A source in a process of its own.

    Attributes:
        peer: the process.
        source: its source string.
    """

    peer: PeerProcess
    source: str


@dataclass
class Storm:
    """What happens, and what must be true afterwards."""

    peers: Peers
    rng: random.Random
    sources: list[Life] = field(default_factory=list)
    receivers: list[PeerProcess] = field(default_factory=list)
    sent: dict[str, int] = field(default_factory=dict)
    killed: set[str] = field(default_factory=set)
    log: list[str] = field(default_factory=list)

    def add_source(self) -> None:
        """One more process that streams."""
        if len(self.sources) < MOST_SOURCES:
            kind: Kind = self.rng.choice(RINGS)
            peer = self.peers.start("embedded", liveness_check_interval=50, transport_lbtipc_datagram_max_size=8192)
            options = {**kind.options, **(kind.small() if self.rng.random() < 0.5 else {})}
            source = peer.do("source", topic="t", transport=kind.transport, **options)
            peer.do("stream", topic="t", size=self.rng.choice([16, 64, 500]))
            self.sources.append(Life(peer, source))

    def add_receiver(self) -> None:
        """One more process that receives."""
        if len(self.receivers) < MOST_RECEIVERS:
            peer = self.peers.start(self.rng.choice(["embedded", "sequential"]), liveness_check_interval=50)
            peer.do("receiver", topic="t")
            self.receivers.append(peer)

    def end_source(self) -> None:
        """A source ends in peace."""
        if self.sources:
            life = self.sources.pop(self.rng.randrange(len(self.sources)))
            self.sent[life.source] = life.peer.do("halt")["t"]
            life.peer.do("close")
            life.peer.end()

    def kill_source(self) -> None:
        """A source is killed."""
        if self.sources:
            life = self.sources.pop(self.rng.randrange(len(self.sources)))
            life.peer.kill()
            self.killed.add(life.source)

    def kill_receiver(self) -> None:
        """A receiver is killed."""
        if self.receivers:
            self.receivers.pop(self.rng.randrange(len(self.receivers))).kill()

    def end_receiver(self) -> None:
        """A receiver ends in peace; its ledgers are looked at first."""
        if self.receivers:
            peer = self.receivers.pop(self.rng.randrange(len(self.receivers)))
            for ledger in peer.do("report", topic="t")["ledgers"].values():
                assert ledger["wrong"] == []
            peer.end()

    def stop_and_go(self) -> None:
        """A receiver is stopped while something else happens."""
        if self.receivers:
            peer = self.rng.choice(self.receivers)
            peer.pause()
            self.add_source()
            peer.resume()

    def blow(self, steps: int) -> None:
        """Lets things happen."""
        self.add_source()
        self.add_receiver()
        acts: list[Callable[[], None]] = [
            self.add_source,
            self.add_source,
            self.add_receiver,
            self.add_receiver,
            self.end_source,
            self.kill_source,
            self.end_receiver,
            self.kill_receiver,
            self.stop_and_go,
        ]
        for _ in range(steps):
            act = self.rng.choice(acts)
            self.log.append(act.__name__)
            act()

    def settle(self) -> None:
        """Ends all streams and looks at every ledger."""
        for life in self.sources:
            life.peer.start("halt")
        for life in self.sources:
            self.sent[life.source] = life.peer.finish()["t"]
        for receiver in self.receivers:
            self._balance(receiver)

    def _balance(self, receiver: PeerProcess) -> None:
        for source, sent in self.sent.items():
            found = receiver.do("await_number", topic="t", source=source, number=sent)
            ledger = Ledger(**found)
            assert ledger.wrong == []
            if ledger.first >= 0:
                assert ledger.next == sent
                assert ledger.delivered + ledger.lost == sent - ledger.first
        for source in self.killed:
            ledger = receiver.ledger("t", source)
            assert ledger.wrong == []
            assert ledger.delivered + ledger.lost == ledger.next - ledger.first
        living = {life.source for life in self.sources}
        for source, each in receiver.do("report", topic="t")["ledgers"].items():
            assert each["begun"] <= 1
            assert each["ended"] <= (0 if source in living else 1)


def storm(peers: Peers, domain: str, steps: int, seed: int) -> None:
    """A storm of so many steps."""
    blown = Storm(peers, random.Random(seed))
    try:
        blown.blow(steps)
        blown.settle()
    except BaseException as error:
        error.add_note(f"seed {seed}, after {' '.join(blown.log)}")
        raise
    finally:
        peers.clear()
        Context(domain=domain).close()  # clears what the killed left
    assert objects(domain) == []


@pytest.mark.parametrize("attempt", range(2))
def test_a_storm_of_processes_leaves_every_ledger_right(peers: Peers, domain: str, attempt: int) -> None:
    storm(peers, domain, 15, random.randrange(2**32))


@pytest.mark.long
@pytest.mark.parametrize("attempt", range(40))
def test_a_long_storm_of_processes_leaves_every_ledger_right(peers: Peers, domain: str, attempt: int) -> None:
    storm(peers, domain, 150, random.randrange(2**32))
