"""Sessions that this context had to leave, from then on until they are joined again or over."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Mapping

    from ipcbus.resolution.local.adverts import SessionAdvert, SourceAdvert
    from ipcbus.transport.receiving_session import ReceivingSession

log = logging.getLogger("ipcbus")


class DetachedSessions:
    """Their source has evicted this context, or shows no life. Runs on the driver.

    They are not read any more, but still say how many messages are published.
    """

    def __init__(self) -> None:
        """There are none."""
        self._sessions: dict[SessionAdvert, ReceivingSession] = {}

    def add_evicted(self, session: ReceivingSession) -> None:
        """A session was left because it evicted this context; its receivers are told what that costs them so far."""
        self._sessions[session.advert] = session
        log.warning(
            "%s (pid %d) has evicted this context, which kept it waiting; what it sends until the session is joined "
            "again is lost, and counted. Receive faster, or raise slow_receiver_timeout or the window of the source",
            session.source_string,
            session.owner_pid,
        )
        session.note_eviction()

    def add_silent(self, session: ReceivingSession) -> None:
        """A session was left because it shows no life; its receivers are told of its end."""
        self._sessions[session.advert] = session
        log.warning(
            "%s (pid %d) has shown no sign of life for %g s: it has ended for its receivers until it shows one. If "
            "the process is well, raise transport_*_activity_timeout or lower transport_*_sm_interval of the source",
            session.source_string,
            session.owner_pid,
            session.activity_timeout.timeout_ns / 1e9,
        )
        session.finish()

    def sessions(self) -> list[ReceivingSession]:
        """Those that are not joined again."""
        return list(self._sessions.values())

    def __contains__(self, advert: SessionAdvert) -> bool:
        """Returns whether a session is one of them."""
        return advert in self._sessions

    def must_wait(self, advert: SessionAdvert) -> bool:
        """Returns whether one of them is not to be joined yet.

        It is silent still, or would be held up by this context at once, because a receiver has no room.
        """
        session = self._sessions[advert]
        if session.over:
            return not session.shows_life()
        return not session.has_room()

    def some_show_life(self) -> bool:
        """Returns whether a silent one is silent no more."""
        return any(session.over and session.shows_life() for session in self._sessions.values())

    def joined_again(self, session: ReceivingSession, numbers: Container[int]) -> bool:
        """A session was joined; it still carries the topics of these numbers. Says whether it was one of these."""
        before = self._sessions.pop(session.advert, None)
        if before is not None:
            session.continue_from(before, numbers)
        return before is not None

    def take_over(
        self,
        offered: Mapping[SessionAdvert, Mapping[int, SourceAdvert]],
        wanted: Callable[[str], object],
        contexts: Container[int],
    ) -> list[ReceivingSession]:
        """Those that nobody will join again, which are none of these from now on.

        Args:
            offered: what can be joined.
            wanted: says whether a topic has receivers.
            contexts: those that live.
        """
        found = []
        for advert, session in self._sessions.items():
            if advert in offered:
                numbers = offered[advert]
                over = not any(each.topic_number in numbers and wanted(each.origin.topic) for each in session.topics())
            else:
                # Before it is closed its last messages may not be published.
                over = session.closed or advert.context_id not in contexts
            if over:
                found.append(session)
        for session in found:
            del self._sessions[session.advert]
        return found

    def unsettled(self, offered: Container[SessionAdvert]) -> bool:
        """Returns whether some may be joined again, or be over, without a registry that says so."""
        return any(not session.over or advert not in offered for advert, session in self._sessions.items())

    def tell_lost(self) -> None:
        """By timer: tells what those that evicted this context have published meanwhile."""
        for session in self.sessions():
            session.report_losses()

    def close(self) -> None:
        """Forgets them all."""
        self._sessions.clear()
