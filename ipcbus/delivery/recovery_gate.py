"""A gate between a delivery controller and some of its receivers, while they get messages that a source kept.

The controller goes on with the live messages. The gate keeps those in a queue, or leaves them out while they are too
many, and first delivers what the source sends again::

    source's retention ── retransmitted messages ─────────────────────┐
                                                                      ├─ receivers
    ring or socket ── delivery controller ── live messages that wait ─┘

When nothing is missing any more and no live message waits, the gate opens: the controller delivers to the receivers
itself. So each number is either in one delivered message or reported lost once, in order, and the live path is not
touched.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from ipcbus.delivery.delivery_rules import IN_ORDER
from ipcbus.delivery.message_types import MessageType
from ipcbus.delivery.received_message import event
from ipcbus.delivery.sink import Sink

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ipcbus.delivery.delivery_controller import DeliveryController
    from ipcbus.delivery.delivery_session import DeliverySession
    from ipcbus.delivery.received_message import Message

_NO_LIMIT = 1 << 40
_LOSSES = (MessageType.UNRECOVERABLE_LOSS, MessageType.UNRECOVERABLE_LOSS_BURST)


class RecoveryGate:
    """Delivers retransmitted messages of one topic to some of its receivers, then the live messages that waited."""

    def __init__(
        self,
        delivery: DeliverySession,
        controller: DeliveryController,
        targets: Sequence[Sink],
        *,
        flags: int,
        keep_max: int,
        recovers_losses: bool,
    ) -> None:
        """Makes a gate and closes it: from now on the controller's messages wait in it.

        Args:
            delivery: the session.
            controller: delivers the topic's live messages.
            targets: the receivers behind the gate.
            flags: the flag of the retransmitted messages.
            keep_max: most live messages that wait.
            recovers_losses: whether live messages that the transport loses meanwhile are recovered too.
        """
        self.controller, self.targets = controller, list(targets)
        self.opened = False
        self.source_gone = False
        """Whether the source sends nothing again any more: what is wanted is lost."""
        self._delivery, self._keep_max, self._recovers_losses = delivery, keep_max, recovers_losses
        self._flags = flags
        self._next: int | None = None
        self._until = self._covered = 0
        self._asks_from = 0
        self._pieces: deque[tuple[bytes, int]] = deque()
        self._offset = 0
        self.hidden = Sink(None, _NO_LIMIT)
        self.listens = True
        self._history = delivery.twin()
        had_bos = delivery.had_bos(controller.topic_number)
        self._had_bos = {target for target in self.targets if target in had_bos}
        """The receivers that have got BOS, and not EOS since; the retransmitting session uses the same set."""
        self.joined_at = self.live_position
        controller.add_gate(self)

    # ------------------------------------------------------------------ the range

    def begin(self, first: int, until: int) -> None:
        """Sets what has to be recovered: from `first` to below `until`."""
        first = min(first, until)
        self._next = self._asks_from = first
        self._until = self._covered = until
        self._history.receive(
            self.controller.topic_number,
            self.controller.origin.topic,
            self.targets,
            self.controller.rules_at_once,
            first,
        )
        self._history.share_bos(self.controller.topic_number, self._had_bos)
        past = self._past
        past.added_flags = self._flags
        past.resume_at(first)

    @property
    def begun(self) -> bool:
        """Whether it is known what has to be recovered."""
        return self._next is not None

    @property
    def live_position(self) -> int | None:
        """The number from which on the controller delivers; None when that is not known."""
        return self.controller.stopped_before

    @property
    def wanted(self) -> tuple[int, int] | None:
        """The first and last number that the source has to send again; None when there is nothing to ask for now."""
        if not self.begun or self.opened:
            return None
        until = self._until if self.listens else self.live_position or 0
        return (self._asks_from, until - 1) if self._asks_from < until else None

    @property
    def holds_entries(self) -> bool:
        """Whether retransmitted messages wait for room in a receiver."""
        return bool(self._pieces)

    @property
    def waiting(self) -> int:
        """The number of live messages and events that wait."""
        return len(self.hidden.queue)

    # ------------------------------------------------------------------ what the source sends again

    def retransmitted(self, last: int, entries: bytes, offset: int, now_ns: int) -> None:
        """Takes the answer for the numbers from the first wanted one to `last`, and delivers as there is room.

        Args:
            last: the last number; those that are not in `entries` are gone, and are reported lost.
            entries: holds the messages from `offset` on.
            offset: where they begin.
            now_ns: the time.
        """
        self._put(last, entries, offset)
        self.advance(now_ns)

    def _put(self, last: int, entries: bytes, offset: int) -> None:
        if not self._pieces:
            self._offset = offset
        self._pieces.append((entries, last) if not self._pieces or not offset else (entries[offset:], last))
        self._asks_from = max(self._asks_from, last + 1)

    def give_up(self, now_ns: int) -> None:
        """Reports everything that is wanted as lost."""
        self._skip_wanted()
        self.advance(now_ns)

    def advance(self, now_ns: int) -> bool:
        """Delivers as far as there is room; returns whether the gate is open."""
        while not self.opened:
            if self._pieces:
                if not self._feed(now_ns):
                    return False
            elif not self.begun or self.wanted is not None:
                if not self.source_gone:
                    self._limit()
                    self._listen_if_close()
                    return False
                self._skip_wanted()
            elif self.listens:
                if not self._deliver_waiting():
                    return False
            elif not self._listen_again():
                return False
        return True

    def _skip_wanted(self) -> None:
        if not self.begun:
            position = self._first_live()
            self.begin(position, position)
        wanted = self.wanted
        if wanted is not None:
            self._put(wanted[1], b"", 0)

    def _first_live(self) -> int:
        """Returns the number of the first live message for the receivers."""
        waiting = (each.first_sequence_number for each in self.hidden.queue if each.sequence_number >= 0)
        known = [number for number in (self.joined_at, next(waiting, None)) if number is not None]
        return min(known, default=self.live_position or 0)

    def _feed(self, now_ns: int) -> bool:
        """Delivers the first piece of retransmitted messages; returns whether all of it is delivered."""
        entries, last = self._pieces[0]
        demux = self._history.demux
        before = demux.messages
        self._offset = demux.feed_retained(entries, self._offset, last, now_ns)
        self._history.changed()  # counts the messages of which the last fragment came
        self._delivery.count_recovered(demux.messages - before)
        if self._offset < len(entries):
            self._limit()
            return False
        self._pieces.popleft()
        self._offset = 0
        self._past.note_next_sequence(last + 1, now_ns)
        self._next = max(self._next or 0, last + 1)
        return True

    @property
    def _past(self) -> DeliveryController:
        found = self._history.topic(self.controller.topic_number)
        if found is None:
            raise RuntimeError("the gate has not begun")
        return found

    # ------------------------------------------------------------------ live messages

    def _limit(self) -> None:
        """Leaves live messages out, to ask for them later, when too many wait."""
        if self.listens and self.waiting > self._keep_max and self.controller.rules.ordered == IN_ORDER:
            self.listens = False
            self.hidden.queue.clear()
            self.controller.apply_gates()

    def _listen_if_close(self) -> None:
        if self.begun and not self.listens and (self.live_position or 0) - self._asks_from <= self._keep_max // 2:
            self._listen_again()

    def _listen_again(self) -> bool:
        """Keeps live messages from now on, when the recovery is close behind them."""
        if not (self.controller.fast_path or self.source_gone):
            return False
        self.listens = True
        self._until = self._covered = self.live_position or 0
        if not self.controller.ended:
            self.controller.apply_gates()
        return True

    def _deliver_waiting(self) -> bool:
        """Delivers the live messages that wait, up to the next one that is missing; returns whether to go on."""
        queue = self.hidden.queue
        while queue:
            message = queue[0]
            kind = message.type
            if kind in _LOSSES:
                self._take_loss(message)
                return True
            if kind in (MessageType.BOS, MessageType.EOS):
                queue.popleft()
                self._settle(0)
                self._pass_event(message)
                continue
            first, last = message.first_sequence_number, message.sequence_number
            in_order = self.controller.rules.ordered == IN_ORDER
            if last < self._covered or (in_order and last < (self._next or 0)):
                queue.popleft()  # the source has sent it again
                continue
            if in_order and first > (self._next or 0):
                if self._past.expected != self._next:
                    self._past.resume_at(self._next or 0)
                self._until, self._asks_from = first, self._next or 0
                return True
            if self._has_full_target():
                self._limit()
                return False
            queue.popleft()
            self._settle(first)
            self._next = max(self._next or 0, last + 1)
            self._pass_on(message)
        return self._open_if_complete()

    def _take_loss(self, loss: Message) -> None:
        """Makes a loss of the transport the next range to recover, or reports it."""
        queue = self.hidden.queue
        queue.popleft()
        first, last = loss.first_sequence_number, loss.sequence_number
        if not self._recovers_losses:
            self._settle(first)
            self._next = max(self._next or 0, last + 1)
            self._pass_on(loss)
            return
        while queue and queue[0].type in _LOSSES and queue[0].first_sequence_number == last + 1:
            last = queue.popleft().sequence_number
        first = max(first, self._covered)
        if first <= last:
            if self._past.expected != first:
                self._settle(first)
                self._past.resume_at(first)
            self._next, self._until, self._asks_from = first, last + 1, first

    def _settle(self, sequence: int) -> None:
        """Reports the pieces of a message whose rest does not come."""
        if self.begun and not self._past.fast_path:
            self._past.finish(sequence and min(sequence, self._past.expected))

    def _has_full_target(self) -> bool:
        return any(target.pulls and not target.closed and target.is_full_now() for target in self.targets)

    def _pass_on(self, message: Message) -> None:
        for target in list(self.targets):
            if message.type in _LOSSES:
                target.event(message, self._history)
            else:
                target.take(message, self._history)
        self._delivery.count_delivered(1)
        if message.type in _LOSSES:
            self._delivery.count_lost(message.sequence_number - message.first_sequence_number + 1)

    def _pass_event(self, message: Message) -> None:
        begins = message.type is MessageType.BOS
        for target in list(self.targets):
            if (target in self._had_bos) != begins:
                (self._had_bos.add if begins else self._had_bos.discard)(target)
                self._delivery.count_delivered(1)
                target.event(message, self._history)

    def _open_if_complete(self) -> bool:
        controller = self.controller
        if not controller.started and controller.floor is not None and controller.floor > (self._next or 0):
            self._until = controller.floor  # the controller left out the rest of a message that began before
            self._asks_from = self._next or 0
            return True
        if self.begun and not self._past.fast_path:
            return False
        self._open()
        return True

    def _open(self) -> None:
        self.opened = True
        number = self.controller.topic_number
        if not self.controller.ended:
            self._delivery.share_bos(number, (self._had_bos | self._delivery.had_bos(number)) - {self.hidden})
            self.controller.remove_gate(self)
        self._history.remove_topic(number)

    # ------------------------------------------------------------------ the end

    def lose_source(self, now_ns: int) -> None:
        """Gives up what the source would have to send again, now and later; the rest is delivered as there is room."""
        self.source_gone = True
        self._recovers_losses = False
        self.advance(now_ns)

    def end(self, following: int, now_ns: int) -> None:
        """Ends the gate with its topic: the receivers get the rest, then EOS.

        Args:
            following: the number after the topic's last one; 0 when it is not known.
            now_ns: the time.
        """
        if self.opened:
            return
        queue = self.hidden.queue
        if not (queue and queue[-1].type is MessageType.EOS):
            queue.append(event(self.controller.origin, MessageType.EOS, -1, -1, following))
        self.lose_source(now_ns)

    def drop(self, targets: Sequence[Sink]) -> bool:
        """Takes receivers that were closed out of the gate; returns whether the gate has receivers left."""
        self.targets = [target for target in self.targets if target in targets]
        if self.begun and not self.opened:
            self._past.set_receivers(self.targets)
        if not self.targets and not self.opened:
            self._open()
        return bool(self.targets)
