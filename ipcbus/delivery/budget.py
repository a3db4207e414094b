"""How much memory incomplete streams may take."""

from __future__ import annotations

_PARTIAL_BYTES = 512
"""What an incomplete message takes besides its bytes, about."""


class Budget:
    """What all delivery controllers of a context may hold together.

    Attributes:
        entries: buffered messages and missing ranges now.
        bytes: memory of incomplete messages now.
    """

    def __init__(self, entries_max: int = 0, bytes_max: int = 2**31) -> None:
        """Nothing is held.

        Args:
            entries_max: option delivery_control_maximum_total_map_entries; 0 is no limit.
            bytes_max: option delivery_control_maximum_reassembly_bytes.
        """
        self._entries_max, self._bytes_max = entries_max, bytes_max
        self.entries = self.bytes = 0

    @property
    def exceeded(self) -> bool:
        """Whether more entries are held than may be."""
        return 0 < self._entries_max < self.entries

    def reserve(self, message_bytes: int) -> bool:
        """Takes memory for a message; False when there is too little left."""
        # One message as long as the limit fits, so its own overhead does not count against it.
        if self.bytes + message_bytes > self._bytes_max:
            return False
        self.bytes += message_bytes + _PARTIAL_BYTES
        return True

    def release(self, message_bytes: int) -> None:
        """Gives a message's memory back."""
        self.bytes -= message_bytes + _PARTIAL_BYTES
