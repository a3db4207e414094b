"""Sessions that this context had to leave, until it joins them again or they end."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Mapping

    from ipcbus.resolution.local.adverts import SessionAdvert, SourceAdvert
    from ipcbus.transport.receiving_session import ReceivingSession

log = logging.getLogger("ipcbus")

_INTERRUPTED_MAX = 256


class DetachedSessions:
    """Sessions that evicted this context, or whose source shows no life. Runs on the driver.

    The context does not read them any more, but still sees how many messages their sources publish. Of a session over
    UDP it sees nothing, so this context joins it again whenever it is offered.
    """

    def __init__(self) -> None:
        self._sessions: dict[SessionAdvert, ReceivingSession] = {}
        self._interrupted: dict[SessionAdvert, ReceivingSession] = {}

    def add_evicted(self, session: ReceivingSession) -> None:
        """Adds a session that evicted this context, and reports the loss so far to receivers without recovery."""
        self._sessions[session.advert] = session
        log.warning(
            "%s (pid %d) has evicted this context, which kept it waiting; messages that its source does not "
            "keep are lost until this context joins again. Receive faster, or raise slow_receiver_timeout or the "
            "window of the source",
            session.source_string,
            session.owner_pid,
        )
        session.note_eviction()

    def add_silent(self, session: ReceivingSession) -> None:
        """Adds a session that shows no life, and notifies its receivers of its end."""
        self._sessions[session.advert] = session
        log.warning(
            "%s (pid %d) has shown no sign of life for %g s: the session has ended for its receivers until it shows "
            "one. If the process is well, raise transport_*_activity_timeout, or lower transport_*_sm_interval of the "
            "source",
            session.source_string,
            session.owner_pid,
            session.activity_timeout.timeout_ns / 1e9,
        )
        session.finish()

    def add_interrupted(self, session: ReceivingSession) -> None:
        """Adds a session over UDP that was silent, or is not offered; it goes on where it stopped if it comes back."""
        self._interrupted[session.advert] = session
        while len(self._interrupted) > _INTERRUPTED_MAX:
            del self._interrupted[next(iter(self._interrupted))]

    def resume_at(self, advert: SessionAdvert) -> int | None:
        """Returns the number of the datagram at which an interrupted session goes on; None for the next one."""
        session = self._interrupted.get(advert)
        return session.datagram_source.stopped_at if session is not None else None

    def keep_interrupted(self, wanted: Callable[[str], object], offered: Container[SessionAdvert]) -> None:
        """Forgets the interrupted sessions without a topic that has receivers.

        Those of this host that are not offered any more do not come back; `take_finished` has them from now on, as
        their rings say what their sources have sent.

        Args:
            wanted: returns whether a topic has receivers.
            offered: sessions that can be joined.
        """
        for advert, session in list(self._interrupted.items()):
            if not any(wanted(each.origin.topic) for each in session.topics()):
                del self._interrupted[advert]
            elif advert not in offered and session.datagram_source.lines is not None:
                self._sessions[advert] = self._interrupted.pop(advert)

    def sessions(self) -> list[ReceivingSession]:
        """Returns the detached sessions."""
        return list(self._sessions.values())

    def __contains__(self, advert: SessionAdvert) -> bool:
        return advert in self._sessions

    def must_wait(self, advert: SessionAdvert) -> bool:
        """Returns whether a detached session must not be joined yet.

        It is still silent, or this context would keep it waiting at once, because a receiver has no room.
        """
        session = self._sessions[advert]
        if session.over:
            return not session.shows_life()
        return not session.has_room()

    def any_shows_life(self) -> bool:
        """Returns whether a silent session shows life again."""
        return any(session.over and session.shows_life() for session in self._sessions.values())

    def joined_again(self, session: ReceivingSession, numbers: Container[int]) -> bool:
        """Continues a session after a new join, with the topics of these numbers; returns whether it was detached."""
        before = self._sessions.pop(session.advert, None) or self._interrupted.pop(session.advert, None)
        if before is not None:
            session.continue_from(before, numbers)
        return before is not None

    def take_finished(
        self,
        offered: Mapping[SessionAdvert, Mapping[int, SourceAdvert]],
        wanted: Callable[[str], object],
        contexts: Container[int],
    ) -> list[ReceivingSession]:
        """Removes and returns the sessions that this context will not join again.

        Args:
            offered: sessions that can be joined.
            wanted: returns whether a topic has receivers.
            contexts: ids of the live contexts.
        """
        found = []
        for advert, session in self._sessions.items():
            if advert in offered:
                numbers = offered[advert]
                over = not any(each.topic_number in numbers and wanted(each.origin.topic) for each in session.topics())
            else:
                # Until the session is closed, its source may publish more messages.
                over = session.closed or advert.context_id not in contexts
            if over:
                found.append(session)
        for session in found:
            del self._sessions[session.advert]
        return found

    def unsettled(self, offered: Container[SessionAdvert]) -> bool:
        """Returns whether sessions may become joinable, or end, without a change of a registry."""
        return any(not session.over or advert not in offered for advert, session in self._sessions.items())

    def tell_lost(self) -> None:
        """Reports, by timer, messages published meanwhile by sessions that evicted this context, unless recovered."""
        for session in self.sessions():
            session.report_losses()

    def close(self) -> None:
        """Forgets all sessions."""
        self._sessions.clear()
        self._interrupted.clear()
