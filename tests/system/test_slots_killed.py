"""`kill -9` between any two steps of claiming, joining, leaving and reclaiming a slot."""

from __future__ import annotations

import itertools
import os
import signal
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from ringbuf import layout, liveness, segment
from ringbuf.channel import OwnedChannel
from ringbuf.shared_words import SharedWords
from ringbuf.slots import SlotTable
from tests.rings.channels import (
    PARKED,
    WINDOW,
    control_name,
    join,
    joined,
    owned,
    read_all,
    ring_name,
    shape,
    slots_of,
)
from tests.rings.children import Child, Children, Flag, Notes, kill_myself

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ringbuf.channel import JoinedChannel

JOINED_WORD = layout.CONTROL_HEADER.itemsize
KEEPER = 0
VICTIM = 1

CLAIM = ["claim: lock taken", "claim: joining", "claim: introduced"]
CLAIM_DEAD = ["claim: lock taken", "reset: bits cleared", "claim: joining", "claim: introduced"]
JOIN = ["join: position shown", "join: active", "join: position final"]
EVICTED = ["evict: state"]
LEAVE = ["reset: bits cleared", "leave: reset", "leave: lock released"]
RECLAIM = ["reclaim: lock taken", "reset: bits cleared", "reclaim: reset"]


class Steps:
    """A checkpoint that does something at the step of one number, and notes its name."""

    def __init__(self, at: int, do: Callable[[], None], notes: Notes) -> None:
        self.left, self.do, self.notes = at, do, notes

    def __call__(self, step: str) -> None:
        self.left -= 1
        if self.left < 0:
            self.notes.write(step)
            self.do()


