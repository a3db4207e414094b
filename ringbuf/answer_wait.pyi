"""Ends the sleep of a thread when this process has just sent something, so that the thread spins for the answer.

The thread that sends waits elsewhere for the answer, and the thread that would take the answer sleeps meanwhile. It
would learn of the answer only by a second wake-up.
"""

class AnswerWait:
    """What the sources of a context and the thread that reads its rings know of each other."""

    def __init__(self, fd: int) -> None:
        """Begins with a thread that never spins.

        Args:
            fd: an eventfd; a write to it ends the thread's sleep.
        """

    def close(self) -> None:
        """Writes to the descriptor no longer, which may be closed afterwards."""
