"""The receiving handle of all topics that match a pattern."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ipcbus.errors import ConfigError
from ipcbus.receiver import Receiver
from ipcbus.runtime.error_mapping import check_callbacks
from ipcbus.runtime.receiving.source_notifications import SourceNotifications

if TYPE_CHECKING:
    from collections.abc import Callable

    from ipcbus.config import ReceiverOptions, WildcardReceiverOptions
    from ipcbus.context import Context
    from ipcbus.event_queue import EventQueue
    from ipcbus.runtime.receiving.receiver_callback import ReceiverCallback
    from ipcbus.runtime.receiving.session_info import SourceNotification


class WildcardReceiver(Receiver):
    """Gets the messages of every topic that matches a pattern; made by `Context.wildcard_receiver`.

    It has all that a `Receiver` has, for all these topics together; `message.topic` is the topic of a message.
    """

    _same = "topics that the pattern matches"

    def __init__(
        self,
        context: Context,
        pattern: str,
        callback: ReceiverCallback,
        options: ReceiverOptions,
        wildcard: WildcardReceiverOptions,
        *,
        on_create: Callable[[str], object] | None = None,
        on_delete: Callable[[str], object] | None = None,
        event_queue: EventQueue | None = None,
        source_notification: Callable[[SourceNotification], object] | None = None,
    ) -> None:
        """Use `Context.wildcard_receiver` instead."""
        check_callbacks(on_create=on_create, on_delete=on_delete)
        compiled = compile_pattern(pattern)
        super().__init__(
            context, pattern, callback, options, event_queue=event_queue, source_notification=source_notification
        )
        self._subscription.pattern = compiled
        if on_create or on_delete:
            self._subscription.notifications = SourceNotifications(
                self._sink,
                context._receiving_sessions.notifier,
                on_source=source_notification,
                on_create=on_create,
                on_delete=on_delete,
                linger_ns=wildcard.resolver_no_source_linger_timeout * 1_000_000,
            )

    @property
    def pattern(self) -> str:
        """The pattern as it was given; `topic` has the same value."""
        return self.topic

    def _named(self) -> str:
        return f"pattern {self.topic!r}"

    def __repr__(self) -> str:
        """Returns a text with the pattern."""
        return f"<WildcardReceiver {self.pattern!r}{' (closed)' if self.closed else ''}>"


def compile_pattern(pattern: object) -> re.Pattern[str]:
    """Returns the compiled form of a pattern of topics.

    Raises:
        ConfigError: the pattern is not a text, is empty, or is an invalid regular expression; the text names the place.
    """
    if not isinstance(pattern, str) or not pattern:
        raise ConfigError(
            f"pattern {pattern!r} is not a pattern of topics: give a regular expression of Python's re, for example "
            r"r'quotes\..*'"
        )
    try:
        return re.compile(pattern)
    except re.error as error:
        where = "" if error.pos is None else f" at position {error.pos}"
        reason = f"{error.msg}{where}"
    except (OverflowError, RecursionError) as error:
        reason = str(error)
    raise ConfigError(
        f"pattern {pattern!r} is an invalid regular expression: {reason}; use the syntax of Python's re, in which a "
        r"dot is written \."
    )
