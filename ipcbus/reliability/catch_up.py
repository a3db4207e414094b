"""Catching up: a receiver that resumes a session gets the datagrams that the source still holds in order.

Its topics go on where they stopped, so a later message must not come first. The same holds for a receiver that misses
more datagrams than it may remember. New datagrams that come meanwhile wait here for the missing ones, up to a number of
bytes; those beyond are asked for when their turn comes.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ipcbus.reliability.receive_state import ReceiveState

MISSING_MAX: Final = 4096
"""Missing datagrams that are known at a time."""
HELD_BYTES: Final = 1 << 24
"""Bytes of datagrams that wait for earlier ones; those that were asked for may exceed them."""
CATCH_UP_AT: Final = 1 << 15
"""A receiver that misses more datagrams than this catches up."""


class CatchUp:
    """The order in which a receiver that is behind asks for datagrams and delivers them."""

    def __init__(self, receive_state: ReceiveState) -> None:
        self._receive_state = receive_state
        self.lead = receive_state.lead or 0
        """The number after the highest datagram that the source is known to have sent."""
        # No more than may be remembered: those beyond would be given up.
        self._missing_max = min(MISSING_MAX, receive_state.missing_max)
        self._held: dict[int, tuple[bytes, int]] = {}
        self._bytes = 0
        # Numbers that the receive state knows, and those above its lead, which it does not know yet.
        self._waiting: list[int] = []
        self._early: list[int] = []

    @property
    def over(self) -> bool:
        """Whether all datagrams that were sent have come or were given up."""
        return not self._held and (self._receive_state.base or 0) >= self.lead

    def __len__(self) -> int:
        """Returns the number of datagrams that have come, are counted, and wait for earlier ones."""
        return len(self._waiting)

    def receive_session_message(self, lead: int, trail: int, now_ns: int) -> list[tuple[bytes, int]]:
        """Takes note that the source has sent all numbers below `lead` and holds those from `trail` on.

        Returns:
            The datagrams that can be delivered now, in order, each with its send time.
        """
        self.lead = max(self.lead, lead)
        return self._release(trail, now_ns)

    def receive_data(
        self, number: int, trail: int, datagram: bytes, send_time_ns: int, now_ns: int, *, again: bool = False
    ) -> list[tuple[bytes, int]]:
        """Takes a datagram; returns those that can be delivered now, in order, each with its send time."""
        self.lead = max(self.lead, number + 1)
        receive_state = self._receive_state
        if number < (receive_state.lead or 0):
            if receive_state.receive_data(number, trail, len(datagram), now_ns, again=again):
                self._hold(self._waiting, number, datagram, send_time_ns)
        elif number in self._held:
            receive_state.counts.duplicate_data += 1
        elif self._bytes + len(datagram) <= HELD_BYTES:
            self._hold(self._early, number, datagram, send_time_ns)
        return self._release(trail, now_ns)

    def release(self, now_ns: int) -> list[tuple[bytes, int]]:
        """Returns the datagrams that can be delivered now because an earlier one was given up."""
        return self._release(0, now_ns)

    def remaining(self, now_ns: int) -> list[tuple[bytes, int]]:
        """Returns the datagrams that still wait, when no earlier one will come any more."""
        if self._early:
            self._advance(max(self._early) + 1, 0, now_ns)
        self._waiting.clear()
        return [self._held.pop(number) for number in sorted(self._held)]

    def _hold(self, where: list[int], number: int, datagram: bytes, send_time_ns: int) -> None:
        self._held[number] = datagram, send_time_ns
        self._bytes += len(datagram)
        heapq.heappush(where, number)

    def _release(self, trail: int, now_ns: int) -> list[tuple[bytes, int]]:
        found: list[tuple[bytes, int]] = []
        while True:
            base = self._receive_state.base or 0
            while self._waiting and self._waiting[0] < base:
                found.append(self._held.pop(heapq.heappop(self._waiting)))
                self._bytes -= len(found[-1][0])
            lead = self._receive_state.lead or 0
            until = self._known_end(lead, trail)
            if until <= lead:
                return found
            self._advance(until, trail, now_ns)

    def _known_end(self, lead: int, trail: int) -> int:
        """Returns the number up to which missing datagrams are known to the receive state."""
        missing = self._receive_state.missing
        if missing and self._bytes > HELD_BYTES:
            return lead
        return max(lead, min(self.lead, max(lead, trail) + self._missing_max - missing))

    def _advance(self, until: int, trail: int, now_ns: int) -> None:
        """Makes the numbers below `until` known to the receive state: those that are not here are missing."""
        while self._early and self._early[0] < until:
            number = heapq.heappop(self._early)
            self._receive_state.receive_data(number, trail, len(self._held[number][0]), now_ns)
            heapq.heappush(self._waiting, number)
        self._receive_state.note_position(until, trail, now_ns)
