"""Who drives a context: one at a time, the urgent first, and nobody is kept waiting for ever."""

from __future__ import annotations

import os
import select
import threading
import time
from typing import TYPE_CHECKING

import pytest

import ipcbus
from ipcbus.resolution.local import object_names
from ipcbus.runtime.loop.event_loop import EventLoop
from ipcbus.runtime.loop.loop_tasks import Lives
from ipcbus.runtime.loop.timerfd import FOREVER_NS
from ringbuf import liveness, segment
from ringbuf.doorbell import DATA, NEWS, Doorbell, DoorbellRinger
from ringbuf.held_locks import HeldLocks
from tests.kit.bus import GIVE_UP_S

if TYPE_CHECKING:
    from collections.abc import Iterator

SECOND_NS = 1_000_000_000


class Work:
    """The driver's other work, noted."""

    def __init__(self) -> None:
        self.every_ns = SECOND_NS
        self.early_ns = FOREVER_NS
        self.tasks_left = False
        self.timers_ran = threading.Semaphore(0)
        self.news_came = threading.Event()
        self.told = 0
        self.delivered_calls = 0
        self.waiting = self.packets = False
        self.found: Lives | None = None

    def attend(self) -> bool:
        return False

    def peers_changed(self) -> None: ...

    def registry_changed(self) -> None:
        self.news_came.set()

    def take_event_count(self) -> int:
        told, self.told = self.told, 0
        return told

    def has_waiters(self) -> bool:
        return self.waiting

    def delivered(self) -> None:
        self.delivered_calls += 1

    def look(self) -> None:
        pass

    def arm(self, *, sleeps: bool) -> bool:
        del sleeps
        return True

    def first_fetch(self) -> None:
        pass

    def has_packets(self) -> bool:
        return self.packets

    def run_timers(self, now_ns: int) -> int:
        self.timers_ran.release()
        return now_ns + self.every_ns

    def lives(self, due_ns: int) -> Lives | None:
        del due_ns
        return self.found


@pytest.fixture
def work() -> Work:
    return Work()


@pytest.fixture
def bell(domain: str) -> Iterator[Doorbell]:
    made = Doorbell(object_names.bell(domain, 1))
    yield made
    made.close()


@pytest.fixture
def event_loop(bell: Doorbell, work: Work) -> Iterator[EventLoop]:
    made = EventLoop(bell, work, spins=False, linger=1)
    yield made
    made.stop()
    made.close()


@pytest.fixture
def running(event_loop: EventLoop) -> Iterator[EventLoop]:
    thread = threading.Thread(target=event_loop.run)
    thread.start()
    yield event_loop
    event_loop.stop()
    thread.join(GIVE_UP_S)
    assert not thread.is_alive()


def test_the_own_thread_looks_at_locks_instead_of_running_timers(
    domain: str, event_loop: EventLoop, work: Work
) -> None:
    work.every_ns = 1_000_000
    name = f"ipcbus.{domain}.l"
    holder, looking = segment.create(name, 4096), segment.open_fd(name, write=False)
    assert liveness.take(holder, 0)
    work.found = Lives(HeldLocks([(looking, 0)]), 1_000_000, time.monotonic_ns() + 3600 * 10**9)
    rest = event_loop.turn(None)
    assert rest is not None
    releasing = threading.Timer(0.02, os.close, (holder,))
    releasing.start()
    rest()
    assert not work.found.locks.all_held()
    releasing.join()
    event_loop.rouse()
    os.close(looking)
    segment.remove(name)


def test_what_hurries_while_tasks_are_left_has_them_all_run_again(event_loop: EventLoop, work: Work) -> None:
    with event_loop.driver_lock():
        work.every_ns, work.tasks_left = -SECOND_NS, True
        event_loop.poll()  # a message comes, so tasks are left
        work.every_ns = 3600 * SECOND_NS
        event_loop.hurry()  # for a task of those that have been run already
        event_loop.poll()
        work.tasks_left = False
        runs = work.timers_ran._value
        event_loop.poll()
        assert work.timers_ran._value == runs + 1
        event_loop.poll()
        assert work.timers_ran._value == runs + 1


