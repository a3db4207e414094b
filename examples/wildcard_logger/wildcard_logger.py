"""A logger of all topics that match a pattern, also of topics that begin later, with losses and ends."""

from __future__ import annotations

import logging
import os
import sys
import threading

import ipcbus

logging.basicConfig(stream=sys.stdout, format="%(levelname)s %(message)s", level=logging.INFO)
log = logging.getLogger("app")


class Logger:
    """Writes what happens on the topics into the log."""

    def __init__(self, context: ipcbus.Context, pattern: str) -> None:
        """Begins to log the topics that match the pattern."""
        self.ended = threading.Semaphore(0)
        self.receiver = context.wildcard_receiver(pattern, self.on_message, on_create=self.on_create)

    def on_create(self, topic: str) -> None:
        """Notes a topic before its first message."""
        log.info("%s: new topic", topic)

    def on_message(self, message: ipcbus.Message) -> None:
        """Logs a message or an event."""
        if message.type is ipcbus.MessageType.DATA:
            log.info("%s: %d %s", message.topic, message.sequence_number, message.data.decode(errors="replace"))
        elif message.type is ipcbus.MessageType.EOS:
            log.info("%s: the source has ended", message.topic)
            self.ended.release()
        elif message.type is not ipcbus.MessageType.BOS:
            log.warning("%s: %d to %d lost", message.topic, message.first_sequence_number, message.sequence_number)


def main() -> None:
    """Runs the logger and two sources; usually each is a process of its own."""
    domain = f"wildcard-logger-{os.getpid()}"
    with ipcbus.Context(domain=domain, name="logger") as logging_context, ipcbus.Context(domain=domain) as context:
        logger = Logger(logging_context, r"app\..*")
        for topic in ("app.orders", "app.prices", "other"):
            source = context.source(topic)
            if topic != "other":
                source.wait_for_receivers(1, timeout=30)
            source.send(f"first of {topic}".encode())
            source.send(f"second of {topic}".encode())
            source.close()
        for _ in range(2):
            logger.ended.acquire(timeout=30)


if __name__ == "__main__":
    main()
