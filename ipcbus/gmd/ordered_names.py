"""When the acknowledgements of a guaranteed source come in order, and may go the short way (`ordered_acks`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ipcbus.gmd.delivery_modes import SOME
from ipcbus.gmd.gmd_events import Confirmed
from ipcbus.gmd.gmd_settings import FOREVER_NS
from ipcbus.gmd.ordered_acks import OrderedAcks
from ipcbus.wire.control_messages import NUMBER_MAX

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Hashable, Iterable

    from ipcbus.gmd.delivery_terms import DeliveryTerms
    from ipcbus.gmd.expected_names import ExpectedName, ExpectedNames
    from ipcbus.gmd.gmd_events import GmdEvent
    from ipcbus.gmd.registered_receiver import RegisteredReceiver
    from ipcbus.gmd.sender_area import SenderArea
    from ipcbus.wire.gmd_messages import Ack
    from ipcbus.wire.number_ranges import NumberRanges


class OrderedNames:
    """Leaves acknowledgements to `acks` while that is simple.

    Then the state of `acks` goes beyond that of the names and of the kept numbers, until `take_over`.
    """

    def __init__(self, area: SenderArea, *, confirms: bool) -> None:
        """Begins with nothing left to `acks`.

        Args:
            area: the source's area.
            confirms: whether complete deliveries are reported.
        """
        self._area = area
        self.acks = OrderedAcks(area.note, area.release, area.incarnation, confirms=confirms)
        """Takes acknowledgements that come in order."""
        self._names: list[ExpectedName] = []
        self._receivers: list[RegisteredReceiver] = []

    def begin(
        self, kept: NumberRanges, names: ExpectedNames, terms: DeliveryTerms, receivers: Iterable[RegisteredReceiver]
    ) -> None:
        """Leaves acknowledgements to `acks`, if nothing but the next ones is expected of each name."""
        low = kept.front[0]
        owing = [name for name in names if name.owed]
        modes = {mode for _, _, mode, _ in terms.runs(low, NUMBER_MAX)}
        firsts = {name.owed.front[0] for name in owing}
        if (
            names.unassigned.owed
            or len(kept) > 1
            or len(modes) > 1
            or not all(len(name.owed) == 1 and name.owed.highest == NUMBER_MAX for name in owing)
            or any(name.failed for name in names.all)
            or (firsts != {low} if SOME in modes else min(firsts, default=0) != low)
        ):
            return
        self._names = owing
        self._receivers = [each for each in receivers if each.name in owing]
        self.acks.begin(
            low,
            any_is_enough=SOME in modes,
            names=[(name.id, name.owed.front[0] - 1) for name in owing],
            receivers=[(each.peer, each.instance, owing.index(each.name)) for each in self._receivers],
        )

    def take(self, peer: Hashable, message: Ack) -> bool:
        """Takes an acknowledgement in the short way; returns False if that is not possible."""
        if not self.acks.is_ready or len(message.ranges) > 1:
            return False
        first, last = message.ranges[0]
        last_number = self._area.last_number
        return self.acks.try_take(peer, message.instance, message.incarnation, first, last, last_number)

    def take_over(self, kept: NumberRanges, events: deque[GmdEvent]) -> None:
        """Ends the work of `acks`; the names, these kept numbers and these events are as it left them."""
        if self.acks.is_ready:
            self.learn(kept)
            self.tell(events)
            self.acks.pause()

    def tell(self, events: deque[GmdEvent]) -> None:
        """Appends an event, if deliveries are to be reported as complete."""
        confirmed = self.acks.take_confirmed()
        if confirmed is not None:
            events.append(Confirmed(*confirmed))

    def learn(self, kept: NumberRanges) -> None:
        """Takes over what `acks` knows, which goes on."""
        if not self.acks.is_ready:
            return
        kept.drop_below(self.acks.low)
        heard = []
        for name, (floor, was_heard) in zip(self._names, self.acks.floors(), strict=True):
            name.owed.drop_below(floor + 1)
            heard += [name] if was_heard else []
        for receiver in self._receivers:
            if receiver.name in heard:
                receiver.probe_at_ns = FOREVER_NS  # begins again when messages are pending