def test_packets_are_input(event_loop: EventLoop, work: Work) -> None:
    assert not event_loop.has_input()
    work.packets = True
    assert event_loop.has_input()
    event_loop.quiet = True  # a thread of the application reads
    assert not event_loop.has_input()


def test_records_in_a_ring_are_input(domain: str) -> None:
    with (
        ipcbus.Context(domain=domain, operational_mode="sequential") as sending,
        ipcbus.Context(domain=domain, operational_mode="sequential") as receiving,
    ):
        source, receiver = sending.source("t"), receiving.receiver("t")
        receiver.wait_for_sources(1, GIVE_UP_S)
        while receiver.receive(0) is not None:
            pass
        assert not receiving._event_loop.has_input()
        source.send(b"x", flush=True)
        assert receiving._event_loop.has_input()


def test_the_own_thread_leaves_the_rings_to_a_thread_that_takes_long_messages(event_loop: EventLoop) -> None:
    pump, event_loop._own_thread = event_loop.pump, threading.get_ident()
    assert pump.take()
    pump.forget_guest()
    assert not event_loop._must_stop()
    pump.note_guest()
    assert event_loop._must_stop()
    event_loop._own_thread = 0  # a guest goes on
    assert not event_loop._must_stop()
    pump.give_back()


def test_timers_run_when_they_are_due(event_loop: EventLoop, work: Work) -> None:
    work.every_ns = 1_000_000
    event_loop.drive(5_000_000, once=False)
    assert work.timers_ran.acquire(timeout=0)
    assert work.timers_ran.acquire(timeout=0)


def test_timers_run_early_in_a_context_that_is_awake(event_loop: EventLoop, work: Work) -> None:
    event_loop.poll()
    assert work.timers_ran.acquire(timeout=0)
    event_loop.poll()
    assert not work.timers_ran.acquire(timeout=0)
    work.early_ns = time.monotonic_ns()
    event_loop.poll()
    assert work.timers_ran.acquire(timeout=0)


def test_driving_ends_with_its_time(event_loop: EventLoop) -> None:
    begin = time.monotonic_ns()
    assert event_loop.drive(2_000_000, once=True) == 0
    assert time.monotonic_ns() - begin >= 2_000_000
    assert event_loop.drive(0, once=True) == 0


def test_events_count_as_something_delivered(event_loop: EventLoop, work: Work) -> None:
    work.told = 3
    assert event_loop.drive(FOREVER_NS, once=True) == 3
    work.told = 2
    assert event_loop.poll() == 2


def test_who_waits_elsewhere_is_told_of_what_came(event_loop: EventLoop, work: Work) -> None:
    work.told = 1
    event_loop.drive(0, once=False)
    assert work.delivered_calls == 0
    work.told, work.waiting = 1, True
    event_loop.drive(0, once=False)
    assert work.delivered_calls == 1


def test_who_begins_to_wait_during_a_turn_is_told_of_what_it_brought(event_loop: EventLoop, work: Work) -> None:
    real = work.take_event_count

    def begins_to_wait() -> int:
        work.waiting = True
        return real()

    work.told = 1
    work.take_event_count = begins_to_wait  # type: ignore[method-assign]
    event_loop.drive(0, once=False)
    assert work.delivered_calls == 1


def test_news_wake_the_sleeping_thread(domain: str, running: EventLoop, work: Work) -> None:
    rope = DoorbellRinger(object_names.bell(domain, 1))
    rope.ring(NEWS)
    assert work.news_came.wait(GIVE_UP_S)
    rope.ring(DATA)
    rope.close()


