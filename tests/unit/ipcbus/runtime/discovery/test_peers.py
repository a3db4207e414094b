"""What others offer, when several say it of one session."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, cast

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
