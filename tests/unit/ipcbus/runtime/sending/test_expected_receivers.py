"""Contexts that may be about to join a source, as their registries show them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ipcbus.resolution.local.registry import PeerRegistry, Registry
from ipcbus.runtime.sending.expected_receivers import ExpectedReceivers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture
def make(domain: str) -> Iterator[Callable[[int], Registry]]:
    made: list[Registry] = []

    def one(context_id: int) -> Registry:
        made.append(Registry(domain, context_id, "", "1.2", hidden=False, group=""))
        return made[-1]

    yield one
    for each in made:
        each.close()


def test_receivers_of_the_topic_count_by_name_and_by_pattern(domain: str, make: Callable[[int], Registry]) -> None:
    make(1).add_receiver("a")
    make(2).add_receiver("a|b", wildcard=True)
    make(3).add_receiver("a.", wildcard=True)  # the whole topic has to match
    make(4).add_receiver("(", wildcard=True)  # cut short, or damaged
    make(5).add_receiver(".")  # the name of a topic
    make(6).add_receiver("a")
    found = ExpectedReceivers(domain, {6})
    assert set(found.of("a")) == {1, 2}
    assert set(found.of("b")) == {2}
    assert set(found.of("ab")) == {3}
    assert found.of("c") == {}


def test_one_topic_is_told_without_the_others(domain: str, make: Callable[[int], Registry]) -> None:
    registry = make(1)
    for topic in ("a", "aa", "b", "ä"):
        registry.add_receiver(topic)
    registry.add_receiver("(a|ä)", wildcard=True)
    for topic, receivers in (("a", 2), ("ä", 2), ("b", 1), ("c", 0)):
        found = ExpectedReceivers(domain, (), topic)
        assert len(list(found._receivers(topic))) == receivers
        assert set(found.of(topic)) == ({1} if receivers else set())


def test_a_context_is_expected_since_its_latest_receiver(domain: str, make: Callable[[int], Registry]) -> None:
    registry = make(1)
    for topic in ("a", "a", "b"):
        registry.add_receiver(topic)
    peer = PeerRegistry(registry.name)
    contents = peer.read()
    peer.close()
    assert contents is not None
    since = [each.since_ns for each in contents[1].receivers]
    assert since == sorted(set(since))
    assert ExpectedReceivers(domain, ()).of("a") == {1: since[1]}


def test_a_context_that_died_does_not_count(
    domain: str, make: Callable[[int], Registry], monkeypatch: pytest.MonkeyPatch
) -> None:
    make(1).add_receiver("a")
    dead = make(2)
    dead.add_receiver("a")
    alive = PeerRegistry.alive
    monkeypatch.setattr(PeerRegistry, "alive", lambda peer: peer.name != dead.name and alive(peer))
    assert set(ExpectedReceivers(domain, ()).of("a")) == {1}


def test_a_pattern_of_another_user_is_not_matched(
    domain: str, make: Callable[[int], Registry], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It might take for ever."""
    registry = make(1)
    registry.add_receiver("(a*)*b", wildcard=True)
    make(2).add_receiver("a" * 50)
    monkeypatch.setattr("os.geteuid", lambda: -1)
    assert set(ExpectedReceivers(domain, ()).of("a" * 50)) == {2}