def test_the_wheel_belongs_to_one_thread_at_a_time(running: EventLoop) -> None:
    inside = 0
    most = 0

    def enter() -> None:
        nonlocal inside, most
        for _ in range(50):
            with running.driver_lock():
                inside += 1
                most = max(most, inside)
                inside -= 1

    threads = [threading.Thread(target=enter) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(GIVE_UP_S)
    assert not any(thread.is_alive() for thread in threads)
    assert most == 1


def test_who_has_the_wheel_may_take_it_again(running: EventLoop) -> None:
    with running.driver_lock(), running.driver_lock():
        assert running.is_driver()
    assert not running.is_driver()


def test_the_wheel_is_free_again_after_an_error(running: EventLoop) -> None:
    with pytest.raises(ZeroDivisionError), running.driver_lock():
        _ = 1 / 0
    with running.driver_lock():
        pass


def test_a_guest_gets_the_wheel_from_the_sleeping_thread(running: EventLoop) -> None:
    assert running.take_as_guest(lambda: False, GIVE_UP_S)
    assert running.is_driver()
    running.give_back()


def test_a_guest_that_need_not_drive_any_more_does_not(running: EventLoop) -> None:
    assert not running.take_as_guest(lambda: True, GIVE_UP_S)
    assert not running.is_driver()


def test_a_guest_waits_no_longer_than_it_says(running: EventLoop) -> None:
    holding, go_on = threading.Event(), threading.Event()

    def hold() -> None:
        with running.driver_lock():
            holding.set()
            go_on.wait(GIVE_UP_S)

    thread = threading.Thread(target=hold)
    thread.start()
    assert holding.wait(GIVE_UP_S)
    assert not running.take_as_guest(lambda: False, 0.01)
    assert not running.take_as_guest(lambda: False, 0)
    go_on.set()
    thread.join(GIVE_UP_S)


def test_an_urgent_change_gets_the_wheel_from_guests_that_come_again_and_again(running: EventLoop) -> None:
    stop = threading.Event()

    def come_again() -> None:
        while not stop.is_set():
            if running.take_as_guest(stop.is_set, GIVE_UP_S):
                running.drive(SECOND_NS, once=True)
                running.give_back()

    guests = [threading.Thread(target=come_again) for _ in range(2)]
    for guest in guests:
        guest.start()
    for _ in range(200):
        with running.driver_lock():
            pass
    stop.set()
    running.interrupt()
    running.notify()
    for guest in guests:
        guest.join(GIVE_UP_S)
    assert not any(guest.is_alive() for guest in guests)


def test_changes_one_after_the_other_do_not_keep_the_thread_from_driving(running: EventLoop, work: Work) -> None:
    work.every_ns = 1_000_000
    running.hurry()
    running.kick()
    deadline = time.monotonic() + GIVE_UP_S
    seen = 0
    while seen < 5:
        assert time.monotonic() < deadline
        with running.driver_lock():
            pass
        seen += work.timers_ran.acquire(timeout=0.0005)


def test_only_one_thread_drives_in_sequential_mode(event_loop: EventLoop) -> None:
    raised: list[BaseException] = []

    def intrude() -> None:
        try:
            with event_loop.drive_alone():
                pass
        except ipcbus.IpcBusError as error:
            raised.append(error)

    with event_loop.drive_alone():
        thread = threading.Thread(target=intrude)
        thread.start()
        thread.join(GIVE_UP_S)
        with pytest.raises(ipcbus.IpcBusError, match="inside"), event_loop.drive_alone():
            pass
    assert [type(error) for error in raised] == [ipcbus.WrongThread]
    with event_loop.drive_alone():
        pass


def test_the_descriptor_is_readable_for_a_kick_the_bell_and_a_timer(
    domain: str, event_loop: EventLoop, work: Work
) -> None:
    def readable(timeout: float) -> bool:
        return bool(select.select([event_loop.fileno()], [], [], timeout)[0])

    def clear() -> None:
        while readable(0):
            event_loop.poll()
            event_loop.rearm()

    clear()
    event_loop.kick()
    assert readable(GIVE_UP_S)
    clear()
    rope = DoorbellRinger(object_names.bell(domain, 1))
    rope.ring(NEWS)
    rope.close()
    assert readable(GIVE_UP_S)
    clear()
    assert work.news_came.is_set()
    work.every_ns = 1_000_000
    event_loop.hurry()
    event_loop.poll()
    event_loop.rearm()
    assert readable(GIVE_UP_S)


def test_closing_twice_is_fine_and_a_closed_driver_can_be_kicked(event_loop: EventLoop) -> None:
    event_loop.fileno()
    event_loop.stop()
    event_loop.close()
    event_loop.close()
    event_loop.kick()
    event_loop.interrupt()
    with event_loop.driver_lock():
        pass
