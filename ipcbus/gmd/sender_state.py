"""The protocol of guaranteed delivery at a source: who has yet to acknowledge what, and what follows from it.

It has no clock and no lock. Its user holds the source's lock for guaranteed delivery, or uses it from one thread only,
and calls:

* `places.begin_sending` before a message is saved, and `terms` too if its mode or timeout differs from the one before;
* `area.save`, then the session's send, and `area.unsave` if that raised; no call for each message;
* `receive` for each message of guaranteed delivery that comes through a control channel, `lost_peer` when one ends;
* `turn` when it is due, after these calls, and soon after messages were saved (what waits for it are deadlines, and
  messages for which no receiver is expected);
* `next_event` after each of these calls until it returns None;
* the functions of the application's calls at any time.

The area calls `checkpoint` back.

Acknowledgements in order go a short way (`ordered_names`), which the user may take instead of `receive`.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from ipcbus.errors import GmdError
from ipcbus.gmd import sender_notes
from ipcbus.gmd.delivery_modes import SOME
from ipcbus.gmd.delivery_terms import Deadlines, DeliveryTerms, timeout_note
from ipcbus.gmd.expected_names import ExpectedNames, without
from ipcbus.gmd.gmd_events import Confirmed, GmdFailure, GmdStatus, Registration, Standing
from ipcbus.gmd.gmd_settings import FOREVER_NS, GmdErrorNumber, ZeroReceivers
from ipcbus.gmd.message_places import MessagePlaces
from ipcbus.gmd.ordered_names import OrderedNames
from ipcbus.gmd.registered_receiver import RegisteredReceiver, ResentBuilder, may_be_said, whole_copy
from ipcbus.wire import gmd_messages
from ipcbus.wire.control_messages import NUMBER_MAX
from ipcbus.wire.gmd_messages import Ack, Leave, Nack, Register, ResendRequest
from ipcbus.wire.number_ranges import NumberRanges

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable

    from ipcbus.gmd.expected_names import ExpectedName, Ranges
    from ipcbus.gmd.gmd_events import GmdEvent
    from ipcbus.gmd.gmd_settings import SenderSettings
    from ipcbus.gmd.registered_receiver import SendControl
    from ipcbus.gmd.sender_area import SenderArea
    from ipcbus.wire.gmd_messages import GmdRequest

_FULL_NS = 1_000_000
"""Time in ns after which a channel without room is tried again."""


class GmdSender:
    """The state of one guaranteed source."""

    def __init__(
        self,
        area: SenderArea,
        topic: int,
        settings: SenderSettings,
        now_ns: int,
        *,
        opening: int,
    ) -> None:
        """Takes over what the area has; its messages are pending, and its names are waited for.

        Args:
            area: the source's area, just opened.
            topic: the session's number of the topic.
            settings: options of the source.
            now_ns: the time of the monotonic clock, as in all calls.
            opening: a random number of 64 bits, one for each opening of the area.
        """
        self.area, self.topic, self.settings = area, topic, settings
        self.names = ExpectedNames(area.note)
        self.places = MessagePlaces(area, opening)
        """Where the messages stand in their topics."""
        self._terms = DeliveryTerms()
        self._deadlines = Deadlines()
        self._kept = NumberRanges()
        self._noted_number = area.last_number
        self._failures: deque[tuple[int, int, ExpectedName, int]] = deque()
        self._events: deque[GmdEvent] = deque()
        self._receivers: dict[tuple[Hashable, int], RegisteredReceiver] = {}
        self._order: deque[RegisteredReceiver] = deque()
        self.builder = ResentBuilder(area, self.places.run, lambda number: self._lose([(number, number)]))
        self._check_ns = now_ns
        self.ordered = OrderedNames(area, confirms=settings.confirms)
        """Takes acknowledgements that come in order, in compiled code."""
        self.refused = 0
        """Registrations that were refused."""
        self.ignored = 0
        """Messages of receivers that are not registered, of another incarnation, or of numbers that were not given."""
        self._acknowledgements = 0
        self.failures = 0
        """Messages that failed, once for each receiver."""
        self._recover(now_ns)

    # ------------------------------------------------------------------ what the source does

    @property
    def current_terms(self) -> tuple[int, int]:
        """Mode, and delivery timeout in ns, of messages that are saved without a call of `terms`."""
        return self._terms.current

    def terms(self, mode: int, timeout_ns: int) -> None:
        """Sets the terms of the messages that are saved from now on.

        Args:
            mode: `SOME` or `ALL`.
            timeout_ns: the delivery timeout; 0 for none.

        Raises:
            GmdError: the area cannot note the timeout.
        """
        self._take_over()
        number = self.area.last_number + 1
        if timeout_ns != self._terms.current[1]:
            self.area.note(timeout_note(number, timeout_ns))
        self._terms.change(number, mode, timeout_ns)

    @property
    def pending(self) -> int:
        """The number of messages whose copies are in the area."""
        if self.ordered.acks.is_ready:
            return self.area.last_number + 1 - self.ordered.acks.low
        return self._kept.count(1, self.area.last_number)

    @property
    def acknowledgements(self) -> int:
        """Messages that were acknowledged, once for each receiver."""
        return self._acknowledgements + self.ordered.acks.count

    @property
    def lowest(self) -> int:
        """The lowest number whose copy is in the area; the number after the last one without a copy."""
        return self.ordered.acks.low if self.ordered.acks.is_ready else self._kept.front[0]

    @property
    def oldest(self) -> int:
        """The lowest number of these messages; 0 without one."""
        number = self.lowest
        return number if number <= self.area.last_number else 0

    @property
    def expected(self) -> list[str]:
        """The names of the receivers that are expected to acknowledge messages to come."""
        return [name.name for name in self.names if name.is_active]

    @property
    def connected(self) -> list[str]:
        """The names of the receivers that are connected."""
        return [name.name for name in self.names if name.is_connected]

    def status(self, number: int) -> GmdStatus:
        """Returns which receivers have acknowledged a message."""
        self._take_over()
        if not 0 < number <= self.area.last_number:
            return GmdStatus(Standing.UNKNOWN)
        if number not in self._kept:
            return GmdStatus(Standing.DONE)
        failed = tuple(
            (name.name, error) for name in self.names.all for error, numbers in name.failed.items() if number in numbers
        )
        return GmdStatus(
            Standing.FAILED if failed else Standing.PENDING,
            tuple(name.name for name in self.names if any(name.acknowledged(number, number))),
            failed,
            tuple(name.name for name in self.names if number in name.owed),
        )

    def resend(self, number: int | None, now_ns: int) -> int:
        """Sends a failed message again, or all of them; returns the number of messages.

        A message that failed because no receiver was expected goes to the receivers that are expected now.
        """
        self._take_over()
        first, last = (1, self.area.last_number) if number is None else (number, number)
        again = NumberRanges()
        for name in list(self.names.all):
            ranges = name.failed_within(first, last)
            if not ranges:
                continue
            for part in ranges:
                again.add(*part)
            active = [each for each in self.names if each.is_active]
            is_new = name is self.names.unassigned and bool(active)
            for each in active if is_new else [name]:
                self._expect_again(each, ranges, now_ns, is_new=is_new)
        self._note_deadlines(again, now_ns)
        return sum(end - begin + 1 for begin, end in again)

    def delete(self, first: int, last: int | None = None) -> int:
        """Deletes the copies of a message, or of the messages first..last; returns how many there were."""
        self._take_over()
        ranges = self._kept.within(max(1, first), min(first if last is None else last, self.area.last_number))
        for receiver in self._receivers.values():
            for begin, end in ranges:
                for part in (*receiver.name.owed.within(begin, end), *receiver.name.failed_within(begin, end)):
                    receiver.deletes.add(*part)
            self._has_work(receiver)
        for begin, end in ranges:
            self._release(begin, end)
        return sum(end - begin + 1 for begin, end in ranges)

    def forget(self, name: str, now_ns: int) -> bool:
        """Takes a name off; returns False if there is no such name.

        Messages that only this receiver was to acknowledge go to the receivers that are expected now, or wait for the
        first one. A connected receiver is refused, and may register again.
        """
        self._take_over()
        found = self.names.by_name.get(name)
        if found is None:
            return False
        for receiver in [each for each in self._receivers.values() if each.name is found]:
            self._remove_receiver(receiver)  # with what it has asked for: the name has nothing to answer from
            self._refuse(receiver.peer, receiver.instance, gmd_messages.UNREGISTERED, now_ns)
        last = self.area.last_number
        self.names.close(found, last + 1)
        left = [*found.owed.within(1, last), *found.failed_within(1, last)]
        others = [each for each in self.names.all if each is not found]
        sets = [numbers for each in others for numbers in (each.owed, *each.failed.values())]
        alone = [part for begin, end in left for part in without(begin, end, sets)]
        acknowledged = NumberRanges(
            part for begin, end in alone for each in others for part in each.acknowledged(begin, end)
        )
        waiting = [part for begin, end in alone for part in acknowledged.without(begin, end)]
        self.names.forget(found, waiting)
        for each in [name for name in self.names if name.is_active] if waiting else ():
            self._expect_again(each, waiting, now_ns, is_new=True)
        self._settle(left)
        self._check_ns = now_ns
        return True

    # ------------------------------------------------------------------ what comes from receivers

    def receive(self, peer: Hashable, message: GmdRequest, now_ns: int) -> None:
        """Takes a message of a receiver.

        Args:
            peer: names the control channel; no other channel may speak for a receiver that registered through it.
            message: what `gmd_messages.decode` returned.
            now_ns: the time.
        """
        if isinstance(message, Ack) and self.ordered.take(peer, message):
            return
        self._take_over()
        if isinstance(message, Register):
            self._register(peer, message, now_ns)
            return
        receiver = self._receivers.get((peer, message.instance))
        if receiver is None or not may_be_said(message, self.area):
            self.ignored += 1
            if not isinstance(message, Leave):
                self._refuse(peer, message.instance, gmd_messages.UNREGISTERED, now_ns)
        elif isinstance(message, Ack):
            self._acknowledged(receiver, message.ranges, now_ns)
        elif isinstance(message, ResendRequest):
            receiver.ask(message, self.area.last_number)
            self._has_work(receiver)
        elif isinstance(message, Nack):
            ranges = self._kept.within(message.number, min(message.number, self.area.last_number))
            self._fail(
                receiver.name, [part for each in ranges for part in receiver.name.owed.within(*each)], message.error
            )
        else:
            self._gone(receiver, now_ns)

    def knows(self, peer: Hashable, instance: int) -> bool:
        """Returns whether a receiver has registered through this channel."""
        return (peer, instance) in self._receivers

    def lost_peer(self, peer: Hashable, now_ns: int) -> None:
        """Takes note that a control channel has ended; what becomes of its receivers says their disconnect mode."""
        self._take_over()
        for key, receiver in list(self._receivers.items()):
            if key[0] == peer:
                self._gone(receiver, now_ns)
        self._order = deque(receiver for receiver in self._order if receiver.peer != peer)

    def _register(self, peer: Hashable, message: Register, now_ns: int) -> None:
        known = self.names.by_name.get(message.name)
        for receiver in list(self._receivers.values()):
            if receiver.name is known:
                if receiver.instance != message.instance:
                    self._refuse(peer, message.instance, gmd_messages.NAME_IN_USE, now_ns)
                    return
                self._remove_receiver(receiver)  # it has a new channel, or registers again
        if known is None and len(self.names.by_name) >= self.settings.names_max:
            self._refuse(peer, message.instance, gmd_messages.TOO_MANY_NAMES, now_ns)
            return
        following = self.area.last_number + 1
        try:
            self._treat_unexpected()
            name = self.names.register(message.name, message.disconnect_mode, following)
        except GmdError:
            self._refuse(peer, message.instance, gmd_messages.AREA_FAILED, now_ns)
            return
        name.is_connected = True
        receiver = RegisteredReceiver(peer, self.topic, message.instance, name, now_ns + self.settings.probe_ns)
        self._receivers[peer, message.instance] = receiver
        self._say_registered(receiver)
        self._check_ns = now_ns
        self._events.append(Registration(name.name, is_connected=True, is_expected=True))

    def _say_registered(self, receiver: RegisteredReceiver) -> None:
        """Says to a receiver how far the numbers are, upon which it asks for all that it has not acknowledged."""
        area, low, following = self.area, self._kept.front[0], self.area.last_number + 1
        receiver.answers.append(
            gmd_messages.registered(
                self.topic, receiver.instance, area.incarnation, self.places.opening, low, following, area.sender
            )
        )
        self._has_work(receiver)

    def _say_next(self, receiver: RegisteredReceiver) -> None:
        """Says to a receiver how far the numbers are, upon which it asks for what it misses."""
        low, following = self._kept.front[0], self.area.last_number + 1
        receiver.answers.append(
            gmd_messages.upcoming(self.topic, receiver.instance, self.area.incarnation, low, following)
        )
        self._has_work(receiver)

    def _refuse(self, peer: Hashable, instance: int, refusal: int, now_ns: int) -> None:
        """Sends a refusal through a receiver that exists for this only."""
        self.refused += 1
        if len(self._order) > 2 * self.settings.names_max:
            return  # some peer floods the source; a receiver without an answer registers again
        receiver = RegisteredReceiver(peer, self.topic, instance, self.names.unassigned, FOREVER_NS)
        receiver.answers.append(gmd_messages.refused(self.topic, instance, refusal))
        self._order.append(receiver)
        self._check_ns = now_ns

    def _acknowledged(self, receiver: RegisteredReceiver, ranges: Ranges, now_ns: int) -> None:
        name, last_number = receiver.name, self.area.last_number
        receiver.probe_at_ns, receiver.probe_interval_ns = now_ns + self.settings.probe_ns, 0
        found = [
            part
            for first, last in ranges
            for part in (
                *name.owed.within(first, min(last, last_number)),
                *(name.failed_within(first, last) if name.failed else ()),
            )
        ]
        if found:
            self._acknowledgements += sum(end - begin + 1 for begin, end in found)
            self.names.acknowledge(name, found)
            self._settle(found)

    def _gone(self, receiver: RegisteredReceiver, now_ns: int) -> None:
        """Takes note that a receiver went away."""
        name = receiver.name
        self._remove_receiver(receiver)
        name.gone_ns = now_ns
        if name.disconnect_mode != gmd_messages.WARM:
            self._give_up(name)
        self._check_ns = now_ns
        self._events.append(Registration(name.name, is_connected=False, is_expected=name.is_active))

    def _give_up(self, name: ExpectedName) -> None:
        """Expects nothing more from a name that went away."""
        last = self.area.last_number
        owed = name.owed.within(1, last)
        self.names.close(name, last + 1)
        if name.disconnect_mode == gmd_messages.GMD_SUCCESS:
            self.names.acknowledge(name, owed)
            self._settle(owed)
            return
        is_exit = name.disconnect_mode == gmd_messages.GMD_FAILURE
        self._fail(name, owed, GmdErrorNumber.RECEIVER_EXIT if is_exit else GmdErrorNumber.RECEIVER_TIMEOUT)

    def _remove_receiver(self, receiver: RegisteredReceiver) -> None:
        receiver.name.is_connected = False
        del self._receivers[receiver.peer, receiver.instance]
        if receiver in self._order:
            self._order.remove(receiver)

    # ------------------------------------------------------------------ time

    def turn(self, now_ns: int, send: SendControl) -> int:
        """Sends what receivers wait for, within a budget, and treats what is due.

        Args:
            now_ns: the time.
            send: sends a control message to a peer, see `registered_receiver.SendControl`.

        Returns:
            When to call again at the latest, unless something happens before.
        """
        self._take_over()
        due_ns = self._turn(now_ns, send)
        self.ordered.begin(self._kept, self.names, self._terms, self._receivers.values())
        return due_ns

    def _take_over(self) -> None:
        """Ends the short way of acknowledgements until the next turn; called before its state is read or changed."""
        self.ordered.take_over(self._kept, self._events)

    def _turn(self, now_ns: int, send: SendControl) -> int:
        if self.area.last_number > self._noted_number:
            self._note_sent(now_ns)
        if now_ns >= self._check_ns:
            self._check(now_ns)
        left = self.settings.turn_bytes
        blocked: list[RegisteredReceiver] = []
        while self._order and left > 0:
            receiver = self._order.popleft()
            sent = receiver.step(self.area, self.settings, self.builder, send)
            if sent is None:
                blocked.append(receiver)
                continue
            left -= sent + gmd_messages.RESENT_HEADER
            if receiver.has_work:
                self._order.append(receiver)
        if self._order:
            self._order.extend(blocked)
            return now_ns
        self._order.extend(blocked)
        return min(self._check_ns, now_ns + _FULL_NS) if blocked else self._check_ns

    def _check(self, now_ns: int) -> None:
        """Treats deadlines, receivers that do not return, and receivers that are silent."""
        for first, last in self._deadlines.take(now_ns):
            for name in list(self.names.all):
                parts = [part for each in self._kept.within(first, last) for part in name.owed.within(*each)]
                self._fail(name, parts, GmdErrorNumber.SENDER_TIMEOUT)
        self._treat_unexpected()  # of an area whose owner died before it did
        self._check_ns = self._deadlines.next_ns
        timeout_ns = self.settings.reconnect_timeout_ns
        for name in [each for each in self.names if not each.is_connected] if timeout_ns else ():
            due_ns = name.gone_ns + timeout_ns
            if due_ns > now_ns:
                self._check_ns = min(self._check_ns, due_ns)
            elif name.is_active or name.owed:
                self._give_up(name)
                self._events.append(Registration(name.name, is_connected=False, is_expected=False))
        for receiver in self._receivers.values():
            self._probe(receiver, now_ns)
        low = self._kept.front[0]
        self._terms.drop_below(low)
        self.places.drop_below(low)
        self.names.drop_below(low)

    def _probe(self, receiver: RegisteredReceiver, now_ns: int) -> None:
        """Says to a receiver how far the numbers are if it has been silent for too long."""
        owes = bool(receiver.name.owed.within(1, self.area.last_number))
        if receiver.is_silent(self.settings, now_ns, owes=owes) and not receiver.answers:
            self._say_next(receiver)
        self._check_ns = min(self._check_ns, receiver.probe_at_ns)

    def _note_sent(self, now_ns: int) -> None:
        """Takes note of the messages that were saved since the last time."""
        first, last = self._noted_number + 1, self.area.last_number
        self._noted_number = last
        self._note_deadlines([(first, last)], now_ns)
        self._treat_unexpected()
        if any(receiver.probe_at_ns == FOREVER_NS for receiver in self._receivers.values()):
            self._check_ns = now_ns

    def _note_deadlines(self, ranges: Iterable[tuple[int, int]], now_ns: int) -> None:
        for first, last in ranges:
            for begin, end, _, timeout_ns in self._terms.runs(first, last):
                if timeout_ns:
                    self._deadlines.add(begin, end, timeout_ns, now_ns)
                    self._check_ns = min(self._check_ns, now_ns + timeout_ns)

    def _treat_unexpected(self) -> None:
        """Treats messages for which no receiver was expected, unless they wait."""
        unassigned, rule = self.names.unassigned, self.settings.zero_receivers
        if rule is ZeroReceivers.WAIT or not unassigned.owed:
            return
        ranges = unassigned.owed.within(1, self.area.last_number)
        if rule is ZeroReceivers.FAILURE:
            self._fail(unassigned, ranges, GmdErrorNumber.NO_RECEIVERS)
        elif ranges:
            self.names.acknowledge(unassigned, ranges)
            self._complete(ranges)

    # ------------------------------------------------------------------ events

    def next_event(self) -> GmdEvent | None:
        """Returns the next event; None without one."""
        self.ordered.tell(self._events)
        if self._events:
            return self._events.popleft()
        while self._failures:
            first, last, name, error = self._failures.popleft()
            numbers = name.failed.get(error)
            left = numbers.within(first, last)[:1] if numbers else []
            if left:
                number = left[0][0]
                if number < last:
                    self._failures.appendleft((number + 1, last, name, error))
                message = whole_copy(self.area, number)
                return GmdFailure(number, name.name, error, message.send_time_ns if message else 0, message)
        return None

    def _fail(self, name: ExpectedName, ranges: Ranges, error: int) -> None:
        """Takes note that messages failed for a name; one that another name may still acknowledge does not fail."""
        failed: list[tuple[int, int]] = []
        skipped: list[tuple[int, int]] = []
        for first, last in ranges:
            for begin, end, mode, _ in self._terms.runs(first, last):
                others = [each.owed for each in self.names if each is not name] if mode == SOME else []
                found = without(begin, end, others)
                failed += found
                skipped += NumberRanges(found).without(begin, end) if others else ()
        self.names.skip(name, skipped)
        if failed:
            self.names.fail(name, failed, error)
            for first, last in failed:
                self.failures += last - first + 1
                self._failures.append((first, last, name, error))

    def _expect_again(self, name: ExpectedName, ranges: Ranges, now_ns: int, *, is_new: bool) -> None:
        self.names.expect(name, ranges)
        for receiver in self._receivers.values():
            if receiver.name is name and is_new:
                self._say_registered(receiver)
            elif receiver.name is name:
                self._say_next(receiver)
        if not name.is_connected:
            name.gone_ns = now_ns
            self._check_ns = now_ns

    def _lose(self, ranges: Ranges) -> None:
        """Takes note that the copies of messages are damaged: no receiver can get them any more."""
        for first, last in ranges:
            self.names.release(first, last)
        unassigned = self.names.unassigned
        self.names.fail(unassigned, ranges, GmdErrorNumber.AREA_DAMAGED)
        self._failures.extend((first, last, unassigned, GmdErrorNumber.AREA_DAMAGED) for first, last in ranges)

    def _settle(self, ranges: Ranges) -> None:
        """Completes those of these messages that are done."""
        done = [
            part
            for first, last in ranges
            for each in self._kept.within(first, last)
            for part in self.names.done(*each, self._terms)
        ]
        self._complete(done)

    def _complete(self, ranges: Ranges) -> None:
        for first, last in ranges:
            self._release(first, last)
            if self.settings.confirms:
                self._events.append(Confirmed(first, last))

    def _release(self, first: int, last: int) -> None:
        self._kept.remove(first, last)
        self.names.release(first, last)
        self.area.release(first, last)

    def _has_work(self, receiver: RegisteredReceiver) -> None:
        if receiver.has_work and receiver not in self._order:
            self._order.append(receiver)

    # ------------------------------------------------------------------ the area

    def checkpoint(self) -> list[bytes]:
        """Returns the whole state as notes."""
        self.ordered.learn(self._kept)
        low = self._kept.front[0]
        return [*self.names.checkpoint(), *self._terms.notes(low), *self.places.notes(low)]

    def _recover(self, now_ns: int) -> None:
        recovered, last = self.area.recovered(), self.area.last_number
        timeouts: list[tuple[int, int]] = []
        for payload in recovered.notes:
            note = sender_notes.decode(payload)
            if note is None:
                continue
            if note.kind == sender_notes.TIMEOUT:
                timeouts += note.ranges
            else:
                self.places.replay(note)
                self.names.replay(note)
        self._terms.recover(recovered.modes, timeouts)
        self._kept = NumberRanges([*recovered.unreleased, *recovered.damage, (last + 1, NUMBER_MAX)])
        for first, end in self._kept.without(1, last):
            self.names.release(first, end)
        self.names.begin_again_at(last + 1)
        # Only now: from the next call on, the area may begin a segment with what `checkpoint` returns.
        self.area.checkpoint = self.checkpoint
        self._lose(recovered.damage)
        self._settle(recovered.unreleased)
        for name in self.names.all:
            name.gone_ns = now_ns
            if name.id or recovered.notes:
                self._failures.extend(
                    (*part, name, error)
                    for error, numbers in name.failed.items()
                    if error != GmdErrorNumber.AREA_DAMAGED
                    for part in numbers
                )
        self._note_deadlines(recovered.unreleased, now_ns)
