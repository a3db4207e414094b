"""Subscriptions: the topics and patterns of the receivers of a context, with their options."""

from __future__ import annotations

import itertools
import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ipcbus.errors import ConfigError
from ipcbus.wire.wire_layout import TRANSPORT_LBTSMX

if TYPE_CHECKING:
    import re
    from collections.abc import Container, Iterator, Sequence

    from ipcbus.config import ReceiverOptions
    from ipcbus.delivery.gmd_gate import GmdGate
    from ipcbus.delivery.sink import Sink
    from ipcbus.recovery.older_messages import History
    from ipcbus.resolution.local.adverts import SessionAdvert
    from ipcbus.runtime.receiving.source_notifications import SourceNotifications

log = logging.getLogger("ipcbus")

SHARED = (
    "ordered_delivery",
    "delivery_control_maximum_burst_loss",
    "delivery_control_loss_check_interval",
    "otr_message_caching_threshold",
)
"""Options of a topic's delivery controller, which all its receivers in one context share."""


@dataclass(slots=True, eq=False)
class Subscription:
    """The subscription of one receiver: a topic or a pattern, a sink and options.

    Attributes:
        name: the topic, or the pattern as it was given.
        sink: takes the messages.
        options: the options of the receiver.
        notifications: notifies the receiver of sources; None if it gave no callbacks for them.
        archive: has what sources of the receiver do not keep any more (option history_archive); None without one.
        pattern: the compiled pattern of a wildcard receiver; otherwise None.
        entry: the number of the receiver's entry in the context's registry.
        gates: its gates, if it has a `gmd_name`, one for each source topic.
    """

    name: str
    sink: Sink
    options: ReceiverOptions
    notifications: SourceNotifications | None = None
    archive: History | None = None
    pattern: re.Pattern[str] | None = None
    entry: int = field(default=-1, init=False)
    gates: list[GmdGate] = field(default_factory=list, init=False)
    _serial: int = field(default=0, init=False)
    _scans_without_source: int = field(default=0, init=False)
    _warned: set[str] = field(default_factory=set, init=False)

    def wants(self, topic: str) -> bool:
        """Returns whether the receiver gets the messages of a topic."""
        return topic == self.name if self.pattern is None else self.pattern.fullmatch(topic) is not None

    def refuses(self, session: SessionAdvert) -> str:
        """Returns why the receiver's options do not allow a session; empty if they allow it."""
        if session.transport == TRANSPORT_LBTSMX and self.options.ordered_delivery == 0:
            return (
                "option ordered_delivery = 0 delivers fragments, which LBT-SMX does not have; receive it with "
                "ordered_delivery 1 or -1"
            )
        return ""

    def note_scan(self, found: bool) -> bool:
        """Notes a scan of the registries; returns whether the receiver now gets NO_SOURCE_NOTIFICATION."""
        self._scans_without_source = 0 if found else self._scans_without_source + 1
        return not found and self._scans_without_source == self.options.resolution_no_source_notification_threshold

    def warn(self, kind: str, text: str) -> None:
        """Logs a warning that this receiver gets once."""
        if kind not in self._warned:
            self._warned.add(kind)
            log.warning("%s", text)


class Subscriptions:
    """The subscriptions of all receivers of a context, in the order in which the receivers were made."""

    def __init__(self) -> None:
        self._serials = itertools.count()
        self._all: dict[Subscription, None] = {}
        self._exact: dict[str, list[Subscription]] = {}
        self._patterns: list[Subscription] = []
        self._known: dict[str, list[Subscription]] = {}

    def __iter__(self) -> Iterator[Subscription]:
        return iter(list(self._all))

    def __len__(self) -> int:
        return len(self._all)

    def __contains__(self, subscription: object) -> bool:
        return subscription in self._all

    def add(self, subscription: Subscription) -> None:
        subscription._serial = next(self._serials)
        self._all[subscription] = None
        if subscription.pattern is None:
            self._exact.setdefault(subscription.name, []).append(subscription)
            self._known.pop(subscription.name, None)
        else:
            self._patterns.append(subscription)
            self._known.clear()

    def remove(self, subscription: Subscription) -> None:
        del self._all[subscription]
        if subscription.pattern is None:
            self._exact[subscription.name].remove(subscription)
            if not self._exact[subscription.name]:
                del self._exact[subscription.name]
            self._known.pop(subscription.name, None)
        else:
            self._patterns.remove(subscription)
            self._known.clear()

    def clear(self) -> None:
        for subscription in self:
            self.remove(subscription)

    def of(self, topic: str) -> list[Subscription]:
        """Returns the subscriptions to a topic."""
        found = self._known.get(topic)
        if found is None:
            matching = [subscription for subscription in self._patterns if subscription.wants(topic)]
            found = sorted([*self._exact.get(topic, ()), *matching], key=lambda subscription: subscription._serial)
            self._known[topic] = found
        return found

    def users(self, advert: SessionAdvert, topic: str) -> list[Subscription]:
        """Returns the receivers that get a topic's messages from a session; warns receivers that cannot use it."""
        wanting = [subscription for subscription in self.of(topic) if not subscription.sink.closed]
        for subscription in wanting:
            if reason := subscription.refuses(advert):
                subscription.warn(
                    "refused", f"receiver of {subscription.name!r}: {advert.source_string} is not used: {reason}"
                )
        return [subscription for subscription in wanting if not subscription.refuses(advert)]

    def keep(self, topics: Container[str]) -> None:
        """Forgets the subscriptions found for topics that are no longer offered."""
        for topic in [topic for topic in self._known if topic not in topics]:
            del self._known[topic]

    def check(self, subscription: Subscription) -> None:
        """Checks that a receiver can share the delivery controllers of its topic.

        Raises:
            ConfigError: another receiver of the topic has another value of a shared option.
        """
        if subscription.pattern is not None:
            return
        for other in self._exact.get(subscription.name, ()):
            for name in differing(other, subscription):
                raise ConfigError(
                    f"topic {subscription.name!r}: option {name} = {subscription.options[name]!r}, but another "
                    f"receiver of this topic in this context has {other.options[name]!r}, and the receivers of a topic "
                    "share this option; give both the same value, or make one in a context of its own"
                )


def differing(one: Subscription, other: Subscription) -> list[str]:
    """Returns the names of the shared options in which two receivers differ."""
    return [name for name in SHARED if one.options[name] != other.options[name]]


def warn_of_differences(topic: str, users: Sequence[Subscription]) -> None:
    """Warns receivers of a topic whose shared options differ from those of the first receiver."""
    for user in users[1:]:
        for name in differing(users[0], user):
            user.warn(
                "differs",
                f"receiver of {user.name!r}: topic {topic!r} is delivered with {name} = {users[0].options[name]!r} of "
                f"the receiver of {users[0].name!r}, not with its own {user.options[name]!r}: receivers of a topic in "
                "one context share the option; give both the same value, or make one in a context of its own",
            )
