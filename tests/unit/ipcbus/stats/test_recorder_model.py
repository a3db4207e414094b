"""Recorders in snapshots: what they show, what two looks tell, and how one is in a word."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import ipcbus
from ipcbus import stats
from ipcbus.stats import DomainSnapshot, counters_of, rates
from ipcbus.stats.recorder_model import BEHIND_NS, SILENT_NS
from ipcbus.wire import wire_layout
from tests.kit.cases import each_of
from tests.unit.ipcbus.stats.made import SECOND, START, context, recorder, snapshot

if TYPE_CHECKING:
    from collections.abc import Iterator
    from multiprocessing.connection import Connection

    from ipcbus import Context
    from ipcbus.stats import RecorderStats

NUMBERS = {row.name: place + 1 for place, row in enumerate(counters_of("recorder"))}


@pytest.fixture
def ctx(domain: str) -> Iterator[Context]:
    with ipcbus.Context(name="recording", domain=domain, operational_mode="sequential") as made:
        yield made


def seen(domain: str) -> tuple[RecorderStats, ...]:
    """The recorders of the domain's one context."""
    (found,) = stats.take_snapshot(domain).contexts
    return found.recorders


def test_what_is_shown_is_seen(ctx: Context) -> None:
    board = ctx._recorder_stats_block("/archive/host")
    (found,) = seen(ctx.domain)
    assert (found.log, found.alive, found.stopped, found.failing, found.doing) == (
        *("/archive/host", True, False, False),
        "records",
    )
    assert set(found.counters.values()) == {0}
    board.show(**NUMBERS | {"buffered_bytes": 0})
    (found,) = seen(ctx.domain)
    assert dict(found.counters) == NUMBERS | {"buffered_bytes": 0}
    assert found.silent_ns < 60 * SECOND
    assert found.since_ns > START
    board.show(messages=7, failing=1)
    (found,) = seen(ctx.domain)
    assert (found.counters["messages"], found.counters["bytes"], found.failing) == (7, NUMBERS["bytes"], True)
    assert found.doing == "fails"


def test_a_recorder_is_gone_when_it_is_closed_and_another_begins_anew(ctx: Context) -> None:
    first = ctx._recorder_stats_block("/archive/one")
    first.show(**NUMBERS, failing=1)
    first.close()
    first.close()
    assert seen(ctx.domain) == ()
    second = ctx._recorder_stats_block("/archive/two")
    first.show(messages=99)
    (found,) = seen(ctx.domain)
    assert (found.log, found.failing, set(found.counters.values())) == ("/archive/two", False, {0})
    second.close()


def test_what_has_not_been_written_grows_older_while_nothing_is_shown(
    ctx: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    board = ctx._recorder_stats_block("/archive/host")
    with monkeypatch.context() as patch:
        patch.setattr("ipcbus.runtime.discovery.recorder_stats_block.time.monotonic_ns", lambda: 1)
        board.show(behind_ns=5 * SECOND, buffered_bytes=1)
    (found,) = seen(ctx.domain)
    assert found.counters["behind_ns"] == 5 * SECOND + found.silent_ns
    assert (found.silent_ns > SILENT_NS, found.doing) == (True, "hangs")
    with monkeypatch.context() as patch:
        patch.setattr("ipcbus.runtime.discovery.recorder_stats_block.time.monotonic_ns", lambda: 1)
        board.show(behind_ns=0, buffered_bytes=0)
    (found,) = seen(ctx.domain)
    assert found.counters["behind_ns"] == 0


@pytest.mark.parametrize("length", [254, 255, 256, 4000])
def test_of_a_long_path_the_end_is_shown(ctx: Context, length: int) -> None:
    path = "/é" + "x" * (length - 8) + "/last"
    ctx._recorder_stats_block(path)
    (found,) = seen(ctx.domain)
    assert found.log.endswith("x/last")
    assert found.log == path if length <= 255 else found.log.startswith("...")


def test_many_recorders_make_the_registry_grow(ctx: Context) -> None:
    boards = [ctx._recorder_stats_block(f"/archive/{number}") for number in range(100)]
    for number, board in enumerate(boards):
        board.show(messages=number)
    found = seen(ctx.domain)
    assert [(each.log, each.counters["messages"]) for each in found] == [(f"/archive/{n}", n) for n in range(100)]


def test_after_the_context_is_closed_nothing_is_shown_and_nothing_fails(domain: str) -> None:
    with ipcbus.Context(domain=domain, operational_mode="sequential") as ctx:
        board = ctx._recorder_stats_block("/archive/host")
    board.show(messages=1)
    board.close()
    with pytest.raises(ipcbus.ClosedError):
        ctx._recorder_stats_block("/archive/host")


def test_the_child_of_a_fork_shows_nothing_in_the_name_of_its_parent(ctx: Context) -> None:
    board = ctx._recorder_stats_block("/archive/host")
    board.show(messages=5)

    def child() -> None:
        board.show(messages=6)
        board.close()

    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    process.join()
    (found,) = seen(ctx.domain)
    assert (process.exitcode, found.counters["messages"]) == (0, 5)


def _record(domain: str, pipe: Connection) -> None:
    with ipcbus.Context(domain=domain) as ctx:
        ctx._recorder_stats_block("/archive/host").show(messages=5)
        pipe.send(None)
        signal.pause()


def test_one_that_died_is_dead_like_its_context(domain: str) -> None:
    here, there = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=_record, args=(domain, there))
    process.start()
    here.recv()
    os.kill(process.pid or 0, signal.SIGKILL)
    process.join()
    (found,) = seen(domain)
    assert (found.alive, found.doing, found.counters["messages"]) == (False, "dead", 5)
    here.close()
    there.close()
    with ipcbus.Context(domain=domain):  # removes what is left
        assert seen(domain) == ()


