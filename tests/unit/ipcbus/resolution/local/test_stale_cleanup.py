from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ipcbus.resolution.local import object_names, stale_cleanup
from ringbuf import segment
from tests.kit.look import objects

if TYPE_CHECKING:
    import pytest


def test_an_object_without_a_registry_is_left_over_only_when_it_is_old(
    domain: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A context that starts makes its objects one after the other."""
    name = object_names.ring(domain, 5, 0)
    os.close(segment.create(name, 4096))
    assert stale_cleanup.sweep(domain) == []
    assert objects(domain) == [name]
    monkeypatch.setattr(stale_cleanup, "ORPHAN_AGE_S", 0.0)
    assert stale_cleanup.sweep(domain) == [name]
    assert objects(domain) == []


def test_an_object_goes_that_a_context_made_after_the_look_and_before_its_death(domain: str) -> None:
    registry, ring = object_names.registry(domain, 5), object_names.ring(domain, 5, 0)
    for name in (registry, ring):
        os.close(segment.create(name, 4096))
    assert set(stale_cleanup.reclaim(registry.removesuffix(object_names.REGISTRY), [registry])) == {registry, ring}
    assert objects(domain) == []
