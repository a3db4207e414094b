"""Lends parts of a ring to an application, which reads or writes them for a while.

The application may keep an array of such a part for longer. The address of the array cannot change, so the memory
behind the address changes: private pages with the same bytes replace the pages of the ring. The array then never shows
the ring again, and writes to the array do not reach the ring. Parts are lent from a second mapping of the ring's data,
which nothing else uses, so no other reader is affected. Without such arrays nothing is copied and nothing is replaced.
"""

from collections.abc import Callable

from ringbuf.memory import Mapping

class Loan:
    """A part of a ring that is lent; `memoryview(loan)` shows it. The loan keeps the memory mapped."""

    def settle(self) -> bool:
        """Ends the loan: there can be no new views, and existing views show private memory from now on.

        Returns:
            Whether there are such views.

        Raises:
            MemoryError: the system has no memory for their pages.
        """

class Lender:
    """Lends parts of one ring, one at a time. Belongs to the thread that reads, or writes, the ring."""

    kept_loans: int
    """Loans that had views when they ended."""

    def __init__(
        self, mapping: Mapping, offset: int, writes: bool, on_kept: Callable[[], object] | None = None
    ) -> None:
        """Makes a lender; the second mapping is made with the first loan.

        Args:
            mapping: the ring, with its data mapped twice in a row.
            offset: offset of the data in it, in bytes.
            writes: lends for writing; otherwise for reading only, even if the mapping is writable.
            on_kept: called for each loan that had views when it ended.
        """

    def lend_at(self, place: int, length: int) -> Loan | None:
        """Lends the bytes at an offset of the data; returns None if the caller has to make a copy instead.

        It returns None where a kept array has the page, and for some views after one was kept: an application that
        keeps one array is likely to keep the next, and a copy costs less than replacing pages.
        """

    def replace_pages(self) -> None:
        """Replaces the pages of the current loan at once, for a reader that leaves the ring during the loan."""
