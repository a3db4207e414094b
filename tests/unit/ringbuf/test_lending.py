"""Places of a ring that are lent: what is kept of them has memory of its own."""

from __future__ import annotations

import gc
import os
import threading
from typing import TYPE_CHECKING

import numpy as np
import pytest

from ringbuf import layout
from ringbuf.lending import Lender
from ringbuf.memory import Mapping

if TYPE_CHECKING:
    from ringbuf.lending import Loan

CAPACITY = 16 * layout.PAGE
OFFSET = layout.PAGE
PATIENCE = 16
"""So many views are copies after the first that was kept."""


class Stand:
    """A ring's data, filled with the low bytes of their places; and what lends from it."""

    def __init__(self) -> None:
        fd = os.memfd_create("ring", os.MFD_CLOEXEC)
        os.ftruncate(fd, OFFSET + CAPACITY)
        try:
            self.mapping = Mapping(fd, OFFSET + CAPACITY, True, OFFSET)
        finally:
            os.close(fd)
        self.data = np.frombuffer(self.mapping.view(OFFSET, CAPACITY), np.uint8)
        self.data[:] = np.arange(CAPACITY, dtype=np.uint64).astype(np.uint8)
        self.told = 0
        self.lender = self.lends(writes=False)

    def lends(self, *, writes: bool) -> Lender:
        """One more lender."""
        return Lender(self.mapping, OFFSET, writes, self.tell)

    def tell(self) -> None:
        self.told += 1

    def lend(self, place: int, length: int) -> Loan:
        """Lends, which must be possible now."""
        loan = self.lender.lend_at(place, length)
        assert loan is not None
        return loan

    def skip_copies(self, count: int) -> None:
        """Takes the refusals that follow on something kept."""
        assert [self.lender.lend_at(0, 1) for _ in range(count)] == [None] * count


@pytest.fixture
def stand() -> Stand:
    """A fresh one."""
    return Stand()


def test_a_loan_shows_the_ring_itself(stand: Stand) -> None:
    loan = stand.lend(100, 10)
    with memoryview(loan) as view:
        assert view.readonly
        assert bytes(view) == bytes(range(100, 110))
        stand.data[100] = 7
        assert view[0] == 7
    assert not loan.settle()
    assert (stand.lender.kept_loans, stand.told) == (0, 0)


def test_what_is_kept_stays_as_it_was_and_at_its_address(stand: Stand) -> None:
    length = 3 * layout.PAGE
    loan = stand.lend(layout.PAGE - 50, length)
    array = np.frombuffer(memoryview(loan), np.uint8)
    before, address = array.tobytes(), array.ctypes.data
    assert loan.settle()
    stand.data[:] = 0xEE
    assert (array.tobytes(), array.ctypes.data) == (before, address)
    assert (stand.lender.kept_loans, stand.told) == (1, 1)


def test_a_place_at_the_end_runs_over_to_the_beginning(stand: Stand) -> None:
    loan = stand.lend(CAPACITY - 5, 10)
    kept = memoryview(loan)
    assert loan.settle()
    stand.data[:] = 0xEE
    assert bytes(kept) == bytes(range(251, 256)) + bytes(range(5))


def test_what_is_written_later_does_not_reach_the_ring(stand: Stand) -> None:
    loan = stand.lends(writes=True).lend_at(100, 10)
    assert loan is not None
    array = np.frombuffer(memoryview(loan), np.uint8)
    array[:] = 1
    assert loan.settle()
    array[:] = 2
    assert stand.data[100:110].tolist() == [1] * 10
    assert array.tolist() == [2] * 10


def test_after_the_end_nobody_begins_to_look(stand: Stand) -> None:
    loan = stand.lend(0, 10)
    memoryview(loan).release()
    loan.settle()
    with pytest.raises(BufferError, match="copy the bytes that you keep"):
        memoryview(loan)
    assert not loan.settle()  # twice does nothing


def test_a_page_with_something_kept_is_not_lent_before_it_is_gone(stand: Stand) -> None:
    loan = stand.lend(0, 10)
    kept = memoryview(loan)
    loan.settle()
    stand.skip_copies(PATIENCE)
    stand.data[:] = 0xEE
    assert stand.lender.lend_at(50, 10) is None
    other = stand.lend(2 * layout.PAGE, 10)  # another page is lent still
    assert bytes(memoryview(other)) == b"\xee" * 10
    other.settle()
    kept.release()
    assert bytes(memoryview(stand.lend(0, 10))) == b"\xee" * 10


def test_who_keeps_much_gets_copies_more_and_more_often(stand: Stand) -> None:
    kept, lent = [], 0
    for number in range(20_000):
        loan = stand.lender.lend_at(number % 16 * layout.PAGE, 8)
        if loan is not None:
            kept.append(memoryview(loan))
            loan.settle()
            lent += 1
    assert 5 < lent < 40


def test_who_kept_once_is_lent_places_again(stand: Stand) -> None:
    loan = stand.lend(0, 8)
    kept = memoryview(loan)
    loan.settle()
    refused = 0
    for _ in range(100):
        again = stand.lender.lend_at(3 * layout.PAGE, 8)
        refused += again is None
        if again is not None:
            again.settle()
    assert refused == PATIENCE
    assert bytes(kept) == bytes(range(8))


def test_arrays_may_go_in_any_order_and_thread(stand: Stand) -> None:
    loan = stand.lend(0, 100)
    arrays = [np.frombuffer(memoryview(loan)[number:], np.uint8) for number in range(50)]
    loan.settle()
    stand.data[:] = 0xEE
    halves = [arrays[::2], arrays[1::2]]
    del arrays
    threads = [threading.Thread(target=half.clear) for half in halves]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    stand.skip_copies(PATIENCE)
    assert bytes(memoryview(stand.lend(0, 10))) == b"\xee" * 10  # all are gone, so the page is lent again


def test_what_is_lent_now_can_be_made_the_borrowers_own(stand: Stand) -> None:
    loan = stand.lend(0, 10)
    view = memoryview(loan)
    stand.lender.replace_pages()
    stand.data[:] = 0xEE
    assert bytes(view) == bytes(range(10))
    view.release()
    assert not loan.settle()


def test_what_is_kept_does_not_keep_the_lender_and_who_it_tells(stand: Stand) -> None:
    loan = stand.lend(0, 10)
    kept = memoryview(loan)
    loan.settle()
    seen: set[int] = set()
    waiting: list[object] = [kept.obj]
    while waiting:
        each = waiting.pop()
        if id(each) not in seen:
            seen.add(id(each))
            waiting += gc.get_referents(each)
        assert each is not stand.lender
        assert each is not stand


def test_the_memory_outlives_ring_and_lender(stand: Stand) -> None:
    loan = stand.lend(0, 10)
    array = np.frombuffer(memoryview(loan), np.uint8)
    loan.settle()
    del loan, stand
    assert array.tolist() == list(range(10))


@pytest.mark.parametrize(("place", "length"), [(0, -1), (2 * CAPACITY - 3, 4)])
def test_what_lies_outside_is_refused(stand: Stand, place: int, length: int) -> None:
    with pytest.raises(ValueError, match="outside a ring of"):
        stand.lender.lend_at(place, length)


def test_a_ring_that_is_mapped_once_is_refused() -> None:
    fd = os.memfd_create("ring", os.MFD_CLOEXEC)
    os.ftruncate(fd, OFFSET + CAPACITY)
    try:
        with pytest.raises(ValueError, match="twice"):
            Lender(Mapping(fd, OFFSET + CAPACITY, False), OFFSET, False)
    finally:
        os.close(fd)
