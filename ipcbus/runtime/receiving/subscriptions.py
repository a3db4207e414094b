"""What the receivers of a context want: topics and patterns, and with which options."""

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
    from ipcbus.delivery.sink import Sink
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
    """One receiver's wish: a topic or a pattern, where its messages go, and how.

    Attributes:
        name: the topic, or the pattern as it was given.
        sink: where the messages go.
        options: the receiver's.
        following: whom to tell of sources; None when nobody asked.
        pattern: the compiled pattern of a wildcard receiver.
        entry: number of the receiver's entry in the context's registry.
    """

    name: str
    sink: Sink
    options: ReceiverOptions
    following: SourceNotifications | None = None
    pattern: re.Pattern[str] | None = None
    entry: int = field(default=-1, init=False)
    _serial: int = field(default=0, init=False)
    _fruitless: int = field(default=0, init=False)
    _warned: set[str] = field(default_factory=set, init=False)

    def wants(self, topic: str) -> bool:
        """Returns whether the receiver gets the messages of a topic."""
        return topic == self.name if self.pattern is None else self.pattern.fullmatch(topic) is not None

    def refuses(self, session: SessionAdvert) -> str:
        """Why the receiver's options do not allow it a session; empty when they do."""
        if session.transport == TRANSPORT_LBTSMX and self.options.ordered_delivery == 0:
            return (
                "option ordered_delivery = 0 delivers fragments, which LBT-SMX does not have; receive it with "
                "ordered_delivery 1 or -1"
            )
        return ""

    def looked(self, found: bool) -> bool:
        """Notes a look at the registries; says whether the receiver is to be told now that it has no source."""
        self._fruitless = 0 if found else self._fruitless + 1
        return not found and self._fruitless == self.options.resolution_no_source_notification_threshold

    def warn(self, kind: str, text: str) -> None:
        """Logs a warning that this receiver gets once."""
        if kind not in self._warned:
            self._warned.add(kind)
            log.warning("%s", text)


class Subscriptions:
    """Those of all receivers of a context, in the order in which they were made."""

    def __init__(self) -> None:
        """Nothing is wanted."""
        self._serials = itertools.count()
        self._all: dict[Subscription, None] = {}
        self._exact: dict[str, list[Subscription]] = {}
        self._patterns: list[Subscription] = []
        self._known: dict[str, list[Subscription]] = {}

    def __iter__(self) -> Iterator[Subscription]:
        """All of them."""
        return iter(list(self._all))

    def __len__(self) -> int:
        """Returns how many there are."""
        return len(self._all)

    def __contains__(self, subscription: object) -> bool:
        """Returns whether it was added and not removed."""
        return subscription in self._all

    def add(self, subscription: Subscription) -> None:
        """One more."""
        subscription._serial = next(self._serials)
        self._all[subscription] = None
        if subscription.pattern is None:
            self._exact.setdefault(subscription.name, []).append(subscription)
            self._known.pop(subscription.name, None)
        else:
            self._patterns.append(subscription)
            self._known.clear()

    def remove(self, subscription: Subscription) -> None:
        """One less."""
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
        """Nothing is wanted any more."""
        for subscription in self:
            self.remove(subscription)

    def of(self, topic: str) -> list[Subscription]:
        """Who wants a topic."""
        found = self._known.get(topic)
        if found is None:
            matching = [subscription for subscription in self._patterns if subscription.wants(topic)]
            found = sorted([*self._exact.get(topic, ()), *matching], key=lambda subscription: subscription._serial)
            self._known[topic] = found
        return found

    def users(self, advert: SessionAdvert, topic: str) -> list[Subscription]:
        """Returns the receivers that get a topic's messages from a session; who refuses it is warned of that."""
        wanting = [subscription for subscription in self.of(topic) if not subscription.sink.closed]
        for subscription in wanting:
            if reason := subscription.refuses(advert):
                subscription.warn(
                    "refused", f"receiver of {subscription.name!r}: {advert.source_string} is not used: {reason}"
                )
        return [subscription for subscription in wanting if not subscription.refuses(advert)]

    def keep(self, topics: Container[str]) -> None:
        """Forgets what it has found out about topics that nobody offers any more."""
        for topic in [topic for topic in self._known if topic not in topics]:
            del self._known[topic]

    def check(self, subscription: Subscription) -> None:
        """Refuses a receiver that cannot share the delivery controllers of its topic.

        Raises:
            ConfigError: another receiver of the topic has another value of an option that acts on them.
        """
        if subscription.pattern is not None:
            return
        for other in self._exact.get(subscription.name, ()):
            for name in differing(other, subscription):
                raise ConfigError(
                    f"topic {subscription.name!r}: option {name} = {subscription.options[name]!r}, but another "
                    f"receiver of this topic in this context has {other.options[name]!r}, and both share what the "
                    "option acts on; give both the same value, or use a context of its own"
                )


def differing(one: Subscription, other: Subscription) -> list[str]:
    """Names of the shared options in which two receivers do not agree."""
    return [name for name in SHARED if one.options[name] != other.options[name]]


def warn_of_differences(topic: str, users: Sequence[Subscription]) -> None:
    """Warns receivers of a topic whose shared options are not those of the first."""
    for user in users[1:]:
        for name in differing(users[0], user):
            user.warn(
                "differs",
                f"receiver of {user.name!r}: topic {topic!r} is delivered with {name} = {users[0].options[name]!r} of "
                f"the receiver of {users[0].name!r}, not with its own {user.options[name]!r}: receivers of a topic in "
                "one context share it; give both the same value, or use a context of its own",
            )
