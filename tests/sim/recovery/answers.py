"""The source side of recoveries in virtual time: a retransmitter, and the channels of all receiving contexts."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ipcbus.recovery.retransmitter import Retransmitter, RetransmitterSettings
from ipcbus.wire import control_messages
from tests.sim.world import MS

if TYPE_CHECKING:
    from random import Random

    from ipcbus.recovery.control_channel import ControlChannel
    from tests.sim.world import World


class Answers:
    """Answers the requests of all receiving contexts."""

    def __init__(self, world: World, random: Random) -> None:
        self._world, self._random = world, random
        self.retransmitter = Retransmitter(
            RetransmitterSettings(
                piece_bytes=random.choice([30, 300, 5000]),
                turn_bytes=random.choice([100, 10_000]),
                ranges_max=random.choice([2, 1000]),
            )
        )
        self._channels: dict[int, ControlChannel] = {}
        self._due_ns = -1
        self.over = False

    def open(self, key: int, channel: ControlChannel) -> None:
        """A context has a channel."""
        self._channels[key] = channel
        self.retransmitter.add_peer(key, channel)

    def work(self, key: int, channel: ControlChannel) -> None:
        """Something has changed on a channel."""
        if self.over or self._channels.get(key) is not channel:
            return
        while (message := channel.receive()) is not None:
            found = control_messages.decode(message)
            if isinstance(found, control_messages.InfoRequest | control_messages.RangeRequest):
                self.retransmitter.receive(key, found, self._world.now_ns)
        if channel.broken:
            del self._channels[key]
            self.retransmitter.remove_peer(key)
        channel.flush()
        self._turn()

    def _turn(self) -> None:
        now_ns = self._world.now_ns
        has_more = self.retransmitter.turn(now_ns)
        for channel in self._channels.values():
            channel.flush()
        # A turn takes some time, and then others have theirs.
        self.retransmitter.spent(now_ns, now_ns + MS // 1000, now_ns // (100 * MS))
        due_ns = self.retransmitter.due_ns(now_ns)
        if has_more and due_ns is not None and self._due_ns <= now_ns:
            self._due_ns = max(due_ns, now_ns + 1)
            self._world.after(self._due_ns - now_ns, partial(self._due, self._due_ns))

    def _due(self, due_ns: int) -> None:
        if due_ns == self._due_ns and not self.over:
            self._turn()