class Stage:
    """A ring with a live reader, and room for one more that has bad luck."""

    def __init__(self, domain: str, opened: ExitStack) -> None:
        self.domain = domain
        self.channel = opened.enter_context(owned(domain, slots_max=2))
        self.keeper = opened.enter_context(joined(domain, 1))
        self.children = opened.enter_context(Children())
        self.notes = opened.enter_context(Notes())
        self.number = 0
        assert self.keeper.index == KEEPER

    def write(self) -> bool:
        done = self.channel.writer.write(self.number.to_bytes(100, "little"))
        self.number += done
        return done

    def kill_everywhere(
        self, work: Callable[[str, Callable[[str], None]], None], check: Callable[[], None]
    ) -> list[str]:
        """Lets children die at the first step of `work`, the second, and so on; the names of the steps."""
        reached: list[str] = []
        for at in itertools.count():
            child = self.children.run(work, self.domain, Steps(at, kill_myself, self.notes))
            status = child.wait()
            check()
            if status == 0:
                assert self.notes.lines() == []
                child.result()
                return reached
            assert status == -signal.SIGKILL
            reached += self.notes.lines()
        raise AssertionError("the steps have no end")

    def goes_on(self) -> None:
        """The keeper is untouched, the writer gets on, and the slot can be taken again."""
        slot = slots_of(self.channel)[KEEPER]
        assert (slot["state"], slot["context_id"], slot["generation"]) == (layout.SLOT_ACTIVE, 1, 1)
        assert KEEPER not in self.channel.slots.reclaim()
        assert not liveness.held_by_other(self.channel.fd, VICTIM + 1)
        assert slots_of(self.channel)[VICTIM]["state"] == layout.SLOT_FREE
        assert self._bits() == 0
        self._keeper_reads_three_rings()
        self.taken_again()
        assert self.channel.slots.reclaim() == []

    def taken_again(self) -> None:
        """A new reader gets the slot and what is sent from then on."""
        assert self.keeper.slots.active_mask() in (0b01, 0b11)
        with joined(self.domain, 3) as newcomer:
            assert newcomer.index == VICTIM
            assert slots_of(self.channel)[VICTIM]["context_id"] == 3
            assert self._bits() == 0
            first = self.number
            while not self.write():
                read_all(self.keeper)
            assert [int.from_bytes(body, "little") for body in read_all(newcomer)] == [first]
        self._keeper_reads_three_rings()

    def _bits(self) -> int:
        words = SharedWords(self.channel.control)
        return (words.load64(PARKED) | words.load64(JOINED_WORD)) & 1 << VICTIM

    def _keeper_reads_three_rings(self) -> None:
        bodies = read_all(self.keeper)
        for _ in range(3 * WINDOW // 100):
            if not self.write():
                bodies += read_all(self.keeper)
                assert self.write()
        bodies += read_all(self.keeper)
        numbers = [int.from_bytes(body, "little") for body in bodies]
        assert numbers == list(range(self.number - len(numbers), self.number))


@pytest.fixture
def stage(domain: str) -> Iterator[Stage]:
    """A fresh stage."""
    with ExitStack() as opened:
        yield Stage(domain, opened)


def joins(domain: str, checkpoint: Callable[[str], None]) -> None:
    """Claims a slot and joins."""
    join(domain, 2, checkpoint)


def joins_and_leaves(domain: str, checkpoint: Callable[[str], None]) -> None:
    """Leaves after all that a reader does; steps count from the leaving on."""
    late: list[Callable[[str], None]] = []
    channel = join(domain, 2, lambda step: late[0](step) if late else None)
    channel.reader.arm(True)
    SharedWords(channel.control).or64(JOINED_WORD, 1 << channel.index)
    late.append(checkpoint)
    channel.leave()


def is_evicted_and_leaves(domain: str, checkpoint: Callable[[str], None]) -> None:
    """Is evicted as the writer does it; steps count from there on."""
    late: list[Callable[[str], None]] = []
    channel = join(domain, 2, lambda step: late[0](step) if late else None)
    channel.reader.arm(True)
    SharedWords(channel.control).or64(JOINED_WORD, 1 << channel.index)
    late.append(checkpoint)
    assert channel.slots.evict(channel.index, channel.slots.generation(channel.index))
    channel.reader.show()
    channel.leave()


def dies_evicted(domain: str) -> None:
    """Is killed as an evicted reader that has not noticed."""
    channel = join(domain, 9)
    channel.reader.arm(True)
    channel.slots.evict(channel.index, channel.slots.generation(channel.index))
    kill_myself()


def reclaims(domain: str, checkpoint: Callable[[str], None]) -> None:
    """Reclaims, as another process than the writer's."""
    fd = segment.open_fd(control_name(domain), write=True)
    SlotTable(segment.map_fd(fd, write=True), fd, checkpoint).reclaim()


def dies_while_reading(domain: str) -> None:
    """Is killed as an active reader that sleeps."""
    channel = join(domain, 9)
    channel.reader.arm(True)
    SharedWords(channel.control).or64(JOINED_WORD, 1 << channel.index)
    kill_myself()


def test_kill_between_any_two_steps_of_claiming_and_joining(stage: Stage) -> None:
    assert stage.kill_everywhere(joins, stage.goes_on) == CLAIM + JOIN


def test_kill_between_any_two_steps_of_claiming_what_a_dead_reader_left(stage: Stage) -> None:
    def check() -> None:
        stage.goes_on()
        assert stage.children.run(dies_while_reading, stage.domain).wait() == -9

    check()
    assert stage.kill_everywhere(joins, check) == CLAIM_DEAD + JOIN
    stage.channel.slots.reclaim()


def test_next_reader_takes_what_a_killed_joiner_left_without_any_reclaiming(stage: Stage) -> None:
    seen = stage.kill_everywhere(joins, stage.taken_again)
    assert seen == CLAIM + JOIN


def test_kill_between_any_two_steps_of_leaving(stage: Stage) -> None:
    assert stage.kill_everywhere(joins_and_leaves, stage.goes_on) == LEAVE


def test_kill_between_any_two_steps_from_an_eviction_to_the_leaving(stage: Stage) -> None:
    assert stage.kill_everywhere(is_evicted_and_leaves, stage.goes_on) == EVICTED + LEAVE


def test_next_reader_takes_what_a_killed_evicted_reader_left(stage: Stage) -> None:
    def check() -> None:
        stage.goes_on()
        assert stage.children.run(dies_evicted, stage.domain).wait() == -9
        assert slots_of(stage.channel)[VICTIM]["state"] == layout.SLOT_EVICTED

    check()
    assert stage.kill_everywhere(joins, check) == CLAIM_DEAD + JOIN
    assert stage.channel.slots.reclaim() == [VICTIM]


@pytest.mark.parametrize("die", [dies_while_reading, dies_evicted])
def test_kill_between_any_two_steps_of_reclaiming(stage: Stage, die: Callable[[str], None]) -> None:
    def dead_again() -> None:
        stage.goes_on()
        assert stage.children.run(die, stage.domain).wait() == -9

    dead_again()
    assert stage.kill_everywhere(reclaims, dead_again) == RECLAIM
    stage.channel.slots.reclaim()


def test_next_reader_takes_what_a_killed_reclaimer_left(stage: Stage) -> None:
    def dead_again() -> None:
        stage.taken_again()
        assert stage.children.run(dies_while_reading, stage.domain).wait() == -9

    dead_again()
    assert stage.kill_everywhere(reclaims, dead_again) == RECLAIM
    stage.channel.slots.reclaim()


def stop_myself() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def wait_stopped(child: Child[None]) -> bool:
    """Waits until the child stops or ends; whether it stopped."""
    found = os.waitid(os.P_PID, child.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
    if found is None or found.si_code != os.CLD_STOPPED:
        return False
    # Taken, so that the next call waits for the next stop; an end is left for who waits for the child.
    os.waitid(os.P_PID, child.pid, os.WSTOPPED)
    return True


@pytest.mark.parametrize(
    ("work", "steps"),
    [(joins, CLAIM + JOIN), (joins_and_leaves, LEAVE[:2]), (is_evicted_and_leaves, EVICTED + LEAVE[:2])],
    ids=["joining", "leaving", "evicted"],
)
def test_reader_that_is_stopped_between_any_two_steps_keeps_its_slot(
    stage: Stage, work: Callable[[str, Callable[[str], None]], None], steps: list[str]
) -> None:
    for at, step in enumerate(steps):
        child = stage.children.run(work, stage.domain, Steps(at, stop_myself, stage.notes))
        while wait_stopped(child):
            if step in stage.notes.lines():
                assert liveness.held_by_other(stage.channel.fd, VICTIM + 1)
                assert stage.channel.slots.reclaim() == []
                assert stage.keeper.slots.reclaim() == []
            child.go_on()
        assert child.wait() == 0
        stage.goes_on()


def test_reclaimer_that_is_stopped_holds_up_neither_writer_nor_other_slots(stage: Stage) -> None:
    """It holds a dead reader's lock; whoever comes meanwhile takes another slot or is told that there is none."""
    assert stage.children.run(dies_while_reading, stage.domain).wait() == -9
    child = stage.children.run(reclaims, stage.domain, Steps(2, stop_myself, stage.notes))
    assert wait_stopped(child)
    assert stage.notes.lines() == ["reclaim: reset"]
    assert stage.channel.slots.reclaim() == []
    stage._keeper_reads_three_rings()
    child.go_on()
    assert child.wait() == 0
    stage.goes_on()


def blocked_writer(domain: str, ready: Flag, go: Flag, count: int) -> int:
    """Writes records without giving up; sleeps in slices as senders do."""
    with owned(domain, slots_max=2) as channel:
        ready.raise_it()
        go.wait()
        for number in range(count):
            while not channel.writer.write(number.to_bytes(100, "little")):
                channel.writer.wait_room(100, 10, 20_000_000)
        return channel.writer.head


@pytest.mark.parametrize("work", [joins, joins_and_leaves], ids=["joining", "leaving"])
@pytest.mark.parametrize("at", range(7))
def test_sleeping_writer_goes_on_when_a_killed_reader_is_reclaimed_by_a_third_process(
    domain: str, work: Callable[[str, Callable[[str], None]], None], at: int
) -> None:
    count = 5 * WINDOW // 100
    with Children() as children, Flag() as ready, Flag() as go, Notes() as notes:
        writer = children.run(blocked_writer, domain, ready, go, count)
        children.until(ready)
        children.run(work, domain, Steps(at, kill_myself, notes)).wait()
        go.raise_it()
        while not writer.ended():
            children.run(reclaims, domain, Steps(1000, kill_myself, notes)).wait()
        assert writer.result() == count * layout.round_up(layout.RECORD_HEADER + 100, layout.RECORD_ALIGN)


def test_owner_killed_between_its_objects_leaves_them_to_be_removed(domain: str) -> None:
    """What it left is no obstacle for the next session once it is removed."""

    def die(at: int) -> None:
        made = segment.create

        def create(name: str, size: int, **options: object) -> int:
            nonlocal at
            at -= 1
            if at < 0:
                kill_myself()
            return made(name, size, **options)  # type: ignore[arg-type]

        segment.create = create
        OwnedChannel(ring_name(domain), control_name(domain), shape())
        kill_myself()

    with Children() as children:
        for at in range(3):
            assert children.run(die, at).wait() == -9
            left = segment.names(f"ipcbus.{domain}.")
            assert len(left) == at
            for name in left:
                fd = segment.open_fd(name, write=True)
                assert not liveness.held_by_other(fd, 0)
                os.close(fd)
                segment.remove(name)


def test_reader_of_a_killed_owner_can_still_leave(domain: str) -> None:
    def own(ready: Flag, never: Flag) -> None:
        channel = OwnedChannel(ring_name(domain), control_name(domain), shape())
        ready.raise_it()
        never.wait()
        channel.close()

    with Children() as children, Flag() as ready, Flag() as never:
        owner = children.run(own, ready, never)
        children.until(ready)
        reader: JoinedChannel = join(domain)
        owner.kill()
        assert not reader.owner_lives()
        assert reader.slots.reclaim() == []
        reader.leave()
    for name in segment.names(f"ipcbus.{domain}."):
        segment.remove(name)
