"""How long a wait spins before it sleeps.

A sleep and its wake-up take 20 to 50 us on a virtual machine, and much of that is processor time. A program that sends
a request and waits for the answer gets it sooner if it spins for about that long. A program whose next message comes
later gains nothing. So a wait spins only where sleeps have been short, or spins have found messages, and only for a
part of the time.
"""

def for_rings(longest_ns: int) -> Linger:
    """Returns one for waits that a record in a ring ends, in ticks of the clock; the longest spin is in ns."""

def for_network(longest_ns: int) -> Linger:
    """Returns one for waits that a packet ends: a sleep costs more there, as the sender has to wake the sleeper."""

class Linger:
    """What the waits of one context have shown. Times are ticks of any clock."""

    longest: int
    """The longest spin; 0: every wait sleeps at once."""

    def __init__(self, longest: int, free: int) -> None:
        """Begins without experience: the first wait sleeps.

        Args:
            longest: the longest spin.
            free: the processor time that a spin saves, because it finds a message and the wait needs no sleep.
        """

    def allowed(self, now: int) -> int:
        """Returns how long a wait that begins now may spin; 0: it sleeps at once."""

    def spun(self, now: int, ticks: int, found: bool) -> None:
        """Notes a spin.

        The next one waits for eight times what this one cost more than the sleep that it saved. Each spin in vain
        saves nothing, and doubles the number of short sleeps that have to come before the next one.

        Args:
            now: when it ended.
            ticks: how long it took, which is longer than allowed if another program got the processor.
            found: whether it found something to do.
        """

    def slept(self, ticks: int) -> None:
        """Notes how long a sleep took."""
