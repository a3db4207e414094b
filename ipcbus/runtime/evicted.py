"""Sessions whose source has evicted this context, from then on until they are joined again or over."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Container, Mapping

    from ipcbus.resolution.adverts import SessionAdvert, SourceAdvert
    from ipcbus.transport.receiving import ReceivingSession

log = logging.getLogger("ipcbus")


class EvictedSessions:
    """They are not read any more, but still say how many messages are published. Runs on the driver."""

    def __init__(self) -> None:
        """There are none."""
        self._sessions: dict[SessionAdvert, ReceivingSession] = {}

    def add(self, session: ReceivingSession) -> None:
        """A session was left because it evicted this context; its receivers are told what that costs them so far."""
        self._sessions[session.advert] = session
        log.warning(
            "%s (pid %d) has evicted this context, which kept it waiting; what it sends until the session is joined "
            "again is lost, and counted. Receive faster, or raise slow_receiver_timeout or the window of the source",
            session.source_string,
            session.owner_pid,
        )
        session.cut_off()

    def sessions(self) -> list[ReceivingSession]:
        """Those that are not joined again."""
        return list(self._sessions.values())

    def __contains__(self, advert: SessionAdvert) -> bool:
        """Whether a session is one of them."""
        return advert in self._sessions

    def must_wait(self, advert: SessionAdvert) -> bool:
        """Whether joining one of them again would hold the source up at once, because a receiver has no room."""
        topics = self._sessions[advert].topics()
        return any(sink.pulls and not sink.closed and sink.is_full_now() for each in topics for sink in each.sinks)

    def joined_again(self, session: ReceivingSession, numbers: Container[int]) -> None:
        """A session was joined, perhaps one of these; it still carries the topics of these numbers."""
        before = self._sessions.pop(session.advert, None)
        if before is not None:
            session.go_on_from(before, numbers)

    def settle(
        self,
        offered: Mapping[SessionAdvert, Mapping[int, SourceAdvert]],
        wanted: Container[str],
        contexts: Container[int],
    ) -> bool:
        """Ends those that nobody will join again.

        Args:
            offered: what can be joined.
            wanted: topics with receivers.
            contexts: those that live.

        Returns:
            Whether some are left.
        """
        for advert, session in list(self._sessions.items()):
            if advert in offered:
                numbers = offered[advert]
                over = not any(
                    each.topic_number in numbers and each.origin.topic in wanted for each in session.topics()
                )
            else:
                # Before it is closed its last messages may not be published.
                over = session.closed or advert.context_id not in contexts
            if over and self._sessions.pop(advert, None) is not None:  # not in a callback meanwhile
                session.finish()
        return bool(self._sessions)

    def tell_lost(self) -> None:
        """By timer: tells what was published meanwhile."""
        for session in self.sessions():
            session.tell_lost()

    def close(self) -> None:
        """Forgets them all."""
        self._sessions.clear()