def test_whatever_a_registry_says_is_a_value_that_json_knows(ctx: Context) -> None:
    ctx._recorder_stats_block("/archive/host")
    registry = ctx._registry
    view = registry.mapping.view(registry.entry_offset(0), wire_layout.RECORDER_ENTRY.itemsize)
    entry = np.frombuffer(view, wire_layout.RECORDER_ENTRY, 1).reshape(())
    for byte in (0xFF, 0x80):
        view[4:] = bytes([byte]) * (len(view) - 4)
        entry["shown_ns"] = 5
        found = stats.take_snapshot(ctx.domain)
        assert DomainSnapshot.from_dict(json.loads(json.dumps(found.to_dict()))).contexts[0].recorders
    del entry
    view.release()


# What two looks tell.


def both(before: RecorderStats | None, after: RecorderStats, seconds: float = 2.0) -> RecorderStats:
    later = round(seconds * SECOND)
    was = () if before is None else (before,)
    found = rates(snapshot(context(recorders=was)), snapshot(context(recorders=(after,), at=later), at=later))
    return found.contexts[0].recorders[0]


def test_rates() -> None:
    found = both(
        recorder(counts={"messages": 10, "next_offset": 5}), recorder(counts={"messages": 30, "next_offset": 9})
    )
    assert found.per_second["messages"] == 10
    assert not {"next_offset", "behind_ns", "buffered_bytes", "buffer_bytes"} & set(found.per_second)
    assert both(None, recorder(counts={"messages": 30})).per_second["messages"] == 15
    other = recorder(counts={"messages": 10}, since_ns=START + 1)
    assert both(other, recorder(counts={"messages": 30})).per_second["messages"] == 15


@each_of(
    ("fields", "counts", "doing"),
    [
        ({}, {}, "records"),
        ({}, {"buffered_bytes": 499, "behind_ns": BEHIND_NS - 1, "dropped": 5}, "records"),
        ({}, {"buffered_bytes": 500}, "behind"),
        ({}, {"behind_ns": BEHIND_NS}, "behind"),
        ({"failing": True}, {"behind_ns": BEHIND_NS}, "fails"),
        ({"failing": True, "per_second": {"dropped": 0.1}}, {}, "drops"),
        ({"silent_ns": SILENT_NS, "per_second": {"dropped": 0.1}}, {}, "hangs"),
        ({"silent_ns": SILENT_NS - 1}, {}, "records"),
        ({"stopped": True, "silent_ns": SILENT_NS}, {}, "stopped"),
        ({"alive": False, "stopped": True}, {}, "dead"),
    ],
)
def test_in_a_word(fields: dict[str, Any], counts: dict[str, int], doing: str) -> None:
    assert recorder(counts=counts, **fields).doing == doing


def test_how_full_it_is() -> None:
    assert recorder(counts={"buffered_bytes": 250}).fill == 0.25
    assert recorder(counts={"buffered_bytes": 5000}).fill == 1.0
    assert recorder(counters=MappingProxyType({"buffer_bytes": 0, "buffered_bytes": 7})).fill is None


def test_json_has_what_is_reckoned_and_comes_back() -> None:
    found = snapshot(context(recorders=(recorder(counts={"buffered_bytes": 250, "messages": 3}),)))
    told = json.loads(json.dumps(found.to_dict()))
    (each,) = told["contexts"][0]["recorders"]
    assert (each["fill"], each["doing"], each["counters"]["messages"]) == (0.25, "records", 3)
    assert DomainSnapshot.from_dict(told) == found
    del each["counters"]["missed"]
    assert DomainSnapshot.from_dict(told) == found
    del told["contexts"][0]["recorders"]
    assert DomainSnapshot.from_dict(told).contexts[0].recorders == ()
