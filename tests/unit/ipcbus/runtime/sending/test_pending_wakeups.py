"""When a WAKEUP may come: after the refusal, once, and never not at all."""

from __future__ import annotations

import time
from typing import Any, cast

import pytest

from ipcbus.errors import WouldBlock
from ipcbus.runtime.sending.pending_wakeups import GRACE_NS, PendingWakeups


class Session:
    """A session whose ring is full or not."""

    def __init__(self) -> None:
        self.full = True
        self.held: set[int] = set()
        self.asked: list[Any] = []

    def writer_waits(self) -> bool:
        for act in self.asked:
            act()
        return self.full


class Woken:
    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> None:
        self.count += 1


@pytest.fixture
def woken() -> Woken:
    return Woken()


@pytest.fixture
def owed(woken: Woken) -> PendingWakeups:
    return PendingWakeups(woken)


def expect(owed: PendingWakeups, session: Session) -> WouldBlock:
    error = WouldBlock("full")
    owed.expect(cast("Any", session), error)
    return error


def take_ready(owed: PendingWakeups, now_ns: int | None = None) -> tuple[set[Any], int | None]:
    done, again = owed.take_ready(time.monotonic_ns() if now_ns is None else now_ns)
    return set(done), again


def test_an_event_waits_for_room_and_for_its_exception(owed: PendingWakeups, woken: Woken) -> None:
    session = Session()
    error = expect(owed, session)
    assert take_ready(owed) == (set(), None)
    session.full = False
    done, again = take_ready(owed)
    assert done == set()
    assert again is not None
    assert woken.count == 0
    del error
    assert woken.count == 1
    assert take_ready(owed) == ({session}, None)
    assert take_ready(owed) == (set(), None)


def test_an_exception_that_goes_before_there_is_room_wakes_nobody(owed: PendingWakeups, woken: Woken) -> None:
    session = Session()
    expect(owed, session)
    assert woken.count == 0
    session.full = False
    assert take_ready(owed) == ({session}, None)


def test_all_exceptions_of_a_session_have_to_be_gone(owed: PendingWakeups, woken: Woken) -> None:
    session = Session()
    errors = [expect(owed, session) for _ in range(3)]
    session.full = False
    while errors:
        assert take_ready(owed)[0] == set()
        assert woken.count == 0
        del errors[0]
    assert woken.count == 1
    assert take_ready(owed)[0] == {session}


def test_a_kept_exception_counts_for_its_time_only(owed: PendingWakeups) -> None:
    session = Session()
    kept = expect(owed, session)
    session.full = False
    _, again = take_ready(owed)
    assert again is not None
    assert take_ready(owed, again - 1) == (set(), again)
    assert take_ready(owed, again) == ({session}, None)
    del kept


def test_a_refusal_while_the_driver_looks_is_not_lost(owed: PendingWakeups) -> None:
    session = Session()
    expect(owed, session)
    session.full = False

    def refused_again() -> None:
        # The driver has found room; now the ring is full again and another send is refused.
        session.asked.clear()
        expect(owed, session)

    session.asked.append(refused_again)
    take_ready(owed)
    session.full = False
    assert take_ready(owed)[0] == {session}


def test_an_exception_that_vanishes_while_the_driver_looks_is_seen_or_wakes(owed: PendingWakeups, woken: Woken) -> None:
    session = Session()
    errors = [expect(owed, session)]
    session.full = False
    session.asked.append(errors.clear)
    done, _ = take_ready(owed)
    assert done == {session} or woken.count == 1


def test_kept_exceptions_do_not_pile_up(owed: PendingWakeups, monkeypatch: pytest.MonkeyPatch) -> None:
    session = Session()
    now = 0

    def later() -> int:
        nonlocal now
        now += GRACE_NS // 10
        return now

    monkeypatch.setattr(time, "monotonic_ns", later)
    kept = [expect(owed, session) for _ in range(1000)]
    assert len(owed._raised[cast("Any", session)]) < 50
    assert len(kept) == 1000


def test_a_session_that_ended_is_owed_nothing(owed: PendingWakeups, woken: Woken) -> None:
    session = Session()
    error = expect(owed, session)
    session.full = False
    take_ready(owed)
    owed.forget(cast("Any", session))
    del error
    assert woken.count == 0
    assert take_ready(owed) == (set(), None)
