"""Notifications of one receiver about its topics and sources that come and go; each beginning gets its end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ipcbus.runtime.receiving.session_info import SourceNotification, SourceNotificationType

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from ipcbus.delivery.sink import Sink
    from ipcbus.delivery.slow_path import Failures
    from ipcbus.resolution.local.adverts import SourceAdvert

    OnSource = Callable[[SourceNotification], object]
    OnTopic = Callable[[str], object]


class SourceNotifications:
    """The sources that one receiver knows. No clock: the time is passed in."""

    def __init__(
        self,
        sink: Sink,
        failures: Failures,
        *,
        on_source: OnSource | None = None,
        on_create: OnTopic | None = None,
        on_delete: OnTopic | None = None,
        linger_ns: int = 0,
    ) -> None:
        """Begins without sources.

        Args:
            sink: the sink of the receiver; counts errors of the callbacks.
            failures: gets these errors.
            on_source: called with source notifications.
            on_create: called with a topic, before `on_source` for its first source.
            on_delete: called with a topic whose last source has been gone for `linger_ns`.
            linger_ns: time in ns for which a topic without sources is kept.
        """
        self._sink, self._failures = sink, failures
        self._on_source, self._on_create, self._on_delete = on_source, on_create, on_delete
        self._linger_ns = linger_ns
        self._sources: dict[SourceAdvert, int] = {}
        self._topics: dict[str, int | None] = {}
        self._ended = False

    def begin(self, source: SourceAdvert, pid: int) -> None:
        """Notifies the receiver of a source, and of its topic, unless the receiver knows them."""
        if self._silent() or source in self._sources:
            return
        new = source.topic not in self._topics
        self._topics[source.topic] = None
        if new:
            self._call(self._on_create, source.topic)
        if not self._silent():  # the callback may have closed the receiver
            self._sources[source] = pid
            self._tell(SourceNotificationType.CREATE, source, pid)

    def keep(self, live: Collection[SourceAdvert], now_ns: int) -> None:
        """Notifies the receiver of sources that are no longer live, and of topics without a source for too long."""
        for source in [source for source in self._sources if source not in live]:
            if self._silent():
                return
            self._forget(source)
        with_sources = {source.topic for source in self._sources}
        for topic, since_ns in list(self._topics.items()):
            if self._silent():
                return
            if topic in with_sources:
                self._topics[topic] = None
            elif since_ns is None and self._linger_ns:
                self._topics[topic] = now_ns
            elif since_ns is None or now_ns - since_ns >= self._linger_ns:
                self._drop(topic)

    def end(self) -> None:
        """Notifies the receiver, which is being closed, of the end of all its sources and topics."""
        self._ended = True
        for source in list(self._sources):
            self._forget(source)
        for topic in list(self._topics):
            self._drop(topic)

    def _silent(self) -> bool:
        """Returns whether only `end` may call back: the receiver is being closed, or is closed."""
        return self._ended or bool(self._sink.closed)

    def _forget(self, source: SourceAdvert) -> None:
        # It is gone if an earlier callback has closed the receiver.
        pid = self._sources.pop(source, None)
        if pid is not None:
            self._tell(SourceNotificationType.DELETE, source, pid)

    def _drop(self, topic: str) -> None:
        if topic in self._topics:
            del self._topics[topic]
            self._call(self._on_delete, topic)

    def _tell(self, kind: SourceNotificationType, source: SourceAdvert, pid: int) -> None:
        if self._on_source is not None:
            notification = SourceNotification(kind, source.topic, source.session.source_string, pid)
            self._call(self._on_source, notification)

    def _call(self, function: Callable[[Any], object] | None, argument: object) -> None:
        if function is None:
            return
        try:
            function(argument)
        except BaseException as error:
            self._sink.fail(error, self._failures)
