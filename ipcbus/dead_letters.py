"""Messages that receivers give up: published on the topic that option gmd_dead_letter_topic names."""

from __future__ import annotations

import logging
import weakref
from typing import TYPE_CHECKING

from ipcbus.errors import IpcBusError

if TYPE_CHECKING:
    from ipcbus.context import Context
    from ipcbus.message import Message
    from ipcbus.source import Source

log = logging.getLogger("ipcbus")


class DeadLetters:
    """Publishes what the receivers of one context give up. Runs on the driver."""

    def __init__(self, context: Context) -> None:
        """Begins without sources."""
        self._context = weakref.ref(context)
        self._sources: dict[str, Source] = {}

    def publish(self, topic: str, receiver: str, message: Message) -> bool:
        """Publishes a message; returns whether that was possible.

        Args:
            topic: the topic for such messages; its source keeps them (`late_join`).
            receiver: the `gmd_name` of the receiver.
            message: the message.
        """
        context = self._context()
        if context is None:
            return False
        try:
            source = self._sources.get(topic)
            if source is None or source.closed:
                source = self._sources[topic] = context.source(topic, late_join=True)
            origin = {
                "gmd_topic": message.topic,
                "gmd_source": message.source,
                "gmd_sequence_number": str(message.gmd_sequence_number),
                "gmd_receiver": receiver,
            }
            headers = [*message.headers, *((name, text.encode()) for name, text in origin.items())]
            source.send(message.data, headers=headers, flush=True)
        except IpcBusError as error:
            log.warning(
                "message %d of topic %r, which receiver %r gives up, cannot go to topic %r and fails at its source: %s",
                message.gmd_sequence_number,
                message.topic,
                receiver,
                topic,
                error,
            )
            return False
        return True
