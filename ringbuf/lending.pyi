"""Places of a ring that an application looks at, or writes to, for a while.

The application may keep an array of such a place for longer. Its address cannot be changed then, so the memory behind
the address is: the pages are replaced by private ones with the same bytes, and the array never sees the ring again, nor
the ring what is written to the array. So that only lent places are affected, they are lent from a second mapping of the
ring's data, which nothing else uses. Without arrays that are kept nothing is copied and nothing is replaced.
"""

from collections.abc import Callable

from ringbuf.memory import Mapping

class Loan:
    """A place that is lent; `memoryview(loan)` shows it. Holds its memory."""

    def settle(self) -> bool:
        """Ends the loan: nobody can begin to look at it, and who still does looks at memory of its own from now on.

        Returns:
            Whether somebody still does.

        Raises:
            MemoryError: the system has no memory for the pages that are still looked at.
        """

class Lender:
    """Lends places of one ring, one at a time. Belongs to the thread that reads, or writes, the ring."""

    kept: int
    """Loans that somebody still looked at when they ended."""

    def __init__(
        self, mapping: Mapping, offset: int, writes: bool, on_kept: Callable[[], object] | None = None
    ) -> None:
        """Nothing is mapped before the first loan.

        Args:
            mapping: the ring, with its data mapped twice in a row.
            offset: where the data begin in it.
            writes: lends for writing; else for reading only, also where the mapping is writable.
            on_kept: called for each loan that is kept.
        """

    def lend_at(self, place: int, length: int) -> Loan | None:
        """Lends the bytes at a place of the data; None where the caller has to take a copy instead.

        That is so where an array that was kept has the page, and for some views after one was kept: an application
        that keeps one is likely to keep the next, and a copy costs less than replacing pages.
        """

    def secure(self) -> None:
        """Gives what is lent now pages of its own at once, as when the ring is left while the loan goes on."""
