"""The sleeps of a context's own thread: with the driver lock, and while a thread of the application drives."""

import select
from collections.abc import Callable

from ipcbus.delivery.linger import Linger
from ipcbus.delivery.pump import Pump
from ringbuf.answer_wait import AnswerWait
from ringbuf.held_locks import HeldLocks

def stand_by(pump: Pump, fd: int, stand_back_ns: int, longest_ns: int) -> bool:
    """Sleeps, without the interpreter, while threads of the application drive again and again.

    Args:
        pump: the pump that they drive.
        fd: ends the sleep when it is readable.
        stand_back_ns: the time in ns since the last of them has driven, after which no other is expected.
        longest_ns: the time in ns after which one that still drives is expected to wait for longer.

    Returns:
        Whether a time has ended the sleep.
    """

class OwnRest:
    """One sleep, after which it delivers before any Python runs.

    It keeps the pump, and so its context, alive only while it delivers.
    """

    woken: list[int]
    """The descriptors that ended the sleep; none when the time did."""
    fetched: bool
    """Whether all that has come over the network was fetched, and delivered."""

    def __init__(
        self,
        pump: Callable[[], Pump | None],
        epoll: select.epoll,
        seconds: float,
        linger: Linger | None = None,
        early_s: float = 3_600_000,
    ) -> None:
        """Prepares a sleep.

        Args:
            pump: a weak reference to the pump; the sleeping thread has its driver lock.
            epoll: what wakes the thread.
            seconds: the longest sleep.
            linger: decides whether the thread looks at the descriptors for a moment before it sleeps; None never does.
            early_s: seconds after which it does not go on to sleep once something has come, as timers may run early
                (`timer_grid`).
        """

    def look_at(self, locks: HeldLocks, first_s: float, every_s: float) -> None:
        """Looks at locks during the sleep, which goes on without the interpreter while all of them are held.

        Args:
            locks: locks of other processes.
            first_s: seconds to the first look.
            every_s: seconds between two looks.
        """

    def fetch_first(self, network_fd: int, fetch: Callable[[], int] | None, others: tuple[int, ...] = ()) -> None:
        """Fetches what has come over the network before a delivery.

        Args:
            network_fd: the descriptor that is readable then.
            fetch: what fetches, as `DatagramFetcher.fetch` does; it may also return LEFT: then the network is not
                looked at for 500 us.
            others: at most two descriptors that end these 500 us.
        """

    def await_answers(self, answers: AnswerWait, linger: Linger) -> None:
        """Spins for a moment when the context has sent or woken another one, if answers have come soon after that.

        Args:
            answers: learns of that.
            linger: decides whether a spin pays; it learns how long answers take.
        """

    def __call__(self) -> OwnRest:
        """Sleeps, and delivers what has come unless the context is closed; returns itself.

        While that is all that has come over the network, it goes on to spin, sleep and deliver; after 2 ms
        without a sleep it returns, as other sockets may wait.
        """

    def take(self) -> int:
        """Returns how many messages were delivered, or raises what their delivery raised."""
