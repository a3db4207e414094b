"""The registries of a domain's contexts, and the sessions and topics that they offer."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ipcbus.resolution.local import object_names
from ipcbus.resolution.local.registry import PeerRegistry
from ringbuf import segment
from ringbuf.doorbell import CALL, ring_once
from ringbuf.ring_errors import RingError, SegmentGone

if TYPE_CHECKING:
    from collections.abc import Container

    from ipcbus.resolution.local.adverts import ContextAdvert, SessionAdvert, SourceAdvert
    from ipcbus.runtime.discovery.topic_resolution import TopicResolution

    Offers = dict[SessionAdvert, dict[int, SourceAdvert]]
    """The topics of each session, by their numbers."""

log = logging.getLogger("ipcbus")

_ENDED_MAX = 1024


@dataclass(slots=True)
class _Peer:
    registry: PeerRegistry
    version: int = -1
    advert: ContextAdvert | None = None


class Peers:
    """The offers of the contexts of a domain, this one included, as their registries showed them at the last look."""

    def __init__(self, domain: str, resolution: TopicResolution) -> None:
        """Begins without registries.

        Args:
            domain: the bus domain.
            resolution: knows the offers of the network.
        """
        self._domain, self._resolution = domain, resolution
        self._network_changes = self._offered_changes = 0
        self._peers: dict[str, _Peer] = {}
        self._offers: Offers | None = None  # None after a change
        self._by_topic: dict[str, list[SourceAdvert]] | None = None
        # Contexts of this host that are gone, the latest last; the network may still offer them for a while.
        self._ended_contexts: dict[int, None] = {}
        self._unusable: set[str] = set()
        self._scan_failed = False

    def scan(self) -> bool:
        """Opens new and closes vanished registries; returns whether one vanished. `refresh` reads the new ones."""
        try:
            found = segment.names(object_names.domain_prefix(self._domain))
        except OSError as error:  # for example without a free descriptor; known registries stay
            if not self._scan_failed:
                log.warning("%s", segment.refusal(error, f"look for contexts of domain {self._domain!r}") or error)
            self._scan_failed = True
            return False
        self._scan_failed = False
        present = set(object_names.of_kind(found, object_names.REGISTRY))
        for name in self._peers.keys() - present:
            if (advert := self._peers[name].advert) is not None:
                self._ended_contexts[advert.context_id] = None
        while len(self._ended_contexts) > _ENDED_MAX:
            del self._ended_contexts[next(iter(self._ended_contexts))]
        vanished = self._forget(present)
        for name in present - self._peers.keys():
            self._open(name)
        return vanished

    def refresh(self) -> bool:
        """Reads the registries that changed; returns whether what is offered changed."""
        changed = self._network_changes != self._resolution.changes
        self._network_changes = self._resolution.changes
        for peer in self._peers.values():
            if peer.registry.version() == peer.version:
                continue
            contents = peer.registry.read(receivers=False)
            if contents is not None:
                # Most changes concern receivers: each new one would have the context look at all topics again.
                changed |= contents[1] != peer.advert
                peer.version, peer.advert = contents
        if changed:
            self._offers = None
        return changed

    def offers(self) -> Offers:
        """Returns all sessions with their topics; the caller must not change them."""
        if self._offers is None or self._offered_changes != self._resolution.changes:
            self._offered_changes = self._resolution.changes
            self._offers, self._by_topic = self._find_offers(), None
        return self._offers

    def _find_offers(self) -> Offers:
        offered: Offers = {}
        for advert in self._adverts():
            for session in advert.sessions:
                offered.setdefault(session, {})
            for source in advert.sources:
                offered[source.session][source.topic_number] = source
        here = self._ended_contexts.keys() | {advert.context_id for advert in self._adverts()}
        # Of several offers of one session not all can be true, and each would be joined: the first one counts.
        known = {(session.session_id, session.endpoint) for session in offered}
        for elsewhere, topics in self._resolution.sources().items():
            where = (elsewhere.session_id, elsewhere.endpoint)
            # For a context of this host its registry knows better.
            if elsewhere.context_id not in here and (elsewhere.endpoint is None or where not in known):
                known.add(where)
                offered.setdefault(elsewhere, topics)
        return offered

    def offers_of(self, topic: str) -> list[SourceAdvert]:
        """Returns the sources of a topic."""
        self.offers()  # after a change there is no index
        if self._by_topic is None:
            self._by_topic = {}
            for source in self.sources():
                self._by_topic.setdefault(source.topic, []).append(source)
        return self._by_topic.get(topic, [])

    def sources(self) -> list[SourceAdvert]:
        """Returns all topics of all sessions."""
        return [source for sources in self.offers().values() for source in sources.values()]

    def contexts(self) -> dict[int, int]:
        """Returns the process ids of the known contexts, by context id."""
        elsewhere = {
            number: pid for number, pid in self._resolution.contexts().items() if number not in self._ended_contexts
        }
        return elsewhere | {advert.context_id: advert.pid for advert in self._adverts()}

    def registry_of(self, session: SessionAdvert) -> PeerRegistry | None:
        """Returns the registry that offers a session; None without one."""
        for peer in self._peers.values():
            if peer.advert is not None and session in peer.advert.sessions:
                return peer.registry
        return None

    def lives(self, context_id: int) -> bool | None:
        """Returns whether a context of this host lives; None where its registry is not known. For the driver only."""
        registry = self._registry(context_id)
        return None if registry is None else registry.alive()

    def has_ended(self, context_id: int) -> bool:
        """Returns whether a context of this host was closed, or has died. For the driver only."""
        return context_id in self._ended_contexts or self.lives(context_id) is False

    def owner_lock(self, context_id: int) -> tuple[int, int] | None:
        """Returns the lock that a context of this host holds while it lives; None where its registry is not known."""
        registry = self._registry(context_id)
        return None if registry is None else registry.owner_lock()

    def _registry(self, context_id: int) -> PeerRegistry | None:
        peer = self._peers.get(object_names.registry(self._domain, context_id))
        return None if peer is None else peer.registry

    def live_topics(self, session: SessionAdvert) -> Container[int]:
        """Returns the topics that a session offers still; none when its source has died on this host."""
        registry = self.registry_of(session)
        if registry is not None and not registry.alive():
            return ()
        return self.offers().get(session, ())

    def ring(self, context_id: int) -> None:
        """Wakes a context."""
        ring_once(object_names.bell(self._domain, context_id), CALL)

    def forget_all(self) -> bool:
        """Closes every registry; returns whether there were any."""
        return self._forget(set())

    def _adverts(self) -> list[ContextAdvert]:
        return [peer.advert for peer in self._peers.values() if peer.advert is not None]

    def _open(self, name: str) -> None:
        try:
            self._peers[name] = _Peer(PeerRegistry(name))
            self._unusable.discard(name)
        except SegmentGone:
            pass
        except (RingError, OSError) as error:  # OSError: there is a link or a directory instead
            if name not in self._unusable:
                self._unusable.add(name)
                log.warning("a context of domain %r cannot be read: %s", self._domain, error)

    def _forget(self, present: set[str]) -> bool:
        vanished = self._peers.keys() - present
        for name in vanished:
            self._peers.pop(name).registry.close()
            self._offers = None
        self._unusable &= present
        return bool(vanished)
