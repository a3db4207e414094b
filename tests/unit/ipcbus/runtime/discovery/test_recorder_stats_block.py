"""What others read of a recorder, and of the entry that another recorder has after it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import ipcbus
from ipcbus.resolution.local.registry import PeerRegistry, Registry
from ipcbus.runtime.discovery.recorder_stats_block import RecorderStatsBlock
from ringbuf.ring_errors import SegmentFull

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ipcbus.resolution.local.adverts import RecorderAdvert


@pytest.fixture
def registry(domain: str) -> Iterator[Registry]:
    made = Registry(domain, 1, "", "1.2", hidden=False, group="")
    yield made
    made.close()


def shown(registry: Registry) -> list[RecorderAdvert]:
    """The recorders, as another process reads them."""
    peer = PeerRegistry(registry.name)
    contents = peer.read()
    peer.close()
    assert contents is not None
    return list(contents[1].recorders)


def test_a_recorder_is_shown_from_its_beginning_to_its_end(registry: Registry) -> None:
    block = RecorderStatsBlock(registry, "/archive/a")
    (before,) = shown(registry)
    assert (before.log, before.values["messages"]) == ("/archive/a", 0)
    assert before.shown_ns > 0
    block.show(messages=3, behind_ns=7)
    block.show(bytes=5)
    (after,) = shown(registry)
    assert (after.values["messages"], after.values["bytes"], after.behind_ns) == (3, 5, 7)
    assert after.shown_ns > before.shown_ns
    block.close()
    assert shown(registry) == []


def test_after_its_end_a_recorder_changes_no_entry_of_another(registry: Registry) -> None:
    ended = RecorderStatsBlock(registry, "/archive/ended")
    ended.close()
    RecorderStatsBlock(registry, "/archive/next").show(messages=1)  # in the same entry
    ended.show(messages=9)
    ended.close()
    assert [(each.log, each.values["messages"]) for each in shown(registry)] == [("/archive/next", 1)]


def test_after_the_end_of_its_context_a_recorder_does_nothing(domain: str) -> None:
    registry = Registry(domain, 2, "", "1.2", hidden=False, group="")
    block = RecorderStatsBlock(registry, "/archive/a")
    registry.close()
    block.show(messages=1)
    block.close()


def test_a_registry_without_room_is_told_as_an_error_of_the_public_face(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(name: str) -> int:
        raise SegmentFull(name)

    monkeypatch.setattr(registry, "add_recorder", fail)
    with pytest.raises(ipcbus.SharedMemoryFull, match="/archive/a"):
        RecorderStatsBlock(registry, "/archive/a")
