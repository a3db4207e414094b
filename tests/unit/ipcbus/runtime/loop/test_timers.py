"""The timers of a context in virtual time: what is due runs, and the next time is the earliest of all."""

from __future__ import annotations

import os
from itertools import pairwise
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast
from unittest.mock import Mock

import pytest

from ipcbus.config import ContextOptions
from ipcbus.resolution.local import object_names
from ipcbus.runtime.loop import timers
from ipcbus.runtime.loop.timerfd import FOREVER_NS
from ipcbus.runtime.loop.timers import SECOND_NS, Timers
from ringbuf import liveness, segment
from ringbuf.doorbell import NEWS, Doorbell

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

MS_NS = 1_000_000


class Source:
    """Notes what it is told."""

    def __init__(self, session: object) -> None:
        self._session = cast("Any", session)
        self.got: list[str] = []

    def _notify_receivers(self) -> None:
        self.got.append("receivers")

    def _notify_room(self) -> None:
        self.got.append("room")


class Context:
    """What the timers of a context look after."""

    def __init__(self, domain: str) -> None:
        self.name = f"ipcbus.{domain}.l"
        self.held, self.looked_at = segment.create(self.name, 4096), segment.open_fd(self.name, write=False)
        self.sources = [Source("full"), Source("other")]
        self.served: set[str] = set()
        self.again_ns: int | None = None
        self.receiving = Mock()
        self.receiving.check_losses.return_value = self.receiving.recover.return_value = FOREVER_NS
        self.receiving.channels.changes = 0
        self.sending = Mock()
        self.sending.evict_due.return_value = self.sending.flush_due.return_value = None
        self.sending.inform_due.return_value = self.sending.requests.turn.return_value = FOREVER_NS
        self.sending.control_channels.turn.return_value = self.receiving.channels.turn.return_value = FOREVER_NS
        self.sending.reclaim_slots.return_value = self.sending.drop_dead_clients.return_value = 0
        self.sending.control_channels.changes = 0
        session = Mock()
        session.show_activity.return_value = FOREVER_NS
        self.sending.sessions.return_value = [session]
        self.sending.local_clients.return_value = []
        self.receiving.sessions.return_value = []
        self.sending.receiver_locks.side_effect = lambda: [(self.looked_at, 0)]  # nobody holds it
        self.sending.pending_wakeups = SimpleNamespace(take_ready=lambda now_ns: (self.served, self.again_ns))
        self.network = Mock()
        self.network.steps.return_value = []
        self.network.due_ns = FOREVER_NS
        self.network.is_behind.return_value = False
        self.network.read_after_pause.side_effect = lambda now_ns: now_ns
        options = ContextOptions({"liveness_check_interval": 300, "resolution_scan_interval": 500})
        self.timers = Timers(domain, 1, options, self._sources)
        self.event_loop = Mock()
        self.event_loop.has_input.return_value = False
        self.timers.attach(self.event_loop, self.receiving, self.sending, Mock(), self.network)

    def _sources(self) -> Iterable[Any]:
        return self.sources

    def run(self, now_ns: int) -> int:
        return self.timers.run_timers(now_ns)

    def close(self) -> None:
        os.close(self.held)
        os.close(self.looked_at)
        segment.remove(self.name)

    def take(self) -> list[list[str]]:
        got = [source.got for source in self.sources]
        for source in self.sources:
            source.got = []
        return got


@pytest.fixture
def context(domain: str) -> Iterator[Context]:
    made = Context(domain)
    yield made
    made.close()


def test_each_task_runs_on_the_grid_of_its_interval(context: Context) -> None:
    assert context.run(1_010 * MS_NS) == 1_200 * MS_NS  # 4 times 300 ms
    assert context.receiving.check.call_count == context.receiving.look_for_contexts.call_count == 1
    assert context.run(1_200 * MS_NS) == 1_500 * MS_NS
    assert (context.receiving.check.call_count, context.receiving.look_for_contexts.call_count) == (2, 1)
    context.run(1_500 * MS_NS)  # one turn serves both
    assert (context.receiving.check.call_count, context.receiving.look_for_contexts.call_count) == (3, 2)


def test_tasks_run_early_in_a_turn_that_comes_shortly_before(context: Context) -> None:
    context.run(1_010 * MS_NS)
    assert context.timers.early_ns == 1_170 * MS_NS  # 30 ms before 1,200
    assert context.run(1_169 * MS_NS) == 1_200 * MS_NS
    assert context.receiving.check.call_count == 1
    assert context.run(1_170 * MS_NS) == 1_500 * MS_NS
    assert context.receiving.check.call_count == 2
    # What the network has on the same grid comes with it.
    assert [call.kwargs["early"] for call in context.network.steps.call_args_list] == [True, False, True]
    context.run(1_470 * MS_NS)
    assert (context.receiving.check.call_count, context.receiving.look_for_contexts.call_count) == (3, 2)


