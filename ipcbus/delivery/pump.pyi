"""The loop over the sessions of a context, and the driver lock as far as compiled code takes it."""

from collections.abc import Callable, Sequence

from ipcbus.delivery.demux import Demux
from ringbuf.poller import Poller
from ringbuf.shared_words import WatchedWord

CLOSED: int
"""The context is closed, or belongs to the parent of a fork."""
HURRIED: int
"""The timers run in the next turn."""
URGENT: int
"""A thread with an urgent change waits for the driver lock."""
GUESTS: int
"""A thread waits for the driver lock or for a message; only turns of split contexts go to Python for it."""
TASKS: int
"""A task of asyncio waits for a message."""
DESCRIPTOR: int
"""The descriptor of the context is watched between two turns."""
NETWORK: int
"""Sessions run over the network: turns look at the sockets, and have them read before the timers run."""
EVENTS: int
"""Receivers got events that the pump has not counted."""
SPLIT_DESCRIPTOR: int
"""The descriptor of a split context is watched, which only Python arms."""
OWN_THREAD: int
"""The context's own thread waits for the driver lock.

TASKS, GUESTS, DESCRIPTOR, NETWORK and this do not send a turn to Python.
"""

class PassEnd:
    """Something that compiled code has called at the end of a pass over the sessions; a subclass says what happens."""

class Pump:
    """Reads the rings of a context's sessions in turn, and waits for their next records.

    At most one thread at a time drives: it has put its ident into `owner` with one compare-and-swap. `turn` and the
    pullers do that, and return to Python only when Python has something to do: `want` was called, the time of
    `set_timer` has come, a watched word has changed, or a session needs attention.
    """

    poller: Poller
    attention: bool
    """Whether a session needs attention: it ended, broke, has a full receiver, or its source waits for an event."""
    asleep: bool
    """Whether the thread that drives sleeps in compiled code, or has just woken up."""
    armed: bool
    """Whether sources see between two turns that this context sleeps, because its descriptor is watched."""
    copies_all: bool
    """Whether a pass over a ring goes on after it has copied 256 KiB of long messages for receivers that pull."""
    room_awaited: bool
    """Whether something from the network waits for room in the rings."""
    kick_waits: bool
    """Whether the descriptor was made readable, because there is something to do, and that is not cleared yet."""
    blocked: bool
    """Whether a session waits for room in the queue of a receiver that pulls, which has to say when there is room."""
    look: Callable[[], int] | None
    """Handles the watched words that have changed, in `turn` and pulls; returns the number of messages and events."""
    quiet: bool
    """Whether the driver does not call back, as the own thread of a split context; for the driver only."""
    last_guest: int
    """The ident of the thread of the application that drove last, or 0."""
    delivered: Callable[[], object] | None
    """Wakes the tasks whose messages have come, in `turn` and pulls."""
    pending_error: BaseException | None
    """A BaseException of a callback that is not an Exception; nothing is delivered until the driver has raised it."""

    def __init__(
        self,
        wake_waiters: Callable[[], object] | None = None,
        loops: int = 1,
        spins: bool = False,
        split: bool = False,
        linger_ns: int = 0,
    ) -> None:
        """Begins without sessions.

        Args:
            wake_waiters: called by a thread that has given the driver lock back while others wait for it.
            loops: most passes in a row that find nothing before a sleep.
            spins: whether waits never sleep.
            split: whether only guests call back, not the context's own thread.
            linger_ns: the longest spin before a sleep; 0 for none.
        """

    @property
    def owner(self) -> int:
        """The ident of the driver thread, or 0."""

    def take(self) -> bool:
        """Makes the calling thread the driver if no thread is; returns whether it did."""

    def take_if_free(self) -> bool:
        """Does what `take` does, for a short change, unless a thread with an urgent change waits."""

    def give_back(self) -> None:
        """Ends that the calling thread is the driver, and wakes the threads that wait for it."""

    def reset(self) -> None:
        """Frees the pump in the child of a fork, unless the forking thread drives."""

    def want(self, reasons: int) -> None:
        """Sends turns to Python for one or more reasons, until `unwant`; any thread may call this."""

    def unwant(self, reasons: int) -> None:
        """Takes reasons back."""

    def wants(self, reasons: int) -> bool:
        """Returns whether one of the reasons holds."""

    def note_guest(self) -> None:
        """Notes that a thread of the application drives now; compiled turns note it themselves."""

    def forget_guest(self) -> None:
        """Notes that no thread of the application drives any more."""

    def ns_since_guest(self) -> int:
        """Returns the time in ns since a thread of the application drove last."""

    def set_timer(self, delay_ns: int, look_delay_ns: int = ..., early_delay_ns: int = ...) -> None:
        """Sends turns to Python after the shortest of three delays in ns; only the first one ends a sleep.

        The second one holds until a sleep has looked at the descriptors.
        """

    def sleep_on(
        self,
        epoll_fd: int,
        bell_fd: int,
        kick_fd: int,
        arm: Callable[[bool], bool],
        answer: Callable[[bytes, bool], object],
    ) -> None:
        """Lets waits sleep in compiled code, without the interpreter lock; otherwise only Python sleeps.

        Args:
            epoll_fd: the descriptor that a sleep waits for.
            bell_fd: the doorbell in it.
            kick_fd: an eventfd in it that other threads write.
            arm: shows the other sides of control channels whether this context sleeps; returns whether nothing waits
                there.
            answer: gets the bytes of the doorbell, and whether another descriptor is readable, unless only records
                have come. Like `arm` it is called with the driver lock.
        """

    def arm_descriptor(self) -> None:
        """Makes the descriptor readable once there is something to do, after a turn of Python; for the driver only."""

    def disarm_descriptor(self) -> None:
        """Shows sources that this context does not sleep any more, unless another thread drives it."""

    def needs_python(self) -> bool:
        """Returns whether the next call of `turn` would return to Python before it waits."""

    def turn(self, timeout: object) -> int | float:
        """Drives without running Python code but callbacks and `look`, until a message is delivered.

        Args:
            timeout: seconds to wait for the first message; 0, or less, does not wait, None waits for ever.

        Returns:
            The number of messages delivered, 0 when the time ran out; or, as a float, the seconds that are left when
            Python has to go on (infinity for None), which is NaN when Python has to check the timeout.

        Raises:
            BaseException: a callback raised it, and it is not an Exception.
        """

    def watch(self, demuxes: Sequence[Demux], words: Sequence[WatchedWord] = (), fences: bool = True) -> None:
        """Sets the sessions to read, and words whose change ends a wait and every call of `run` and `turn`.

        Args:
            demuxes: the sessions.
            words: the words.
            fences: whether other processes look whether this context sleeps. A sleep without that saves a fence of all
                processors, which waits for each of them: up to some ms where a host shares them out.
        """

    @property
    def stuck(self) -> bool:
        """Whether the last pass left a watched word that has changed to Python."""

    def run(self, timeout_ns: int, loops: int, once: bool) -> int:
        """Delivers messages until a limit is reached; for the driver only.

        Args:
            timeout_ns: return after this time.
            loops: return after this number of passes in a row that found nothing.
            once: return as soon as a message was delivered.

        Returns:
            Messages delivered. Returns early when a session needs attention, or when the poller was poked.
        """
