"""Joining sessions, and remembering those that cannot be joined."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING

from ipcbus.transport.receiving import ReceivingSession
from ringbuf.errors import RingError, SegmentGone, SegmentRefused

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from ipcbus.config import ContextOptions, ReceiverOptions
    from ipcbus.delivery.budget import Budget
    from ipcbus.delivery.sink import Sink
    from ipcbus.resolution.adverts import SessionAdvert
    from ipcbus.resolution.registry import PeerRegistry
    from ringbuf.slots import Identity

log = logging.getLogger("ipcbus")


class Joiner:
    """Joins sessions for one context."""

    def __init__(
        self,
        domain: str,
        who: Identity,
        options: ContextOptions,
        budget: Budget,
        failed: Callable[[Sink, Exception], None],
        told: Callable[[int], None],
    ) -> None:
        """For a context.

        Args:
            domain: the bus domain.
            who: how the context introduces itself.
            options: of the context.
            budget: what its delivery controllers may hold together.
            failed: told of exceptions in callbacks.
            told: told how many events and messages read by the way were given to receivers.
        """
        self._domain, self._who, self._options = domain, who, options
        self._budget, self._failed, self._told = budget, failed, told
        self.refused: dict[SessionAdvert, tuple[int, str]] = {}

    def join(self, advert: SessionAdvert, registry: PeerRegistry, options: ReceiverOptions) -> ReceivingSession | None:
        """Joins a session.

        Args:
            advert: the session.
            registry: the one that offers it.
            options: of the first receiver that wants it.

        Returns:
            The session; None when it cannot be joined, with the reason in `refused`, or ends just now.
        """
        try:
            self._check_uid(registry)
            session = ReceivingSession(
                self._domain,
                advert,
                self._who,
                owner_uid=registry.uid,
                sample_every=self._options.latency_sampling_interval,
                budget=self._budget,
                failed=self._failed,
                told=self._told,
                options=options,
            )
        except SegmentGone:
            # The source closes just now; its registry will say so.
            return None
        except (RingError, OSError) as error:
            if self.refused.get(advert, (0, ""))[1] != str(error):
                log.warning("%s cannot be joined: %s", advert.source_string, error)
            self.refused[advert] = (registry.pid, str(error))
            return None
        self.refused.pop(advert, None)
        return session

    def keep(self, offered: Collection[SessionAdvert]) -> None:
        """Forgets sessions that are not offered any more."""
        for advert in [advert for advert in self.refused if advert not in offered]:
            del self.refused[advert]

    def _check_uid(self, registry: PeerRegistry) -> None:
        """Refuses the memory of another user, who could cut it short under us, unless a group was agreed on.

        Raises:
            SegmentRefused: another user's, and no group.
        """
        if registry.uid != os.geteuid() and not self._options.shared_memory_group:
            raise SegmentRefused(
                f"no permission to map the sessions of {registry.name}: owner uid {registry.uid}, this process uid "
                f"{os.geteuid()}; "
                "run both sides as one user, or set shared_memory_group to a group of both, here and there"
            )
