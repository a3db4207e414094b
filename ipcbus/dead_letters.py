"""Messages that receivers or shares give up, published on the topic of option gmd_ or umq_ulb_dead_letter_topic."""

from __future__ import annotations

import logging
import weakref
from typing import TYPE_CHECKING

from ipcbus.errors import IpcBusError
from ipcbus.wire.properties import unpack
from ipcbus.wire.resent_entries import checked

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ipcbus.context import Context
    from ipcbus.message import Message
    from ipcbus.runtime.receiving.gmd_receptions import GmdReceptions
    from ipcbus.runtime.sending.shared_sources import SharedSources
    from ipcbus.shares.share_settings import LostWork
    from ipcbus.source import Source

log = logging.getLogger("ipcbus")


class DeadLetters:
    """Publishes what the receivers and sources of one context give up. Runs on the driver."""

    def __init__(self, context: Context) -> None:
        """Begins without sources."""
        self._context = weakref.ref(context)
        self._sources: dict[str, Source] = {}

    def serve(self, receptions: GmdReceptions, shares: SharedSources) -> None:
        """Publishes what they give up from now on."""
        receptions.publish, shares.publish = self.publish, self.publish_work

    def publish(self, topic: str, receiver: str, message: Message) -> bool:
        """Publishes a guaranteed message that a receiver gives up; returns whether that was possible.

        Args:
            topic: the topic for such messages; its source keeps them (`late_join`).
            receiver: the `gmd_name` of the receiver.
            message: the message.
        """
        origin = {
            "gmd_topic": message.topic,
            "gmd_source": message.source,
            "gmd_sender": message.gmd_sender or "",
            "gmd_incarnation": f"{message.gmd_incarnation:016x}",
            "gmd_sequence_number": str(message.gmd_sequence_number),
            "gmd_receiver": receiver,
        }
        what = f"message {message.gmd_sequence_number} of topic {message.topic!r}, which receiver {receiver!r} gives up"
        return self._send(topic, message.data, message.headers, origin, f"{what}, fails at its source and")

    def publish_work(self, topic: str, source_topic: str, source_string: str, lost: LostWork) -> None:
        """Publishes a message that a share gives up, if the share has it.

        Args:
            topic: the topic for such messages, as in `publish`.
            source_topic: the topic of the message.
            source_string: its source.
            lost: the report of the share.
        """
        entries = checked(lost.entry, 0, lost.first + 1, lost.last + 2)
        if not entries:
            return
        entry = entries.pop()
        origin = {
            "umq_topic": source_topic,
            "umq_source": source_string,
            "umq_share": lost.share,
            "umq_sequence_number": str(lost.last),
            "umq_deliveries": str(lost.deliveries),
            "umq_reason": str(lost.reason),
        }
        what = f"message {lost.last} of topic {source_topic!r}, which share {lost.share!r} gives up,"
        self._send(topic, entry.data, unpack(entry.block) if entry.block else (), origin, what)

    def _send(
        self, topic: str, data: bytes, headers: Sequence[tuple[str, bytes]], origin: Mapping[str, str], what: str
    ) -> bool:
        context = self._context()
        if context is None:
            return False
        try:
            source = self._sources.get(topic)
            if source is None or source.closed:
                source = self._sources[topic] = context.source(topic, late_join=True, umq_ulb_dead_letter_topic="")
            said = [(name, text.encode()) for name, text in origin.items()]
            source.send(data, headers=[*headers, *said], flush=True)
        except IpcBusError as error:
            log.warning("%s cannot go to topic %r: %s", what, topic, error)
            return False
        return True
