"""Which receiving contexts are on this host, and which of them have died."""

from __future__ import annotations

import errno

from ipcbus.transport.udp.local_contexts import LocalContexts


class Host:
    """Contexts of a host, whose registries cannot be opened while no file descriptor is free."""

    def __init__(self) -> None:
        self.alive: dict[int, bool | None] = {}
        self.full = False

    def lives(self, context_id: int) -> bool | None:
        if self.full:
            raise OSError(errno.EMFILE, "too many open files")
        return self.alive.get(context_id)


def test_a_context_of_this_host_is_dead_without_its_lock_or_its_registry() -> None:
    host = Host()
    contexts = LocalContexts(host.lives)
    host.alive = {1: True, 2: True}
    contexts.note([1, 2, 3])
    assert contexts.among([1, 2, 3, 4]) == {1, 2}
    host.alive = {1: False}
    assert [contexts.is_dead(each) for each in (1, 2, 3)] == [True, True, False]


def test_without_a_free_descriptor_no_context_counts_as_dead() -> None:
    host = Host()
    contexts = LocalContexts(host.lives)
    host.alive = {1: True, 2: True}
    contexts.note([1])
    host.full = True
    contexts.note([2])
    assert (contexts.among([1, 2]), contexts.is_dead(1)) == ({1}, False)
    host.full, host.alive[1] = False, False
    contexts.note([2])
    assert (contexts.among([1, 2]), contexts.is_dead(1)) == ({1, 2}, True)
