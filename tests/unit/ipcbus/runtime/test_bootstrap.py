"""What a context begins with is complete, or nothing of it is left behind."""

from __future__ import annotations

import secrets
from unittest.mock import Mock

import pytest

from ipcbus.config import ContextOptions
from ipcbus.resolution.local import object_names
from ipcbus.resolution.local.registry import PeerRegistry
from ipcbus.runtime import bootstrap
from ipcbus.runtime.bootstrap import open_event_loop, open_registry
from ringbuf import segment
from ringbuf.doorbell import Doorbell


def drawn(monkeypatch: pytest.MonkeyPatch, *numbers: int) -> None:
    """Lets the next ids of contexts be these."""
    left = list(numbers)
    monkeypatch.setattr(secrets, "randbelow", lambda _: left.pop(0) - 1)


def test_an_id_that_another_context_has_is_not_used(domain: str, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn(monkeypatch, 5, 5, 6)
    made = [open_registry(domain, ContextOptions({"context_name": name}), "1.2") for name in ("one", "other")]
    assert [number for number, _, _ in made] == [5, 6]
    shown = []
    for _, registry, bell in made:
        peer = PeerRegistry(registry.name)
        contents = peer.read()
        peer.close()
        bell.close()
        registry.close()
        assert contents is not None
        shown.append((contents[1].context_id, contents[1].name, contents[1].release))
    assert shown == [(5, "one", "1.2"), (6, "other", "1.2")]


def test_without_a_doorbell_the_registry_is_removed(domain: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(bootstrap, "Doorbell", fail)
    with pytest.raises(KeyboardInterrupt):
        open_registry(domain, ContextOptions(), "1.2")
    assert list(segment.names(object_names.domain_prefix(domain))) == []


@pytest.mark.parametrize(
    ("options", "sequential", "split"),
    [
        ({}, False, False),
        ({"operational_mode": "sequential"}, True, False),
        ({"transport_lbtipc_receiver_operational_mode": "sequential"}, False, True),
        ({"operational_mode": "sequential", "transport_lbtipc_receiver_operational_mode": "sequential"}, True, False),
    ],
)
def test_the_options_choose_the_mode(domain: str, options: dict[str, str], sequential: bool, split: bool) -> None:
    bell = Doorbell(object_names.bell(domain, 1))
    event_loop = open_event_loop(bell, Mock(), ContextOptions(options))
    found = (event_loop.sequential, event_loop.split)
    event_loop.stop()
    event_loop.close()
    bell.close()
    assert found == (sequential, split)
