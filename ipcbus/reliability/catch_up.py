"""A receiver that is behind: it gets all that the source still holds in order, a little at a time.

It resumes a session, was slower than its source until there was no room for what came, or has missed so much that the
answer to one request would be lost for want of room as well. Asked for everything at once the source would send its
whole window in one go, and what is sent meanwhile would come before it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ipcbus.reliability.receive_state import ReceiveState

AHEAD: Final = 64
"""Datagrams that are asked for at a time."""
HELD: Final = 256
"""Datagrams beyond the first that is missing, which are kept until it has come too: one that is lost again and again
does not keep others from being asked for."""
BEHIND: Final = 256
"""A receiver that misses more datagrams than these is behind."""


class CatchUp:
    """What comes to a receiver until it has everything up to now."""

    def __init__(self, receive_state: ReceiveState) -> None:
        """At the first number that is missing."""
        self._receive_state = receive_state
        self.lead = receive_state.lead or 0
        """The number after the highest that is known to have been sent."""
        self.ahead = AHEAD
        """So many are asked for at most: fewer when there is no room for them."""
        self._held: dict[int, tuple[bytes, int]] = {}

    @property
    def over(self) -> bool:
        """Whether everything has come that was sent."""
        return not self._held and (self._receive_state.base or 0) >= self.lead

    def __len__(self) -> int:
        """Datagrams that have come and wait for those before them."""
        return len(self._held)

    def hear(self, lead: int, trail: int, now_ns: int) -> list[tuple[bytes, int]]:
        """The source has sent all below `lead`, and holds what is not below `trail`; returns what is in order now."""
        self.lead = max(self.lead, lead)
        return self._release(trail, now_ns)

    def data(self, number: int, trail: int, datagram: bytes, send_time_ns: int, now_ns: int) -> list[tuple[bytes, int]]:
        """Returns a datagram came; returns what is in order now."""
        self.lead = max(self.lead, number + 1)
        until = self._until(trail)
        if number >= until and until <= (self._receive_state.lead or 0) and trail <= (self._receive_state.base or 0):
            return []  # most that comes, while the source goes on sending
        if number < until and self._receive_state.data(number, trail, len(datagram), now_ns):
            self._held[number] = datagram, send_time_ns
        return self._release(trail, now_ns)

    def release(self, now_ns: int) -> list[tuple[bytes, int]]:
        """What is in order now, because something before it was given up."""
        return self._release(0, now_ns)

    def rest(self) -> list[tuple[bytes, int]]:
        """What has come and waits for something that will not come any more."""
        return [self._held.pop(number) for number in sorted(self._held)]

    def _release(self, trail: int, now_ns: int) -> list[tuple[bytes, int]]:
        found: list[tuple[bytes, int]] = []
        while True:
            base = self._receive_state.base or 0
            found += [self._held.pop(number) for number in sorted(self._held) if number < base]
            until = self._until(trail)
            if until <= (self._receive_state.lead or 0):
                return found
            self._receive_state.session_message(until, trail, now_ns)

    def _until(self, trail: int) -> int:
        """Numbers below this one are asked for when they do not come."""
        receive_state = self._receive_state
        room = max(0, self.ahead - receive_state.missing)
        lead, base = receive_state.lead or 0, receive_state.base or 0
        return max(lead, min(self.lead, max(lead, trail) + room, max(base, trail) + HELD))
