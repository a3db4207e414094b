"""A send without room: it waits, or it is refused, and never does the wrong one of both."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast
from unittest.mock import Mock

import pytest

from ipcbus import MessageTooLarge, WouldBlock
from ipcbus.runtime.sending.backpressure import Backpressure
from ipcbus.wire.wire_layout import TRANSPORT_LBTIPC, TRANSPORT_LBTRU

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

NEED = 100


class Ring:
    """A ring of 1000 bytes without room, until a wait for room brings some."""

    capacity = 1000

    def __init__(self) -> None:
        self.room = False
        self.comes: Callable[[], bool] = lambda: True
        self.event_wanted = True
        self.waits = self.refused = 0
        self.blocked_ns: list[int] = []

    def has_room(self, need: int) -> bool:
        return self.room

    def want_event(self, need: int) -> bool:
        return self.event_wanted

    def count_would_block(self) -> None:
        self.refused += 1

    def wait_room(self, need: int, spins: int, timeout_ns: int) -> bool:
        assert timeout_ns > 0
        self.waits += 1
        self.room = self.comes()
        return self.room

    def count_blocked(self, blocked_ns: int) -> None:
        self.blocked_ns.append(blocked_ns)


class Sending:
    """The sending sessions of a context, and one session that is full."""

    def __init__(self) -> None:
        self.ring = Ring()
        self.inside = self.driven = False
        self.pending_wakeups = Mock()
        self.steps: list[str] = []
        self.liveness_ns = 1 << 62
        self.source: Any = SimpleNamespace(topic="t", closed=False)
        self.session: Any = Mock(evictor=None, source_string="LBT-IPC:1")
        self.session.channel.writer = self.ring
        self.session.batch = SimpleNamespace(damaged=False, gate=0, flush=lambda: self.steps.append("flush"))
        self.session.plan = SimpleNamespace(transport=TRANSPORT_LBTIPC, source_paced=False, checksums=False)
        self.session.blocked = self._blocked
        self.policy = Backpressure(cast("Any", self), self.session)

    @contextlib.contextmanager
    def _blocked(self, begin_ns: int) -> Iterator[None]:
        self.steps.append("blocked")
        yield

    def inside_callback(self) -> bool:
        return self.inside

    def read_for_undriven(self, session: object) -> bool:
        return False

    def evict_slow_receivers(self, session: object, need: int | None = None) -> None:
        self.steps.append("look for slow receivers")

    def slowest(self, session: object) -> str:
        return "pid 5"

    def must_drive(self) -> bool:
        return self.driven

    def drive_briefly(self) -> None:
        self.steps.append("drive")

    def full(self, *, block: bool = True) -> bool:
        return self.policy.ring_full(NEED, block, self.source)


@pytest.fixture
def sending() -> Sending:
    return Sending()


def test_with_room_a_send_neither_waits_nor_is_refused(sending: Sending) -> None:
    sending.ring.room = True
    assert not sending.full(block=False)
    assert not sending.full()
    assert sending.steps == []


@pytest.mark.parametrize(
    ("inside", "block", "cure"), [(False, False, "or let the send block"), (True, True, "callback")]
)
def test_a_send_that_must_not_wait_is_refused_and_its_wakeup_expected(
    sending: Sending, inside: bool, block: bool, cure: str
) -> None:
    sending.inside = inside
    with pytest.raises(WouldBlock, match=rf"'t'.* LBT-IPC:1 .*{cure}.*pid 5") as caught:
        sending.full(block=block)
    sending.pending_wakeups.expect.assert_called_once_with(sending.session, caught.value)
    assert (sending.ring.refused, sending.ring.waits) == (1, 0)
    assert sending.steps == ["look for slow receivers"]


def test_room_that_comes_during_the_refusal_is_used(sending: Sending) -> None:
    sending.ring.event_wanted = False
    assert not sending.full(block=False)
    assert sending.ring.refused == 0


def test_a_blocked_send_waits_for_room_and_drives_the_context_if_no_other_thread_does(sending: Sending) -> None:
    sending.driven = True
    sending.ring.comes = lambda: sending.ring.waits == 3
    assert sending.full()
    assert sending.steps == ["blocked", "drive", "drive"]
    assert len(sending.ring.blocked_ns) == 1
    sending.driven = False
    sending.ring.room, sending.ring.waits = False, 0
    assert sending.full()
    assert sending.steps[3:] == ["blocked"]


@pytest.mark.parametrize("ends", ["source", "session"])
def test_the_wait_ends_with_its_source_or_session(sending: Sending, ends: str) -> None:
    def close() -> bool:
        if ends == "source":
            sending.source.closed = True
        else:
            sending.session.batch.gate = 1
        return False

    sending.ring.comes = close
    assert sending.full()
    assert sending.ring.waits == 1


def test_the_time_of_a_wait_that_a_signal_ends_is_counted(sending: Sending) -> None:
    def interrupt() -> bool:
        raise KeyboardInterrupt

    sending.ring.comes = interrupt
    with pytest.raises(KeyboardInterrupt):
        sending.full()
    assert len(sending.ring.blocked_ns) == 1


def test_a_message_in_pieces_that_never_fits_is_refused_and_one_that_may_fit_flushes_the_batch_first(
    sending: Sending,
) -> None:
    def whole(need: int, *, block: bool = False) -> bool:
        return sending.policy.begin_fragments(need, block, sending.source)

    with pytest.raises(MessageTooLarge, match="window of 1000"):
        whole(1000)
    with pytest.raises(MessageTooLarge, match="raise transport_lbtipc_transmission_window_size"):
        whole(1000)
    sending.session.plan.transport = TRANSPORT_LBTRU
    with pytest.raises(MessageTooLarge, match="without a wait: send it in parts, or let the send block"):
        whole(1000)
    assert not whole(1000, block=True)  # it waits, piece by piece
    with pytest.raises(WouldBlock):
        whole(NEED)
    assert sending.steps == ["flush", "look for slow receivers"]
    sending.session.plan.source_paced = True
    assert whole(1000)


def test_a_reservation_of_another_thread_refuses_a_send_that_must_not_wait(sending: Sending) -> None:
    with pytest.raises(WouldBlock, match="LBT-IPC:1"):
        sending.policy.wait_for_release(False, lambda: True)
    sending.inside = True
    with pytest.raises(WouldBlock, match="LBT-IPC:1"):
        sending.policy.wait_for_release(True, lambda: True)


@pytest.mark.parametrize("is_shut", [False, True])
def test_a_send_sleeps_only_while_there_is_something_to_wait_for(sending: Sending, is_shut: bool) -> None:
    sending.policy._free = Mock(__enter__=Mock(), __exit__=Mock(return_value=None))
    sending.policy.wait_for_release(True, lambda: is_shut)
    assert sending.policy._free.wait.call_count == is_shut
