"""What others offer, when several say it of one session; and whether they live."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, cast

from ipcbus.resolution.local.registry import Registry
from ipcbus.runtime.discovery.peers import Peers
from tests.kit.resolving import source

if TYPE_CHECKING:
    from ipcbus.resolution.local.adverts import SourceAdvert
    from ipcbus.runtime.discovery.peers import Offers
    from ipcbus.runtime.discovery.topic_resolution import TopicResolution


class Network:
    """What is heard over the network."""

    def __init__(self, *sources: SourceAdvert) -> None:
        self.changes = 0
        self.offered: Offers = {each.session: {each.topic_number: each} for each in sources}

    def sources(self) -> Offers:
        return self.offered

    def contexts(self) -> dict[int, int]:
        return {}


def test_a_session_is_offered_once_as_who_was_first_says(domain: str) -> None:
    true, other = source(1, "t"), source(2, "t")
    forged = dataclasses.replace(
        true, topic_number=5, session=dataclasses.replace(true.session, context_id=3, topics_max=1)
    )
    peers = Peers(domain, cast("TopicResolution", Network(true, forged, other)))
    assert list(peers.offers()) == [true.session, other.session]
    assert peers.sources() == [true, other]


def test_a_receiver_changes_nothing_that_is_offered(domain: str) -> None:
    network, true = Network(), source(1, "t")
    registry = Registry(domain, 7, "", "1.2", hidden=False, group="")
    peers = Peers(domain, cast("TopicResolution", network))
    peers.scan()
    assert peers.refresh()
    registry.add_receiver("t")
    assert not peers.refresh()
    assert peers.offers_of("t") == []
    local = dataclasses.replace(true.session, context_id=7, local=0, endpoint=None)
    registry.add_session(local)
    registry.add_source(0, "t", 5)
    assert peers.refresh()
    assert [each.topic_number for each in peers.offers_of("t")] == [5]
    network.offered, network.changes = {true.session: {true.topic_number: true}}, 1
    assert len(peers.offers_of("t")) == 2
    registry.close()
    peers.scan()
    assert peers.offers_of("t") == [true]
    peers.forget_all()


def test_a_context_lives_until_its_registry_is_gone(domain: str) -> None:
    registry = Registry(domain, 7, "", "1.2", hidden=False, group="")
    peers = Peers(domain, cast("TopicResolution", Network()))
    assert (peers.lives(7), peers.has_ended(7)) == (None, False)  # not looked for yet
    peers.scan()
    peers.refresh()
    assert (peers.lives(7), peers.lives(8)) == (True, None)
    assert (peers.has_ended(7), peers.has_ended(8)) == (False, False)
    registry.close()
    assert (peers.lives(7), peers.has_ended(7)) == (False, True)
    peers.scan()
    assert (peers.lives(7), peers.has_ended(7)) == (None, True)
    peers.forget_all()
