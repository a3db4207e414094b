"""Ticks, the cheapest clock of the machine, and their conversion to nanoseconds.

On x86-64 with a stable time stamp counter a tick is a cycle of that counter (about 10 ns to read here). Elsewhere it is
a nanosecond of the monotonic clock (about 26 ns). All processes of a host use the same kind; the ring header has it.
"""

KIND_MONOTONIC: int
KIND_TSC: int

def kind() -> int:
    """Returns the clock in use: `KIND_TSC` or `KIND_MONOTONIC`."""

def ticks() -> int:
    """Returns the time now in ticks."""

def tick_ns() -> float:
    """Returns the nanoseconds of a tick; `recalibrate` makes the number more exact."""

def ticks_to_epoch_ns(ticks: int) -> int:
    """Converts ticks to nanoseconds since the Unix epoch, by the real-time clock of this host as it is now."""

def recalibrate() -> None:
    """Compares ticks with the real-time clock again; call it about once a second.

    Between two calls the error of `ticks_to_epoch_ns` grows with the error of the rate: by less than 0.1 us a second
    once the process is a second old.
    """
