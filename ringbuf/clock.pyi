"""Ticks: the cheapest clock of the machine, and what they are in nanoseconds.

On x86-64 with a stable time stamp counter a tick is a cycle of that counter (about 10 ns to read here), elsewhere a
nanosecond of the monotonic clock (about 26 ns). All processes of one host agree on the kind; it stands in the ring.
"""

KIND_MONOTONIC: int
KIND_TSC: int

def kind() -> int:
    """Returns the clock in use: `KIND_TSC` or `KIND_MONOTONIC`."""

def ticks() -> int:
    """Now, in ticks."""

def tick_ns() -> float:
    """Nanoseconds a tick; refined while the process runs."""

def ticks_to_epoch_ns(ticks: int) -> int:
    """Returns the moment of a tick in nanoseconds since the Unix epoch, by this host's real-time clock now."""

def recalibrate() -> None:
    """Anchors ticks to the real-time clock again; call it about once a second.

    Between two calls the error of `ticks_to_epoch_ns` grows by the error of the rate, below 0.1 us a second once the
    process is a second old.
    """
