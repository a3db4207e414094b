"""A member of a share, for one source topic. No I/O and no clock: bytes and times are passed in."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from ipcbus.shares.share_settings import FOREVER_NS
from ipcbus.wire import share_messages
from ipcbus.wire.share_messages import Work

if TYPE_CHECKING:
    from collections.abc import Callable

    from ipcbus.wire.share_messages import ShareAnswer

JOIN_AGAIN_NS = 250_000_000
"""Time in ns after which a member that got no answer joins again."""


class ShareMember:
    """The member's side of the protocol: it joins, keeps what is assigned to it, and sends acknowledgements.

    When its channel ends, the source assigns what the member has to others: it forgets what it has not delivered.
    """

    def __init__(self, name: str, topic: int, instance: int, *, context_id: int, portion: int) -> None:
        """Begins without a channel.

        Args:
            name: the name of the share.
            topic: the session's number of the topic.
            instance: the random number of the member.
            context_id: the id of its context.
            portion: most messages that it has at a time.
        """
        self._join = share_messages.join(topic, instance, context_id, portion, name)
        self.name, self.topic, self.instance = name, topic, instance
        self.is_joined = False
        self.refusal = 0
        """Why the source refuses the member; 0 while it does not."""
        self.work: deque[Work] = deque()
        """What is assigned and not delivered yet."""
        self._join_at_ns = 0
        self._acks: list[tuple[int, int]] = []
        self._nacks: list[tuple[int, int | None]] = []

    def channel_lost(self) -> None:
        """Takes note that the channel to the source has ended, and that there may be another one."""
        self.is_joined, self._join_at_ns = False, 0
        self.work.clear()
        self._acks.clear()
        self._nacks.clear()

    def receive(self, message: ShareAnswer) -> None:
        """Takes a message of the source."""
        if isinstance(message, Work):
            self.work.append(message)
        else:
            self.is_joined, self.refusal = message.refusal == share_messages.ACCEPTED, message.refusal

    def acknowledge(self, first: int, last: int) -> None:
        """Has the messages with these numbers acknowledged."""
        self._acks.append((first, last))

    def refuse(self, number: int, delay_ns: int | None) -> None:
        """Has a message given back."""
        self._nacks.append((number, delay_ns))

    def turn(self, now_ns: int, send: Callable[[bytes], bool]) -> int | None:
        """Sends what waits; returns when to call again, in ns, and None when something waits for room."""
        if not self.is_joined and now_ns >= self._join_at_ns:
            if not send(self._join):
                return None
            self._join_at_ns = now_ns + JOIN_AGAIN_NS
        while self._acks:
            if not send(share_messages.ack(self.topic, self.instance, self._acks[: share_messages.RANGES_MAX])):
                return None
            del self._acks[: share_messages.RANGES_MAX]
        while self._nacks:
            if not send(share_messages.nack(self.topic, self.instance, *self._nacks[0])):
                return None
            del self._nacks[0]
        return FOREVER_NS if self.is_joined else self._join_at_ns

    def leave(self) -> bytes:
        """Returns the message that ends the membership."""
        return share_messages.leave(self.topic, self.instance)
