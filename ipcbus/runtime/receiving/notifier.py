"""What a context's receivers are told besides messages: sources that come, go or are missing; and what they raise."""

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
    """Tells the receivers of one context (delivery.slow_path.Failures). No clock: the time is passed in."""

    def __init__(self, subscriptions: Subscriptions, pass_on: Callable[[BaseException], bool]) -> None:
        """Has told nothing yet.

        Args:
            subscriptions: the receivers.
            pass_on: says whether what a callback raised goes on to the thread that drives (`Wheel.pass_on`).
        """
        self._subscriptions = subscriptions
        self._pass_on = pass_on
        self._sourceless: list[Subscription] = []
        self._errors_told: set[tuple[int, str]] = set()
        self._told = 0

    def count(self, told: int) -> None:
        """So many events, or messages read outside of the pump, were given to receivers."""
        self._told += told

    def take_told(self) -> int:
        """Returns how many were counted since the last call."""
        told, self._told = self._told, 0
        return told

    def failed(self, sink: Sink, error: BaseException) -> None:
        """Counts what a callback raised and logs it once a kind and receiver, unless the driving call raises it."""
        if self._pass_on(error):
            return
        key = (id(sink), type(error).__name__)
        if key not in self._errors_told:
            self._errors_told.add(key)
            log.error(
                "callback of the receiver of %r raised %r; delivery goes on, more of this kind are only counted",
                getattr(sink.owner, "topic", "?"),
                error,
                exc_info=error,
            )

    # ------------------------------------------------------------------ sources that come and go

    @staticmethod
    def introduce(session: ReceivingSession, source: SourceAdvert, users: Iterable[Subscription]) -> None:
        """Tells receivers of a source whose messages they will get, unless they know of it."""
        for user in users:
            if user.following is not None:
                user.following.begin(source, session.owner_pid)

    def introduce_all(self, session: ReceivingSession) -> None:
        """Tells the receivers of a session of all its sources."""
        for each in session.topics():
            users = [user for user in self._subscriptions.of(each.origin.topic) if user.sink in each.sinks]
            self.introduce(session, SourceAdvert(session.advert, each.origin.topic, each.topic_number), users)

    def tell_gone(self, sessions: Iterable[ReceivingSession], now_ns: int) -> None:
        """Tells receivers of sources that they get no more messages from; these are the sessions there are."""
        following = {each.sink: each.following for each in self._subscriptions if each.following is not None}
        if not following:
            return
        received: dict[Sink, set[SourceAdvert]] = {sink: set() for sink in following}
        for session in sessions:
            for each in session.topics():
                source = SourceAdvert(session.advert, each.origin.topic, each.topic_number)
                for sink in following.keys() & each.sinks:
                    received[sink].add(source)
        for sink, told in following.items():
            told.keep(received[sink], now_ns)

    # ------------------------------------------------------------------ sources that are missing

    def miss(self, topics: Iterable[str]) -> bool:
        """Notes that these topics have sources now; says whether a receiver is to be told that it has none."""
        watching = [each for each in self._subscriptions if each.options.resolution_no_source_notification_threshold]
        if watching:
            found = {subscription for topic in topics for subscription in self._subscriptions.of(topic)}
            self._sourceless += [
                subscription for subscription in watching if subscription.looked(subscription in found)
            ]
        return bool(self._sourceless)

    def tell_missing(self) -> None:
        """Tells them."""
        sourceless, self._sourceless = self._sourceless, []
        for subscription in sourceless:
            self._told += 1
            message = event(Origin(subscription.name, ""), MessageType.NO_SOURCE_NOTIFICATION, -1, -1)
            subscription.sink.event(message, self)
