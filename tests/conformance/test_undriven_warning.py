"""A send that waits for a receiver of its own process that no thread drives says so, once."""

from __future__ import annotations

import logging
import threading

import pytest

from ipcbus.runtime.sending import backpressure
from tests.kit.bus import GIVE_UP_S, LBTIPC, LBTRU, LBTTCP, Bus
from tests.kit.payload import Books, body

pytestmark = [
    pytest.mark.parametrize("kind", [LBTIPC, LBTRU, LBTTCP], ids=lambda kind: str(kind.name)),
    pytest.mark.parametrize("mode", ["sequential"]),
]


class Warned(logging.Handler):
    """Keeps the warnings of sends that wait."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: list[str] = []
        self.came = threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        """Takes a record."""
        if "no thread drives" in record.getMessage():
            self.texts.append(record.getMessage())
            self.came.set()


def test_a_send_that_waits_for_its_own_thread_names_topic_context_and_cure(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backpressure, "WARN_AFTER_NS", 50_000_000)
    warned, books, receiving = Warned(), Books(), bus.context("waits for me")
    receiving.receiver("t", books.enter)
    source = bus.source("t", bus.context("sending"))
    bus.joined(source)
    done = threading.Event()
    driven: list[bool] = []

    def drive() -> None:
        driven.append(warned.came.wait(GIVE_UP_S))
        while not done.is_set():
            receiving.process_events(0.001)

    thread = threading.Thread(target=drive, daemon=True)
    logger = logging.getLogger("ipcbus")
    logger.addHandler(warned)
    try:
        thread.start()
        count = 0
        while not warned.texts:  # the one that waits is freed by the thread
            source.send(body(count, 8000))
            count += 1
        for number in range(count, count + 1000):
            source.send(body(number, 8000))
    finally:
        done.set()
        thread.join(GIVE_UP_S)
        logger.removeHandler(warned)
    assert driven == [True]
    (text,) = warned.texts
    assert text.startswith("topic 't': ")
    assert "'waits for me'" in text
    assert "process_events() in another thread" in text
    assert "block=False" in text
