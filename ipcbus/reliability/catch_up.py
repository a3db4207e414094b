"""Catching up: a receiver that is far behind gets the datagrams that the source still holds in order, in small steps.

A receiver is far behind when it resumes a session, when its ring had no room for datagrams that came, or when it
misses more datagrams than the ring could take at once. If it asked for all of them, the source would send its whole
window in one go, and new datagrams would arrive before the missing ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ipcbus.reliability.receive_state import ReceiveState

REQUESTS_MAX: Final = 64
"""Missing datagrams that the receiver asks for at a time."""
HELD_MAX: Final = 256
"""Datagrams after the first missing one that the receiver keeps until that one has come: a datagram that is lost again
and again does not delay the requests for others."""
CATCH_UP_AT: Final = 256
"""A receiver that misses more datagrams than this catches up."""


class CatchUp:
    """The order in which a receiver that is behind asks for datagrams and delivers them."""

    def __init__(self, receive_state: ReceiveState) -> None:
        self._receive_state = receive_state
        self.lead = receive_state.lead or 0
        """The number after the highest datagram that the source is known to have sent."""
        self.requests_max = REQUESTS_MAX
        """The largest number of missing datagrams to ask for at a time; lower when the ring has little room."""
        self._held: dict[int, tuple[bytes, int]] = {}

    @property
    def over(self) -> bool:
        """Whether all datagrams that were sent have come or were given up."""
        return not self._held and (self._receive_state.base or 0) >= self.lead

    def __len__(self) -> int:
        """Returns the number of datagrams that have come and wait for earlier ones."""
        return len(self._held)

    def receive_session_message(self, lead: int, trail: int, now_ns: int) -> list[tuple[bytes, int]]:
        """Takes note that the source has sent all numbers below `lead` and holds those from `trail` on.

        Returns:
            The datagrams that can be delivered now, in order, each with its send time.
        """
        self.lead = max(self.lead, lead)
        return self._release(trail, now_ns)

    def receive_data(
        self, number: int, trail: int, datagram: bytes, send_time_ns: int, now_ns: int
    ) -> list[tuple[bytes, int]]:
        """Takes a datagram; returns those that can be delivered now, in order, each with its send time."""
        self.lead = max(self.lead, number + 1)
        until = self._request_end(trail)
        if number >= until and until <= (self._receive_state.lead or 0) and trail <= (self._receive_state.base or 0):
            return []  # most new datagrams, while the source goes on sending
        if number < until and self._receive_state.receive_data(number, trail, len(datagram), now_ns):
            self._held[number] = datagram, send_time_ns
        return self._release(trail, now_ns)

    def release(self, now_ns: int) -> list[tuple[bytes, int]]:
        """Returns the datagrams that can be delivered now because an earlier one was given up."""
        return self._release(0, now_ns)

    def remaining(self) -> list[tuple[bytes, int]]:
        """Returns the datagrams that still wait, when no earlier one will come any more."""
        return [self._held.pop(number) for number in sorted(self._held)]

    def _release(self, trail: int, now_ns: int) -> list[tuple[bytes, int]]:
        found: list[tuple[bytes, int]] = []
        while True:
            base = self._receive_state.base or 0
            found += [self._held.pop(number) for number in sorted(self._held) if number < base]
            until = self._request_end(trail)
            if until <= (self._receive_state.lead or 0):
                return found
            self._receive_state.note_position(until, trail, now_ns)

    def _request_end(self, trail: int) -> int:
        """Returns the number up to which missing datagrams are asked for."""
        receive_state = self._receive_state
        room = max(0, self.requests_max - receive_state.missing)
        lead, base = receive_state.lead or 0, receive_state.base or 0
        return max(lead, min(self.lead, max(lead, trail) + room, max(base, trail) + HELD_MAX))
