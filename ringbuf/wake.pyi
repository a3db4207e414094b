"""The system calls of sleeping and waking: membarrier and futex.

Who publishes must not pay for a fence at each record only because somebody might be falling asleep. So the fence is
asymmetric: who falls asleep sets its flag and calls membarrier, which puts a full fence into every running thread of
every process that registered; who publishes only keeps the compiler from reordering.
"""

def asymmetric() -> bool:
    """Registers this process for the asymmetric fence; False where it cannot, and publishers fence by themselves."""

def barrier() -> bool:
    """Puts a full fence into all running threads of registered processes; False where the system has no such call.

    A sleeper that gets False must not sleep long: nothing promises that a publisher saw its flag.
    """
