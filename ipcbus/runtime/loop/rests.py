"""What the context's own thread waits on between two turns."""

from __future__ import annotations

import contextlib
import time
import weakref
from typing import TYPE_CHECKING

from ipcbus.delivery import linger
from ipcbus.runtime.loop.own_rest import OwnRest
from ringbuf.answer_wait import AnswerWait

if TYPE_CHECKING:
    import select
    from collections.abc import Callable

    from ipcbus.delivery.pump import Pump
    from ipcbus.runtime.loop.loop_tasks import Lives
    from ringbuf.poller import Poller

_LONGEST_SPIN_NS = 100_000_000


class Rests:
    """Makes the rests of a thread that has the driver lock."""

    def __init__(self, epoll: select.epoll, kick_fd: int, bell_fd: int, linger_ns: int) -> None:
        """Begins without experience.

        Args:
            epoll: what wakes the thread.
            kick_fd: an eventfd that `epoll` watches.
            bell_fd: the doorbell of the context, which `epoll` watches, too.
            linger_ns: the longest spin before a sleep.
        """
        self._epoll, self._others = epoll, (kick_fd, bell_fd)
        self._answer_linger, self._network_linger = linger.for_rings(linger_ns), linger.for_network(linger_ns)
        self._network_answer_linger = linger.for_network(linger_ns)
        self.answers = AnswerWait(kick_fd)
        """Learns from the sources of the context when they wake another one."""

    def network(
        self, pump: Pump, seconds: float, early_s: float, network_fd: int, fetch: Callable[[], int] | None
    ) -> OwnRest:
        """Returns a rest of a context with sessions over the network; the arguments are those of `OwnRest`."""
        rest = OwnRest(weakref.ref(pump), self._epoll, seconds, self._network_linger, early_s)
        rest.fetch_first(network_fd, fetch, self._others)
        rest.await_answers(self.answers, self._network_answer_linger)
        return rest

    def rings(self, pump: Pump, now_ns: int, seconds: float, lives: Lives | None) -> OwnRest:
        """Returns a rest of a context whose sessions are rings.

        Args:
            pump: reads the rings.
            now_ns: the time.
            seconds: the longest rest without `lives`.
            lives: what the thread looks at then, to rest on while other processes live.
        """
        rest_s = seconds if lives is None else (lives.until_ns - now_ns) / 1e9
        rest = OwnRest(weakref.ref(pump), self._epoll, rest_s)
        if lives is not None:
            rest.look_at(lives.locks, seconds, lives.every_ns / 1e9)
        rest.await_answers(self.answers, self._answer_linger)
        return rest


def poll(epoll: select.epoll, until_ns: int) -> None:
    """Rests until a wake-up or a time."""
    with contextlib.suppress(OSError, ValueError):  # ValueError: closed
        epoll.poll(max(0, until_ns - time.monotonic_ns()) / 1e9)


def spin(poller: Poller, loops: int, until_ns: int) -> bool:
    """Polls the rings until one has a message, or until a time."""
    return poller.spin(loops, max(0, min(until_ns - time.monotonic_ns(), _LONGEST_SPIN_NS)))
