"""How far a pass of the pump goes; that it delivers every message is in tests/conformance."""

from __future__ import annotations

import tempfile
import threading

import pytest

from ipcbus.delivery.pump import Pump
from ringbuf.memory import Mapping
from ringbuf.shared_words import SharedWords
from tests.kit.sessions import Pair

MESSAGES = 600


def test_messages_that_no_receiver_wants_leave_the_ring_as_fast_as_others(domain: str) -> None:
    """Passes grow with what they take; else a source waits for a receiver that skips its messages."""
    pair = Pair(domain)
    session = pair.join()
    source, _ = pair.topic("not received")
    for _ in range(MESSAGES):
        source.send(b"", flush=True)
    pump = Pump()
    pump.watch([session.demux])
    passes = 0
    while session.demux.no_topic < MESSAGES:
        assert pump.run(0, 0, True) == 0
        passes += 1
    assert passes < MESSAGES // 30  # 16 messages a pass would take twice as many
    pair.close()


@pytest.fixture
def watching() -> tuple[Pump, SharedWords]:
    """A pump without rings that may drive, and the memory of the one word that it watches."""
    with tempfile.TemporaryFile() as file:
        file.truncate(4096)
        words = SharedWords(Mapping(file.fileno(), 4096, True))
    pump = Pump()
    pump.quick_allowed = True
    pump.set_timer(60_000_000_000)
    pump.watch([], [words.watched(0)])
    return pump, words


def test_a_watched_word_that_changes_is_handled_in_a_quick_turn(watching: tuple[Pump, SharedWords]) -> None:
    pump, words = watching
    drivers = []

    def look() -> int:
        drivers.append(pump.owner)
        words.store64(0, 0)
        return 3

    pump.look = look
    assert pump.quick(0.0, 1) == 0
    words.store64(0, 1)
    assert [pump.quick(0.0, 1), pump.quick(0.0, 1)] == [3, 0]
    assert (drivers, pump.owner) == ([threading.get_ident()], 0)


def test_an_error_while_a_word_is_handled_leaves_the_pump_free(watching: tuple[Pump, SharedWords]) -> None:
    pump, words = watching

    def fail() -> int:
        raise KeyboardInterrupt

    pump.look = fail
    words.store64(0, 1)
    with pytest.raises(KeyboardInterrupt):
        pump.quick(0.0, 1)
    assert pump.owner == 0
    pump.look = None
    assert pump.quick(0.0, 1) == 0
