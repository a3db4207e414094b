"""Which locks show that the peers of a context live."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING
from unittest.mock import Mock

import pytest

from ipcbus.runtime.loop.peer_locks import peer_locks
from ringbuf import liveness, segment

if TYPE_CHECKING:
    from collections.abc import Iterator

RECEIVER, SOURCE, REGISTRY, CLIENT = range(4)


class Peers:
    """A context with one peer of each kind: each holds a byte of its own."""

    def __init__(self, held: int, looked_at: int) -> None:
        self.held = held
        self.ring, self.over_network, self.elsewhere = Mock(), Mock(), Mock()
        self.ring.datagram_source.owner_lock.return_value = (looked_at, SOURCE)
        for session in (self.over_network, self.elsewhere):
            session.datagram_source.owner_lock.return_value = None
            session.datagram_source.is_withdrawn = False
        self.sending, self.receiving, self.peers = Mock(), Mock(), Mock()
        self.sending.receiver_locks.side_effect = lambda: [(looked_at, RECEIVER)]
        self.sending.local_clients.return_value = [7]
        self.receiving.sessions.return_value = [self.ring, self.over_network, self.elsewhere]
        registry = Mock()
        registry.owner_lock.return_value = (looked_at, REGISTRY)
        self.peers.registry_of.side_effect = {self.over_network.advert: registry}.get
        self.peers.owner_lock.side_effect = {7: (looked_at, CLIENT)}.get

    def all_held(self) -> bool | None:
        found = peer_locks(self.sending, self.receiving, self.peers)
        return None if found is None else found.all_held()


@pytest.fixture
def peers(domain: str) -> Iterator[Peers]:
    name = f"ipcbus.{domain}.l"
    held, looked_at = segment.create(name, 4096), segment.open_fd(name, write=False)
    yield Peers(held, looked_at)
    os.close(held)
    os.close(looked_at)
    segment.remove(name)


@pytest.mark.parametrize("dead", [RECEIVER, SOURCE, REGISTRY, CLIENT])
def test_each_peer_on_this_host_has_a_lock(peers: Peers, dead: int) -> None:
    for byte in range(4):
        assert liveness.take(peers.held, byte)
    assert peers.all_held()
    liveness.release(peers.held, dead)
    assert peers.all_held() is False


def test_a_source_without_a_lock_that_is_not_offered_any_more_has_to_be_asked(peers: Peers) -> None:
    peers.elsewhere.datagram_source.is_withdrawn = True
    assert peers.all_held() is None


def test_a_client_whose_registry_is_not_known_has_to_be_looked_for(peers: Peers) -> None:
    peers.sending.local_clients.return_value = [8]
    assert peers.all_held() is None
