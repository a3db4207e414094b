"""Decides whether the driver of a context leaves the ACKs of a session to a thread that sends. No clock."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ipcbus.transport.udp.datagram_relay import RecordSender

SENDING_NS: Final = 1_000_000
"""Time since its last record for which a thread counts as sending."""
UNSEEN_NS: Final = 2_000_000
"""Longest time until the driver looks for what has come beside ACKs, such as NAKs, though a thread sends."""
STREAM_BYTES: Final = 1 << 18
"""Bytes sent since the look for ACKs before the last one from which on a thread counts as sending a stream."""
MORE_NS: Final = 10_000_000
"""Time after requests, responses, NAKs and the like in which the driver looks for others at once."""


class AckWatch:
    """What the looks for ACKs of one session have shown."""

    def __init__(self) -> None:
        """Begins without a look."""
        self._looked_ns = -UNSEEN_NS
        self._looked_at = self._looked_before_at = 0
        self._more_ns = -MORE_NS

    def looked(self, records: RecordSender, now_ns: int) -> None:
        """Takes note that all that had come was read now."""
        self._looked_before_at = self._looked_at
        self._looked_ns, self._looked_at = now_ns, records.position

    def more_came(self, now_ns: int) -> None:
        """Takes note that something else than ACKs has come."""
        self._more_ns = now_ns

    def leaves(self, records: RecordSender, now_ns: int) -> bool:
        """Returns whether a thread sends so much that it looks for ACKs soon, and only ACKs have come lately."""
        if now_ns - self._looked_ns >= UNSEEN_NS or now_ns - self._more_ns < MORE_NS:
            return False
        is_sending = now_ns - records.sent_ns < SENDING_NS and records.has_ample_room
        return is_sending and records.position - self._looked_before_at >= STREAM_BYTES
