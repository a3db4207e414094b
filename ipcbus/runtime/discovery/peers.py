"""The registries of a domain's contexts, and what they offer."""

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
    from ipcbus.resolution.local.adverts import ContextAdvert, SessionAdvert, SourceAdvert
    from ipcbus.runtime.discovery.topic_resolution import TopicResolution

    Offers = dict[SessionAdvert, dict[int, SourceAdvert]]
    """Topics by their numbers, by session."""

log = logging.getLogger("ipcbus")

_GONE_MAX = 1024


@dataclass(slots=True)
class _Peer:
    registry: PeerRegistry
    version: int = -1
    advert: ContextAdvert | None = None


class Peers:
    """What other contexts offer, and the own one, as far as they have been looked at."""

    def __init__(self, domain: str, resolving: TopicResolution) -> None:
        """Knows nobody yet.

        Args:
            domain: the bus domain.
            resolving: what is known over the network.
        """
        self._domain, self._resolving = domain, resolving
        self._network_changes = 0
        self._peers: dict[str, _Peer] = {}
        # Contexts of this host that are gone, the latest last; the network may still tell of them for a while.
        self._gone: dict[int, None] = {}
        self._unusable: set[str] = set()
        self._unlisted = False

    def scan(self) -> bool:
        """Looks for new and vanished registries; says whether one vanished. `refresh` reads what the new ones say."""
        try:
            found = segment.names(object_names.domain_prefix(self._domain))
        except OSError as error:  # as without a descriptor; what is known stays
            if not self._unlisted:
                log.warning("%s", segment.refusal(error, f"look for contexts of domain {self._domain!r}") or error)
            self._unlisted = True
            return False
        self._unlisted = False
        present = set(object_names.of_kind(found, object_names.REGISTRY))
        for name in self._peers.keys() - present:
            if (advert := self._peers[name].advert) is not None:
                self._gone[advert.context_id] = None
        while len(self._gone) > _GONE_MAX:
            del self._gone[next(iter(self._gone))]
        vanished = self._forget(present)
        for name in present - self._peers.keys():
            self._meet(name)
        return vanished

    def refresh(self) -> bool:
        """Reads the registries that changed; says whether there were any."""
        changed = self._network_changes != self._resolving.changes
        self._network_changes = self._resolving.changes
        for peer in self._peers.values():
            if peer.registry.version() == peer.version:
                continue
            contents = peer.registry.read(receivers=False)
            if contents is not None:
                peer.version, peer.advert = contents
                changed = True
        return changed

    def offers(self) -> Offers:
        """Returns all sessions with their topics."""
        offered: Offers = {}
        for advert in self._adverts():
            for session in advert.sessions:
                offered.setdefault(session, {})
            for source in advert.sources:
                offered[source.session][source.topic_number] = source
        here = self._gone.keys() | {advert.context_id for advert in self._adverts()}
        # Several that say what one session is are not all right, and each would be joined for itself: the first counts.
        known = {(session.session_id, session.endpoint) for session in offered}
        for elsewhere, topics in self._resolving.sources().items():
            where = (elsewhere.session_id, elsewhere.endpoint)
            # Who is on this host is known better from his registry.
            if elsewhere.context_id not in here and (elsewhere.endpoint is None or where not in known):
                known.add(where)
                offered.setdefault(elsewhere, topics)
        return offered

    def sources(self) -> list[SourceAdvert]:
        """Returns all topics of all sessions."""
        return [source for sources in self.offers().values() for source in sources.values()]

    def contexts(self) -> dict[int, int]:
        """Processes of the contexts that are known, by the contexts' ids."""
        elsewhere = {number: pid for number, pid in self._resolving.contexts().items() if number not in self._gone}
        return elsewhere | {advert.context_id: advert.pid for advert in self._adverts()}

    def registry_of(self, session: SessionAdvert) -> PeerRegistry | None:
        """Returns the registry that offers a session; None when none does now."""
        for peer in self._peers.values():
            if peer.advert is not None and session in peer.advert.sessions:
                return peer.registry
        return None

    def ring(self, context_id: int) -> None:
        """Wakes a context."""
        ring_once(object_names.bell(self._domain, context_id), CALL)

    def forget_all(self) -> bool:
        """Lets go of every registry; says whether there were any."""
        return self._forget(set())

    def _adverts(self) -> list[ContextAdvert]:
        return [peer.advert for peer in self._peers.values() if peer.advert is not None]

    def _meet(self, name: str) -> None:
        try:
            self._peers[name] = _Peer(PeerRegistry(name))
            self._unusable.discard(name)
        except SegmentGone:
            pass
        except (RingError, OSError) as error:  # OSError: somebody put a link or a directory there
            if name not in self._unusable:
                self._unusable.add(name)
                log.warning("a context of domain %r cannot be read: %s", self._domain, error)

    def _forget(self, present: set[str]) -> bool:
        vanished = self._peers.keys() - present
        for name in vanished:
            self._peers.pop(name).registry.close()
        self._unusable &= present
        return bool(vanished)
