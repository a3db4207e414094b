from __future__ import annotations

from ringbuf import wake


def test_barrier_works_wherever_the_process_could_register() -> None:
    assert wake.asymmetric() == wake.barrier()
