"""The open doorbells of the readers of a ring: the writer rings them in one compiled call.

A reader that sleeps waits for this call, and its processor has slept, too: code that is not called does not have to
come from memory.
"""

from collections.abc import Callable

from ringbuf.answer_wait import AnswerWait
from ringbuf.ring import RingWriter

class SlotDoorbells:
    """Wakes readers that sleep. Any thread may ring; a doorbell is not closed while a thread rings it."""

    def __init__(
        self, writer: RingWriter, ring_slowly: Callable[[int], object], answers: AnswerWait | None = None
    ) -> None:
        """Begins without an open doorbell.

        Args:
            writer: the writer of the ring.
            ring_slowly: rings the context in a slot whose doorbell is not open here; returns whether it could.
            answers: learns that a doorbell was rung.
        """

    def put(self, slot: int, context_id: int, fd: int) -> None:
        """Rings this descriptor from now on, as long as the slot belongs to this context; `forget` before it is closed.

        Raises:
            ValueError: there is no such slot.
        """

    def forget(self) -> None:
        """Rings no descriptor any more; they may be closed afterwards. Waits for threads that ring at this moment."""

    def abandon(self) -> None:
        """As `forget`, without the wait: a child process after a fork has none of the threads of its parent."""

    def ring(self, mask: int) -> int:
        """Wakes the readers of these slots that sleep, and counts them in the ring.

        Args:
            mask: a bit for each slot; bits without a slot are ignored.

        Returns:
            The number of readers that were woken.
        """

    def __call__(self, mask: int) -> int:
        """Does what `ring` does."""
