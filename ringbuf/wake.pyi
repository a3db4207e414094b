"""The system calls of sleeping and waking: membarrier and futex.

A publisher must not pay for a fence at each record only because a reader may be about to sleep. So the fence is
asymmetric: the sleeper sets its flag and calls membarrier, which executes a full fence in all running threads of the
registered processes. The publisher only keeps the compiler from reordering.
"""

def asymmetric() -> bool:
    """Registers this process for the asymmetric fence; returns False where publishers have to fence themselves."""

def barrier() -> bool:
    """Executes a full fence in all running threads of registered processes; returns False where the system cannot.

    A sleeper that gets False must not sleep for long, as a publisher may not have seen its flag.
    """
