"""Notifications of receivers: sources that come, go or are missing. And the errors of their callbacks."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from ipcbus.delivery.message_types import MessageType
from ipcbus.delivery.received_message import Origin, event
from ipcbus.resolution.local.adverts import SourceAdvert

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ipcbus.delivery.sink import Sink
    from ipcbus.runtime.receiving.subscriptions import Subscription, Subscriptions
    from ipcbus.transport.receiving_session import ReceivingSession

log = logging.getLogger("ipcbus")


class Notifier:
    """Notifies the receivers of one context (delivery.slow_path.Failures). No clock: the time is passed in."""

    def __init__(
        self,
        subscriptions: Subscriptions,
        pass_on: Callable[[BaseException], bool],
        events_came: Callable[[], object] = lambda: None,
    ) -> None:
        """Begins without notifications.

        Args:
            subscriptions: the receivers.
            pass_on: keeps an error of a callback for the thread that drives, if that has to raise it
                (`DriverLock.pass_on`).
            events_came: makes the event loop ask for the count.
        """
        self._subscriptions = subscriptions
        self._pass_on, self._events_came = pass_on, events_came
        self._without_source: list[Subscription] = []
        self._logged_errors: set[tuple[int, str]] = set()
        self._count = 0

    def count(self, events: int) -> None:
        """Counts events, and messages read outside of the pump, that receivers got."""
        self._count += events
        self._events_came()

    def take_count(self) -> int:
        """Returns the number of events since the last call."""
        count, self._count = self._count, 0
        return count

    def failed(self, sink: Sink, error: BaseException) -> None:
        """Logs an error of a callback, once a kind and receiver, unless the call that drives raises the error."""
        if self._pass_on(error):
            return
        key = (id(sink), type(error).__name__)
        if key not in self._logged_errors:
            self._logged_errors.add(key)
            log.error(
                "callback of the receiver of %r raised %r; delivery goes on; more errors of this kind are only counted",
                getattr(sink.owner, "topic", "?"),
                error,
                exc_info=error,
            )

    # ------------------------------------------------------------------ sources that come and go

    @staticmethod
    def notify_source(session: ReceivingSession, source: SourceAdvert, users: Iterable[Subscription]) -> None:
        """Notifies receivers of a source whose messages they will get, unless they know the source."""
        for user in users:
            if user.notifications is not None:
                user.notifications.begin(source, session.owner_pid)

    def notify_all_sources(self, session: ReceivingSession) -> None:
        """Notifies the receivers of a session of all its sources."""
        for each in session.topics():
            sinks = session.delivery.sinks(each.topic_number)
            users = [user for user in self._subscriptions.of(each.origin.topic) if user.sink in sinks]
            self.notify_source(session, SourceAdvert(session.advert, each.origin.topic, each.topic_number), users)

    def notify_gone(self, sessions: Iterable[ReceivingSession], now_ns: int) -> None:
        """Notifies receivers of sources that are not in any of these sessions any more."""
        notifications = {
            each.sink: each.notifications for each in self._subscriptions if each.notifications is not None
        }
        if not notifications:
            return
        received: dict[Sink, set[SourceAdvert]] = {sink: set() for sink in notifications}
        for session in sessions:
            for each in session.topics():
                source = SourceAdvert(session.advert, each.origin.topic, each.topic_number)
                for sink in notifications.keys() & session.delivery.sinks(each.topic_number):
                    received[sink].add(source)
        for sink, known in notifications.items():
            known.keep(received[sink], now_ns)

    # ------------------------------------------------------------------ sources that are missing

    def note_sources(self, topics: Iterable[str]) -> bool:
        """Notes that these topics have sources now; returns whether a receiver without a source gets an event."""
        watching = [each for each in self._subscriptions if each.options.resolution_no_source_notification_threshold]
        if watching:
            found = {subscription for topic in topics for subscription in self._subscriptions.of(topic)}
            self._without_source += [
                subscription for subscription in watching if subscription.note_scan(subscription in found)
            ]
        return bool(self._without_source)

    def notify_missing(self) -> None:
        """Sends NO_SOURCE_NOTIFICATION to the receivers that `note_sources` found."""
        sourceless, self._without_source = self._without_source, []
        for subscription in sourceless:
            self.count(1)
            message = event(Origin(subscription.name, ""), MessageType.NO_SOURCE_NOTIFICATION, -1, -1)
            subscription.sink.event(message, self)