def test_a_message_that_comes_is_delivered_before_the_tasks_that_are_left(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timers, "_SLICE_NS", 0)
    context.network.steps.return_value = [context.network.one, context.network.other]
    context.event_loop.has_input.return_value = True
    done = [
        *(context.sending.reclaim_slots, context.sending.drop_dead_clients),
        *(context.receiving.check, context.sending.control_channels.check),
        *(context.receiving.look_for_contexts, context.receiving.retry),
        *(context.receiving.look_for_sources, context.network.show_counters),
        *(context.network.one, context.network.other, context.sending.inform_due, context.receiving.check_losses),
    ]
    calls: list[list[int]] = []
    while context.run(1_010 * MS_NS) == 0:
        assert len(calls) < 100
        assert context.sending.flush_due.call_count == len(calls) + 1  # a batch that is due does not wait for all tasks
        calls.append([each.call_count for each in done])
    calls.append([each.call_count for each in done])
    assert calls[-1] == [1] * len(done)  # each once
    assert all(sum(later) - sum(before) <= 1 for before, later in pairwise(calls))  # and none beside another
    assert context.network.steps.call_count == 1
    context.event_loop.has_input.return_value = False
    context.run(1_200 * MS_NS)
    assert context.receiving.check.call_count == context.receiving.check_losses.call_count == 2


def test_short_tasks_run_together_before_a_message_is_looked_for(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timers, "_SLICE_NS", 1 << 62)
    context.event_loop.has_input.return_value = True
    assert context.run(1_010 * MS_NS) == 1_200 * MS_NS
    assert context.receiving.check_losses.call_count == 1


def test_after_a_signal_all_tasks_are_due_again(context: Context) -> None:
    context.receiving.check.side_effect = KeyboardInterrupt
    with pytest.raises(KeyboardInterrupt):
        context.run(1_010 * MS_NS)
    context.receiving.check.side_effect = None
    context.run(1_010 * MS_NS)
    assert (context.sending.reclaim_slots.call_count, context.receiving.check.call_count) == (2, 2)
    assert context.receiving.check_losses.call_count == 1


def test_the_loop_watches_the_words_of_control_channels_when_they_change(context: Context) -> None:
    context.sending.control_channels.words.return_value = ["a"]
    context.receiving.channels.words.return_value = ["b"]
    context.run(SECOND_NS)
    context.event_loop.watch_words.assert_not_called()
    context.receiving.channels.changes = 1
    context.run(SECOND_NS)
    context.run(SECOND_NS)
    context.event_loop.watch_words.assert_called_once_with(["a", "b"])


@pytest.mark.parametrize("waits_ns", [{"evict_due": 7}, {"flush_due": 7}, {"inform_due": SECOND_NS + 7}])
def test_the_earliest_of_what_waits_says_when_to_come_again(context: Context, waits_ns: dict[str, int]) -> None:
    context.run(SECOND_NS)
    for name, value in waits_ns.items():
        getattr(context.sending, name).return_value = value
    assert context.run(SECOND_NS) == SECOND_NS + 7


def test_sources_are_notified_once_after_each_change_at_a_peer(context: Context) -> None:
    context.run(SECOND_NS)
    context.take()
    context.run(SECOND_NS + 1)
    assert context.take() == [[], []]
    context.timers.peers_changed()
    context.run(SECOND_NS + 2)
    assert context.take() == [["receivers"], ["receivers"]]
    context.run(SECOND_NS + 3)
    assert context.take() == [[], []]


def test_room_goes_to_the_sources_of_its_session_and_a_kept_exception_delays_it_only(context: Context) -> None:
    context.again_ns = SECOND_NS + 50
    assert context.run(SECOND_NS) == SECOND_NS + 50
    context.take()
    context.served, context.again_ns = {"full"}, None
    context.run(SECOND_NS + 49)
    assert context.take() == [[], []]
    context.run(SECOND_NS + 50)
    assert context.take() == [["receivers", "room"], ["receivers"]]


def test_a_change_of_a_registry_has_the_registries_read_at_once(context: Context) -> None:
    context.run(SECOND_NS)
    context.run(SECOND_NS + 1)
    assert context.receiving.look_for_contexts.call_count == 1
    context.timers.registry_changed()
    context.run(SECOND_NS + 2)
    assert context.receiving.look_for_contexts.call_count == 2


