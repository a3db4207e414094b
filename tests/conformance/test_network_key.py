"""A domain with keys: messages come as without, also while the keys are replaced, and strangers do no harm."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from ipcbus import stats
from ipcbus.runtime.loop import seals
from tests.kit.bus import LBTRM, LBTRU, LBTTCP, Bus, Kind
from tests.kit.network_keys import key_file
from tests.kit.payload import Books, balanced, body

if TYPE_CHECKING:
    from pathlib import Path

    from ipcbus import Context

over_the_network = pytest.mark.parametrize("kind", [LBTRU, LBTRM, LBTTCP], ids=lambda kind: kind.name)


@over_the_network
@pytest.mark.parametrize("protection", ["encrypt", "authenticate"])
def test_messages_of_all_sizes_come_as_without_a_key(domain: str, tmp_path: Path, kind: Kind, protection: str) -> None:
    options = {"network_key_file": key_file(tmp_path / "keys", {1: b"1"}), "network_protection": protection}
    bus, books = Bus(domain, kind, "embedded"), Books()
    bus.receiver("t", books.enter, bus.context("receiving", **options))
    source = bus.source("t", bus.context("sending", **options))
    bus.joined(source)
    for number in range(300):
        source.send(body(number, (20, 1400, 8000)[number % 3]), flush=number % 7 == 0)
    source.flush()
    bus.until(lambda: books.accounted >= 300, "the messages")
    (ledger,) = books.ledgers.values()
    balanced(ledger, 300)
    assert ledger.lost == 0
    bus.close()


@over_the_network
def test_keys_are_replaced_under_traffic_without_a_loss(
    domain: str, tmp_path: Path, kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new key is added everywhere, then seals everywhere, then the old one is removed everywhere."""
    monkeypatch.setattr(seals, "_LOOK_NS", 20_000_000)
    files = [tmp_path / "sending", tmp_path / "receiving"]
    bus, books = Bus(domain, kind, "embedded"), Books()
    contexts = [bus.context(file.name, network_key_file=key_file(file, {1: b"1"})) for file in files]
    bus.receiver("t", books.enter, contexts[1])
    source = bus.source("t", contexts[0])
    bus.joined(source)
    stop = threading.Event()

    def send() -> None:
        while not stop.is_set():
            source.send(body(source.sequence_number + 1), flush=True)
            stop.wait(0.001)

    thread = threading.Thread(target=send)
    thread.start()
    for keys in ({1: b"1", 2: b"2"}, {2: b"2", 1: b"1"}, {2: b"2"}):
        for file, context in zip(files, contexts, strict=True):
            key_file(file, keys)
            until_it_has(bus, context, list(keys))
    before = books.delivered
    bus.until(lambda: books.delivered > before + 100, "more messages")
    stop.set()
    thread.join()
    sent = source.sequence_number + 1
    bus.until(lambda: books.accounted >= sent, "the messages")
    (ledger,) = books.ledgers.values()
    balanced(ledger, sent)
    assert ledger.lost == 0
    # A packet that was on its way when its key was removed is repaired; all others open. Other tests may send packets
    # without a seal: to the group, or to a port that was theirs a moment before.
    for context in contexts:
        assert sum(seal.counts.dropped - seal.counts.unsealed for seal in context._network.seals._all()) <= 1
    bus.close()


@pytest.mark.parametrize("kind", [LBTRU, LBTTCP], ids=lambda kind: kind.name)
@pytest.mark.parametrize("other", [{1: b"2"}, {2: b"1"}], ids=["another key", "another number"])
def test_a_context_counts_what_it_drops_of_strangers(
    domain: str, tmp_path: Path, kind: Kind, other: dict[int, bytes], caplog: pytest.LogCaptureFixture
) -> None:
    bus = Bus(domain, kind, "embedded")
    source = bus.source("t", bus.context("sending", network_key_file=key_file(tmp_path / "own", {1: b"1"})))
    bus.receiver("t", lambda _: None, bus.context("stranger", network_key_file=key_file(tmp_path / "other", other)))

    def dropped() -> int:
        (found,) = [each for each in stats.take_snapshot(domain).contexts if each.name == "sending"]
        return found.counters["dgrams_dropped_seal"]

    bus.until(dropped, "the stranger's attempts")
    bus.until(lambda: any("datagrams dropped" in text for text in caplog.messages), "the log")
    assert source.receivers == 0
    bus.close()


def until_it_has(bus: Bus, context: Context, numbers: list[int]) -> None:
    """Waits until a context has the keys with these numbers; the first one seals."""
    keyring = context._network.seals._keyring
    assert keyring is not None
    bus.until(lambda: list(keyring.keys) == numbers, "the keys to be read")
