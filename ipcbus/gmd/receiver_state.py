"""The protocol of guaranteed delivery at a named receiver, for one source topic of a session.

The user has a gate in the stream: `Gate.is_open` with `Gate.next_number`. While the gate is open, a message with
exactly that number is delivered, and one without a guarantee too; the gate counts `next_number` up, and calls nothing.
Anything else goes to `offer` or `loss`. The machine has no clock and no lock. Its user uses it from one thread at a
time, and calls:

* `offer` for each message that the gate does not let pass, and `loss` for each loss of the topic;
* `channel_lost` when the control channel ends (a machine begins without one, too);
* `receive` for each message of guaranteed delivery that comes through the channel for this topic and `instance`;
* `acknowledge` and `refuse` as the application decides, also after the session ended;
* `turn` when it is due and after these calls;
* `take` after each of these calls, until it returns None or the application has no room;
* at the end of the session `end`, then `take` until it returns None, then `detach`; `leave` gives the last message;
* after that `turn` while it `withholds` losses, which may come again from the area, and `take` on `has_losses`.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from ipcbus.gmd.gmd_settings import FOREVER_NS, GmdErrorNumber
from ipcbus.gmd.held_messages import GaveUp, HeldMessages, LiveMessage, Loss
from ipcbus.gmd.ready_messages import ReadyMessages, single
from ipcbus.wire import gmd_messages
from ipcbus.wire.control_messages import NUMBER_MAX
from ipcbus.wire.gmd_messages import Delete, Next, Registered, Resent
from ipcbus.wire.number_ranges import NumberRanges

if TYPE_CHECKING:
    from collections.abc import Callable

    from ipcbus.gmd.gmd_settings import ReceiverSettings
    from ipcbus.gmd.held_messages import ReceivedItem
    from ipcbus.gmd.received_stream import Gate, ReceivedStream, ReceivedStreams
    from ipcbus.wire.gmd_messages import GmdAnswer
    from ipcbus.wire.resent_entries import Entry, ResentEntries

_RETRY_NS = 1_000_000
"""Time in ns after which a channel without room is tried again."""
_FAILING_NS = 100_000_000
"""Time in ns after which an area that refused to record is tried again."""
_LOOK_NS = 1_000_000_000
"""Time in ns after which withheld losses are looked at again while a source sends messages again."""
_TALK_NS = 500_000_000
"""Two GMD_NEXT within this time are one."""


class Verdict(Enum):
    """What becomes of a message that was offered."""

    DELIVER = "deliver"
    """The user delivers it now."""
    HELD = "held"
    """The machine has it, or asks for it again; `take` may have something."""
    DROP = "drop"
    """It is a duplicate."""


class GmdReceiver:
    """The state of one named receiver for one source topic."""

    def __init__(
        self,
        name: str,
        topic: int,
        instance: int,
        streams: ReceivedStreams,
        settings: ReceiverSettings,
        gate: Gate,
        now_ns: int,
        *,
        opening: int,
    ) -> None:
        """Begins with a closed gate, and registers at the next `turn`.

        Args:
            name: the `gmd_name` of the receiver.
            topic: the session's number of the topic.
            instance: a random number of 64 bits, one for each start of a receiver.
            streams: the receiver's streams, which its machines for other sessions share.
            settings: options of the receiver.
            gate: the gate.
            now_ns: the time of the monotonic clock, as in all calls.
            opening: the source's opening of its area, see `gmd_messages.opening_of`.
        """
        self.name, self.topic, self.instance = name, topic, instance
        self._streams, self._settings, self._gate = streams, settings, gate
        self._order = streams.next_order()
        self.stream: ReceivedStream | None = None
        """The stream of the source; None until the receiver is registered."""
        self.is_plain = False
        """Whether the source guarantees nothing, so that everything passes."""
        self.refusal = 0
        """Why the source refused the last registration; 0 if it did not."""
        self.is_registered = False
        """Whether the source knows the receiver on this channel."""
        self._held = HeldMessages(settings.held_messages_max, settings.held_bytes_max)
        self._ready = ReadyMessages()
        self._wanted = NumberRanges()
        self.opening = opening
        """The opening of the source's area; topic numbers of this session are those of its messages."""
        self._catch_up = 0  # messages below this number come before all live ones
        self._only_resent = 0  # of live messages below this number, some may have been deleted before it registered
        self._seen = 0  # the number after the highest one that is known to exist
        self._wants_tail = False
        self._asked: tuple[int, int | None] | None = None
        self._asked_ns = self._ask_interval_ns = 0
        self._register_ns = now_ns
        self._next_said = (0, 0)
        self._is_detached = False
        self.withholds = False
        """Whether it has left the stream, and does not report losses yet."""
        self._report_ns = 0
        self._has_ended = False
        self.has_losses: Callable[[], object] = lambda: None
        """Called when losses that were withheld are to be taken."""
        gate.is_open = False
        self.duplicates = 0
        """Messages that came again after they were done."""
        self.resent = 0
        """Messages that were delivered because the source sent them again."""
        self.dropped = 0
        """Live messages that found no room behind resent ones; guaranteed ones are asked for again."""
        self.ignored = 0
        """Messages of the source that belong to another incarnation."""

    # ------------------------------------------------------------------ the live stream

    def offer(self, number: int, first: int, last: int, size: int, what: object) -> Verdict:
        """Takes a live message that the gate did not let pass.

        Args:
            number: GMD number; 0 for a message without a guarantee.
            first: first topic number.
            last: last topic number.
            size: bytes that `what` takes.
            what: the message, in a form that may be kept.
        """
        self._begin_call()
        stream = self.stream
        if self.is_plain or self._is_detached:
            if number and not self.is_plain:
                return Verdict.DROP  # the machine that goes on with the stream asks for it
            return self._pass_behind(LiveMessage(number, first, last, size, what))
        if not number and self._gate.is_open:
            return Verdict.DELIVER
        if number and stream is not None and number < stream.next_number:
            if self._came_again(stream, number):
                return Verdict.DROP
            self._held.add_loss(first, last)
            self._go_on()
            return Verdict.HELD
        if number and last < self._held.following:
            return Verdict.DROP  # it is held, or asked for
        if self._gate.is_open and stream is not None and number == stream.next_number:
            stream.next_number += 1
            self._gate.next_number = stream.next_number
            return Verdict.DELIVER
        if number:
            self._seen = max(self._seen, number + 1)
        if not self._held.add(LiveMessage(number, first, last, size, what)):
            self.dropped += 1
        elif number:
            self._wants_tail = False
        self._go_on()
        return Verdict.HELD

    def loss(self, first: int, last: int) -> Verdict:
        """Takes a loss of the topic; returns DELIVER or HELD. It is reported as far as no resent message covers it."""
        self._begin_call()
        if self.is_plain or (self._is_detached and self.stream is None and not self.withholds):
            return self._pass_behind(Loss(first, last))
        self._wants_tail |= self._held.add_loss(first, last)
        if self._is_detached and not self.withholds:
            self.report_losses()
        else:
            self._go_on()
        return Verdict.HELD

    def _pass_behind(self, item: LiveMessage | Loss) -> Verdict:
        """Lets something pass behind what is ready."""
        if not self._ready:
            return Verdict.DELIVER
        self._ready.put(item)
        return Verdict.HELD

    def take(self) -> ReceivedItem | None:
        """Returns what the user has to deliver next; None when there is nothing, and live messages may pass again.

        Entries come again until the user has taken all of them.
        """
        while self._ready:
            item = self._ready.take()
            if not self._ready:
                self._go_on()
            if item is not None:
                return item
        return None

    # ------------------------------------------------------------------ the application

    def acknowledge(self, first: int, last: int) -> None:
        """See `ReceivedStream.acknowledge`."""
        if self.stream is not None:
            self.stream.acknowledge(first, last)

    def refuse(self, number: int, delay_ns: int, now_ns: int) -> bool:
        """See `ReceivedStream.refuse`."""
        return self.stream is None or self.stream.refuse(number, delay_ns, now_ns)

    # ------------------------------------------------------------------ the source

    def channel_lost(self, now_ns: int) -> None:
        """Registers again as soon as there is a channel; the gate stays as it is."""
        self._begin_call()
        self.is_registered, self._asked, self._register_ns = False, None, now_ns

    def receive(self, message: GmdAnswer, now_ns: int) -> None:
        """Takes a message of the source, which is what `gmd_messages.decode` returned."""
        self._begin_call()
        if isinstance(message, Registered):
            self._registered(message, now_ns)
        elif self.stream is None or self._is_detached or message.incarnation != self.stream.incarnation:
            self.ignored += 1
        elif isinstance(message, Resent):
            self._resent(self.stream, message, now_ns)
        elif isinstance(message, Delete):
            self._deleted(self.stream, message)
        else:
            self._said_next(self.stream, message, now_ns)
        self._go_on()

    def _registered(self, message: Registered, now_ns: int) -> None:
        self.refusal = message.refusal
        if message.refusal == gmd_messages.NOT_GUARANTEED:
            self.is_plain = self.is_registered = True
            self._end_holding()
            return
        if message.refusal or self._is_detached:
            interval_ns = self._settings.register_interval_ns
            again = message.refusal == gmd_messages.UNREGISTERED and self.is_registered
            self.is_registered, self._asked = False, None
            self._register_ns = now_ns if again else now_ns + interval_ns
            return
        self.is_registered, self._asked = True, None
        stream = self._streams.of(message.sender, message.incarnation)
        if stream is not self.stream:
            if stream.user_order > self._order:  # an answer from before the sender's restart, read after a later one
                self.stream, self.opening = stream, message.opening
                self._leave(stream)
                return
            self._attach(stream, message.opening, message.next)
        self.opening = message.opening
        self._streams.adopt(stream, message.opening)
        stream.unsettle(0, NUMBER_MAX)
        stream.drop_below(message.low)
        for first, last in stream.acknowledged:
            stream.to_acknowledge.add(max(1, first), last) if last else None
        for first, last in stream.wanted_holes():
            self._wanted.add(first, last)

    def _attach(self, stream: ReceivedStream, opening: int, following: int) -> None:
        """Goes on with a stream; messages below `following` come before all live ones."""
        if self.stream is not None:
            self._ready.go_back(self.stream)
            self.stream.user = None
            self._wanted.clear()
        if stream.user is not None:
            stream.user.detach()
        self.stream, stream.user, stream.user_order = stream, self, self._order
        if stream.opening != opening:  # else another session of this source may have brought what is behind
            stream.opening = opening
            stream.begin_again_at(following)
        self._catch_up = self._only_resent = following

    def _resent(self, stream: ReceivedStream, message: Resent, now_ns: int) -> None:
        reached = message.first
        if message.may_come_later:
            if reached <= stream.next_number < message.next:
                stream.pass_over(message.next)
        else:
            entries = message.entries
            if entries:
                stream.settle(reached, entries.first - 1)
                reached = entries.last + 1
                self._take_entries(stream, entries)
            stream.settle(reached, message.next - 1)
        covered = min(message.next, stream.next_number) - 1
        if message.first <= covered:
            self._wanted.remove(message.first, covered)
        if self._asked is not None:
            if message.next > message.first:
                self._asked_ns, self._ask_interval_ns = now_ns, self._settings.ask_interval_ns
            if message.ends:
                self._answered(stream, message)

    def _answered(self, stream: ReceivedStream, message: Resent) -> None:
        """An answer ends; an empty one to the question for the newest messages says that there are no more."""
        is_empty = message.first == message.next
        if is_empty and self._asked is not None and self._asked[1] is None and message.first >= stream.next_number:
            self._wants_tail = False
        if not is_empty or not self._wanted:
            self._asked = None

    def _take_entries(self, stream: ReceivedStream, entries: ResentEntries) -> None:
        """Takes messages that came again; a run of the next ones stays as it came."""
        for opening, *part in entries.topic_ranges():
            self._streams.adopt(stream, opening)
            self.cover(opening, *part)
            stream.cover(opening, *part)
        stream.unsettle(entries.first, entries.last)
        if entries.is_run and entries.first == stream.next_number > stream.done.highest:
            stream.next_number = entries.last + 1
            self.resent += len(entries)
            self._ready.put(entries)
            return
        reached = entries.first
        for entry in entries:
            stream.settle(reached, entry.number - 1)
            self._take_entry(stream, entry)
            reached = entry.number + 1

    def _take_entry(self, stream: ReceivedStream, entry: Entry) -> None:
        number = entry.number
        is_late = number in stream.holes
        if number == stream.next_number:
            stream.next_number += 1
            stream.skip_done()
        elif is_late:
            stream.holes.remove(number, number)
        else:
            if number not in stream.missed:
                self._came_again(stream, number)
            return
        self.resent += 1
        self._ready.put(single(entry, self.opening, is_late=is_late))

    def _came_again(self, stream: ReceivedStream, number: int) -> bool:
        """Treats a message that is not expected; returns False, once, if it is done and was never delivered."""
        if number in stream.missed:
            stream.missed.remove(number, number)
            return False
        if number in stream.acknowledged:  # an acknowledgement may have been lost
            self.duplicates += 1
            stream.to_acknowledge.add(number, number)
        return True

    def _deleted(self, stream: ReceivedStream, message: Delete) -> None:
        ranges = NumberRanges(message.ranges)
        for number in self._ready.withdraw(ranges, self.opening):
            stream.holes.add(number, number)
        for first, last in message.ranges:
            # The source may have said before that it has released some of them.
            for part in NumberRanges([*stream.done.without(first, last), *stream.missed.within(first, last)]):
                self._ready.put(GaveUp(*part))
            stream.settle(first, last)
            stream.missed.remove(first, last)  # the event says it
            self._wanted.remove(first, last)

    def _said_next(self, stream: ReceivedStream, message: Next, now_ns: int) -> None:
        """The source has waited for acknowledgements: what neither comes nor came since its last word is missing."""
        stream.drop_below(message.low)
        self._wanted.remove(0, message.low - 1)
        known, said_ns = self._next_said
        if known != stream.next_number or not said_ns:
            self._next_said = stream.next_number, now_ns
        elif now_ns - said_ns >= _TALK_NS:
            self._catch_up = max(self._catch_up, message.next)
            self._next_said = stream.next_number, now_ns
        for first, last in stream.wanted_holes():
            self._wanted.add(first, last)

    # ------------------------------------------------------------------ order

    def _go_on(self) -> None:
        """Moves what is in order to `take`, and finds out what is missing."""
        stream = self.stream
        if stream is not None and not self._is_detached and not self.withholds and not stream.failing:
            if stream.next_number < self._catch_up:
                self._wanted.add(stream.next_number, self._catch_up - 1)
            while self._held and self._may_pass(stream):
                for item in self._held.pop():
                    self._pass(stream, item)
            if not self._held and stream.next_number < self._seen:
                self._wanted.add(stream.next_number, self._seen - 1)
            if stream.withholding and self.is_registered and stream.next_number >= self._catch_up:
                stream.report_losses()
        self.update_gate()

    def _may_pass(self, stream: ReceivedStream) -> bool:
        """Returns whether the front item is in order; notes what is missing before it."""
        message, number = self._held.front, self._held.first_number
        if message is not None and message.number and message.number <= stream.next_number:
            return message.number < stream.next_number or message.number >= self._only_resent
        if stream.next_number < self._catch_up:
            return False
        if message is not None and not message.number:
            return True
        # A message with a gap before it, or a loss: messages up to the next known number may be in the gap.
        following = number or self._seen
        if stream.next_number < following:
            self._wanted.add(stream.next_number, following - 1)
            return False
        return bool(number) or not self._wants_tail

    def _pass(self, stream: ReceivedStream, item: LiveMessage | Loss) -> None:
        if isinstance(item, LiveMessage) and item.number:
            if item.number < stream.next_number:
                if not self._came_again(stream, item.number):
                    self._ready.put(Loss(item.first, item.last))
                return
            stream.next_number += 1
            stream.skip_done()
        self._ready.put(item)

    def _begin_call(self) -> None:
        """Takes over how far the gate and acknowledgements in order are."""
        self.look_at_gate()
        if self.stream is not None:
            self.stream.take_over()

    def look_at_gate(self) -> None:
        """Takes over how far the gate is."""
        if self._gate.is_open and self.stream is not None:
            self.stream.next_number = self._gate.next_number

    def update_gate(self) -> None:
        """Opens or closes the gate as the state says."""
        stream, gate = self.stream, self._gate
        is_open = not (self._held or self._ready or self._is_detached or self._wants_tail)
        if is_open and not self.is_plain:
            is_open = stream is not None and not stream.failing
            if stream is not None and (stream.next_number < self._catch_up or stream.next_number < self._seen):
                is_open = False
            if stream is not None and stream.done.highest >= stream.next_number:
                is_open = False
        if stream is not None:
            gate.next_number = stream.next_number
            if self.is_registered and not self.is_plain and not self._is_detached:
                stream.go_on_in_order()
        gate.is_open = is_open

    # ------------------------------------------------------------------ time

    def turn(self, now_ns: int, send: Callable[[bytes], bool]) -> int:
        """Records, acknowledges, and asks for what is missing.

        Args:
            now_ns: the time.
            send: sends a control message to the source; returns False when there is no channel or no room.

        Returns:
            When to call again at the latest, unless something happens before.
        """
        self._begin_call()
        if self.is_plain or self._is_detached:
            return self._wait_to_report(now_ns) if self.withholds else FOREVER_NS
        stream = self.stream
        is_recorded = stream is None or stream.record()
        if not self.is_registered:
            if now_ns >= self._register_ns:
                message = gmd_messages.register(self.topic, self.instance, self._settings.disconnect_mode, self.name)
                sent = send(message)
                self._register_ns = now_ns + (self._settings.register_interval_ns if sent else _RETRY_NS)
            return self._register_ns
        if stream is None:
            return FOREVER_NS
        due_ns = FOREVER_NS if is_recorded else now_ns + _FAILING_NS
        if is_recorded and not self._send_acknowledgements(stream, send):
            return now_ns + _RETRY_NS
        for number in stream.take_retries(now_ns):
            self._wanted.add(number, number)
        self._go_on()
        if stream.retry_ns is not None:
            due_ns = min(due_ns, stream.retry_ns)
        return min(due_ns, self._ask(stream, now_ns, send))

    def _send_acknowledgements(self, stream: ReceivedStream, send: Callable[[bytes], bool]) -> bool:
        """Sends what is recorded as acknowledged, and what is given up; returns False when the channel has no room."""
        waiting = stream.to_acknowledge
        while waiting:
            ranges = [part for part, _ in zip(waiting, range(gmd_messages.RANGES_MAX), strict=False)]
            if not send(gmd_messages.ack(self.topic, self.instance, stream.incarnation, ranges)):
                return False
            waiting.drop_below(ranges[-1][1] + 1)
        while stream.to_refuse:
            number, error = stream.to_refuse[0], GmdErrorNumber.RECEIVER_REFUSED
            if not send(gmd_messages.nack(self.topic, self.instance, stream.incarnation, number, error)):
                return False
            del stream.to_refuse[0]
        return True

    def _ask(self, stream: ReceivedStream, now_ns: int, send: Callable[[bytes], bool]) -> int:
        """Asks for the lowest missing messages, a request at a time; returns when to call again."""
        settings = self._settings
        if not self._wanted and not self._wants_tail:
            self._asked = None
            return FOREVER_NS
        if self._asked is not None:
            if now_ns < (due_ns := self._asked_ns + self._ask_interval_ns):
                return due_ns
            self._ask_interval_ns = min(2 * self._ask_interval_ns, settings.ask_interval_max_ns)
        else:
            self._ask_interval_ns = settings.ask_interval_ns
        if self._ready.bytes >= settings.request_bytes:
            return now_ns + _RETRY_NS  # `take` may make room in the meantime
        first, last = self._wanted.front if self._wanted else (stream.next_number, None)
        message = gmd_messages.resend_request(
            self.topic, self.instance, stream.incarnation, first, last, settings.request_bytes
        )
        if not send(message):
            return now_ns + _RETRY_NS
        self._asked, self._asked_ns = (first, last), now_ns
        return now_ns + self._ask_interval_ns

    # ------------------------------------------------------------------ the end

    def end(self) -> None:
        """The session is over: what waits is delivered as far as it is in order.

        Guaranteed messages in a gap and behind it come again when the source sends again.
        """
        self._begin_call()
        self._has_ended = True
        if not self._is_detached:
            self._end_holding()
        self._gate.is_open = False

    def _end_holding(self) -> None:
        stream, losses = self.stream, list[Loss]()
        self.withholds = not self.is_plain
        while self._held:
            for item in self._held.pop():
                if isinstance(item, Loss) and self.withholds:
                    losses.append(item)
                elif isinstance(item, Loss) or not item.number or self.is_plain:
                    self._ready.put(item)
                elif stream is not None and item.number <= stream.next_number and not self._is_detached:
                    self._pass(stream, item)
                else:
                    losses.append(Loss(item.first, item.last))  # unless it comes again
        for loss in losses:
            self._held.add_loss(loss.first, loss.last)
        self._wants_tail = False

    def cover(self, opening: int, first: int, last: int) -> None:
        """Takes note that a message which was sent again had these topic numbers in an opening."""
        if opening == self.opening:
            self._held.cover(first, last)

    def report_losses(self) -> bool:
        """Lets `take` return the losses that no resent message covers; returns whether the session goes on."""
        self.withholds = False
        while self._held:
            for item in self._held.pop():
                self._ready.put(item)
        self.has_losses()
        return not self._has_ended

    def _wait_to_report(self, now_ns: int) -> int:
        """Reports losses when the sender does not return for long; returns when to call again."""
        stream = self.stream
        if not self._report_ns:
            self._report_ns = now_ns + self._settings.return_ns
        if now_ns >= self._report_ns and (stream is None or stream.user is None):
            if self in self._streams.unregistered:
                self._streams.unregistered.remove(self)
            self.report_losses()
            return FOREVER_NS
        return max(self._report_ns, now_ns + _LOOK_NS)

    def detach(self) -> None:
        """Leaves the stream to another machine, or for good.

        Guaranteed messages that `take` did not return are delivered again later; it returns the other ones, and losses.
        """
        self._begin_call()
        if self._is_detached:
            return
        stream = self.stream
        self._leave(stream)
        if stream is not None:
            self._ready.go_back(stream)
            stream.record()
            stream.user = None

    def _leave(self, stream: ReceivedStream | None) -> None:
        """Delivers nothing more; losses wait in the stream for messages that a later session brings."""
        self._is_detached = True
        self._end_holding()
        self._gate.is_open = False
        self.withholds = self.withholds and bool(self._held or not self._has_ended)
        if self.withholds:
            (stream or self._streams).withhold(self)

    def leave(self) -> bytes | None:
        """Returns the message that says to the source that the receiver is closed; None if it need not know."""
        return gmd_messages.leave(self.topic, self.instance) if self.is_registered and not self.is_plain else None