def test_while_only_the_liveness_check_is_due_a_look_at_locks_stands_for_it(context: Context) -> None:
    due_ns = context.run(1500 * MS_NS)
    found = context.timers.lives(due_ns)
    assert found is not None
    assert (due_ns, found.every_ns, found.until_ns) == (1800 * MS_NS, 300 * MS_NS, 2000 * MS_NS)
    assert not found.locks.all_held()
    assert context.timers.lives(due_ns - 1) is None
    context.sending.local_clients.return_value = [7]
    context.network.peers.owner_lock.return_value = None  # its registry is not known
    assert context.timers.lives(due_ns) is None
    context.sending.local_clients.return_value = []
    assert context.timers.lives(context.run(1950 * MS_NS)) is None  # all tasks are due at 2 s


def _liveness_runs(context: Context) -> tuple[int, int, int]:
    counted = (context.sending.reclaim_slots, context.receiving.check, context.sending.control_channels.check)
    assert len({each.call_count for each in counted}) == 1
    return (
        counted[0].call_count,
        context.receiving.look_for_contexts.call_count,
        context.receiving.check_losses.call_count,
    )


def test_dead_peers_are_looked_for_once_a_second_and_as_soon_as_one_does_not_hold_its_lock(context: Context) -> None:
    assert liveness.take(context.held, 0)
    context.run(1_010 * MS_NS)
    assert _liveness_runs(context) == (1, 1, 1)
    assert context.run(1_200 * MS_NS) == 1_500 * MS_NS
    assert _liveness_runs(context) == (1, 1, 2)  # all live
    context.run(1_500 * MS_NS)  # beside another task nothing is saved
    assert _liveness_runs(context) == (2, 2, 3)
    context.run(1_800 * MS_NS)
    context.run(2_000 * MS_NS)
    assert _liveness_runs(context) == (2, 3, 5)
    liveness.release(context.held, 0)
    context.run(2_100 * MS_NS)
    assert _liveness_runs(context) == (3, 3, 6)
    context.run(2_400 * MS_NS)  # it is still to be let go
    assert _liveness_runs(context) == (4, 3, 7)


def test_the_lock_of_a_receiver_that_has_just_joined_is_looked_at(context: Context) -> None:
    context.sending.receiver_locks.side_effect = list
    for now_ms in (1_510, 1_800, 2_000, 2_100):
        context.run(now_ms * MS_NS)
    assert _liveness_runs(context)[0] == 1
    context.sending.receiver_locks.side_effect = lambda: [(context.looked_at, 0)]
    context.timers.peers_changed()
    context.run(2_200 * MS_NS)
    context.run(2_400 * MS_NS)  # the newcomer has died
    assert _liveness_runs(context)[0] == 2


def test_dead_peers_are_looked_for_once_a_second_though_all_locks_are_held(context: Context) -> None:
    assert liveness.take(context.held, 0)
    ran_ns = 0
    for now_ms in range(10_200, 40_000, 300):  # the other tasks run between these times
        before = _liveness_runs(context)[0]
        context.run(now_ms * MS_NS)
        if _liveness_runs(context)[0] > before:
            assert ran_ns == 0 or now_ms * MS_NS - ran_ns <= 1_200 * MS_NS
            ran_ns = now_ms * MS_NS
        for beside_ms in (now_ms + 50, now_ms + 200):
            context.run(beside_ms * MS_NS)
    assert ran_ns


def test_an_announcement_rings_each_other_context_of_the_domain(domain: str, context: Context) -> None:
    bells = [
        Doorbell(object_names.bell(name, number)) for name, number in ((domain, 1), (domain, 2), (domain + "x", 3))
    ]
    try:
        context.timers.announce()
        assert [bell.drain() for bell in bells] == [b"", NEWS, b""]
    finally:
        for bell in bells:
            bell.close()


@pytest.mark.parametrize("quiet", [False, True])
def test_calls_that_come_over_the_network_are_handled_right_after_the_read(context: Context, quiet: bool) -> None:
    channels, looks = context.sending.control_channels, []
    context.event_loop.quiet, channels.is_called, channels.has_work = quiet, False, False
    context.receiving.channels.is_readable.return_value = False

    def read(*, briefly: bool) -> int:
        assert briefly
        looks.append(channels.looks_after_read)
        channels.is_called = True
        return 7

    context.network.read.side_effect = read
    assert context.timers.read_network() == 7
    assert (looks, channels.looks_after_read) == ([not quiet], False)
    assert channels.look.call_count == (not quiet)  # a thread of the application calls back in a split context
    context.network.read.side_effect = KeyboardInterrupt
    with pytest.raises(KeyboardInterrupt):
        context.timers.read_network()
    assert not channels.looks_after_read


def test_without_a_call_over_the_network_a_read_looks_at_no_channel(context: Context) -> None:
    context.event_loop.quiet = context.sending.control_channels.is_called = False
    context.timers.read_network()
    assert not context.sending.control_channels.look.called
