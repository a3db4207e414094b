"""A session that this context has joined: the source of its datagrams, and their delivery."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import logging
from typing import TYPE_CHECKING

import numpy as np

from ipcbus.delivery.delivery_rules import DeliveryRules
from ipcbus.delivery.delivery_session import DeliverySession
from ipcbus.transport.ring.activity import ActivityTimeout
from ipcbus.wire import wire_layout
from ringbuf.layout import SLOT
from ringbuf.ring_errors import SegmentMismatch

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Mapping, Sequence

    from ipcbus.config import ReceiverOptions
    from ipcbus.delivery.delivery_session import TopicLeftOff
    from ipcbus.delivery.reassembly_budget import ReassemblyBudget
    from ipcbus.delivery.recovering_controller import RecoveringController
    from ipcbus.delivery.sink import Sink
    from ipcbus.resolution.local.adverts import SessionAdvert, SourceAdvert
    from ipcbus.transport.datagram_source import DatagramSource

log = logging.getLogger("ipcbus")

_SETTLE_NS = 20_000_000
"""Time between two looks whether missing datagrams may still come."""
_PUT_OFF_NS = 1_000_000_000
_LAST_WORDS_NS = 2_000_000_000
"""Time for a source to find that its memory was cut short; it looks at each liveness check."""

_COUNTERS = (
    "msgs_rcved",
    "bytes_rcved",
    "lbm_msgs_rcved",
    "lbm_msgs_no_topic_rcved",
    "lbm_reqs_rcved",
    "lost",
    "overruns",
    "malformed",
    "duplicates",
    "msgs_reassembled",
    "reassembly_refused",
    "fragments_rcved",
    "order_map_entries",
    "reassembly_bytes",
    "views_kept",
)

_CARRIED_ON = frozenset(_COUNTERS) - {"msgs_rcved", "bytes_rcved", "overruns"}
"""The counters that the demux carries on from one ring to the next."""


def rules_of(options: ReceiverOptions, recovery_ns: int) -> DeliveryRules:
    """Returns the delivery rules of a topic.

    Args:
        options: of its receivers.
        recovery_ns: how long its transport tries to bring what is missing.
    """
    return DeliveryRules(
        ordered=options.ordered_delivery,
        burst_loss=options.delivery_control_maximum_burst_loss,
        # A message that the transport may still recover is not given up for its age; the limits of the context hold.
        caching=0 if recovery_ns else options.otr_message_caching_threshold,
        loss_check_ns=options.delivery_control_loss_check_interval * 1_000_000,
        recovery_ns=recovery_ns,
        proximity=options.retransmit_message_caching_proximity,
        waiting_max=options.otr_message_caching_threshold,
    )


class ReceivingSession:
    """One joined session. The driver of the context calls all its methods."""

    def __init__(
        self,
        advert: SessionAdvert,
        datagram_source: DatagramSource,
        *,
        owner_pid: int,
        begun: bool,
        budget: ReassemblyBudget,
        failed: Callable[[Sink, BaseException], None],
        delivered: Callable[[int], None],
        activity_timeout_ns: int,
        options: ReceiverOptions,
        reason: str = "",
    ) -> None:
        """Begins the delivery of a session that was joined just now.

        Args:
            advert: the session.
            datagram_source: what brings its datagrams.
            owner_pid: the process id of the source; 0 when it is not known.
            begun: whether the source had sent a datagram before.
            budget: the bytes that its delivery controllers and those of other sessions may hold.
            failed: called with each exception of a callback.
            delivered: called with the number of events and messages that receivers got outside of the pump.
            activity_timeout_ns: time without a sign of life after which the session has ended for its receivers.
            options: the options of the first receiver that wants it.
            reason: why the session is not read from its ring; empty where it is, or where it has no ring.
        """
        self.advert, self.datagram_source, self.options = advert, datagram_source, options
        self.reason = reason
        self.owner_pid = owner_pid
        self.delivery = DeliverySession(
            self.source_string,
            advert.topics_max,
            ring=datagram_source.reader,
            budget=budget,
            failed=failed,
            delivered=delivered,
            begun=begun,
        )
        self.delivery.on_view_kept = self._warn_of_kept_view
        self.demux = self.delivery.demux
        self.demux.set_upstream(datagram_source)
        self._delivered = delivered
        self._draining: dict[int, Callable[[], bool]] = {}
        self._ending: set[int] = set()
        """The topics of these whose receivers are just getting the end."""
        self._held_behind: dict[int, int] = {}
        """The topics that are held back behind one that has closed, and the number of the latter."""
        self._left_off: dict[int, TopicLeftOff] = {}
        self.may_end_topic: Callable[[int], bool] = lambda number: True
        """Returns whether the receivers of a topic that is read out have got what its source has sent again."""
        self._counters_before: dict[str, int] = {}
        self._rejoined = False
        # The topics with gaps, how far datagrams had shown their numbers, and whether these datagrams are settled.
        self._settling: tuple[list[tuple[RecoveringController, int]], Callable[[int], bool | None]] | None = None
        self.over = False
        self._cut_short_ns = 0
        self.evictions = 0
        self.activity_timeout = ActivityTimeout(activity_timeout_ns)

    @property
    def source_string(self) -> str:
        """The source string, which names the session."""
        return self.advert.source_string

    @property
    def reason(self) -> str:
        """Why the session is not read from its ring; empty where it is, or where it has no ring."""
        return self.datagram_source.reason

    @reason.setter
    def reason(self, reason: str) -> None:
        self.datagram_source.reason = reason

    def receive(
        self,
        source: SourceAdvert,
        sinks: Sequence[Sink],
        options: ReceiverOptions,
        *,
        begin: bool = True,
        joined: Callable[[RecoveringController, TopicLeftOff | None], object] = lambda controller, left_off: None,
    ) -> None:
        """Gives the topic's messages to these sinks too from now on.

        Args:
            source: the topic.
            sinks: the sinks that get its messages, in this order.
            options: the options of its first receiver; not used when the topic is received already.
            begin: whether to deliver the beginning of the stream; else `begin_topics` has to follow.
            joined: called before anything is delivered to new sinks, with the controller, and with what an earlier stay
                has left.
        """
        number = source.topic_number
        known = self.delivery.topic(number) is not None
        rules = rules_of(options, self.datagram_source.recovery_ns)
        self.delivery.receive(number, source.topic, sinks, rules, self.datagram_source.floor(number))
        left_off = self._left_off.pop(number, None)
        controller = self.delivery.topic(number)
        if left_off is not None and controller is not None:
            controller.go_on(left_off.controller)
        begins = None
        if controller is not None:
            begins = controller.set_floor
            controller.precedes = lambda sequence: self.datagram_source.precedes(number, sequence)
        if not known and not self.datagram_source.join_topic(number, begins):
            # The registry that was read is old: another topic has this line now, which no receiver here wants.
            self.stop_topic(number, drain=False)
            return
        if controller is not None:
            joined(controller, left_off)
            if left_off is not None:
                controller.miss_again(left_off.controller)
            if not known:
                self._hold_behind_earlier(controller)
        if begin:
            self.delivery.begin_topic(number)

    def _hold_behind_earlier(self, controller: RecoveringController) -> None:
        """Holds a topic back that has come back, until all is read that was sent before it had closed.

        Not with a recovery: what it brings would wait too.
        """
        topic, waits = controller.origin.topic, controller.is_promised and not controller.joins_late
        for number in self._draining if waits else ():
            earlier = self.delivery.topic(number)
            is_over = earlier is None or (earlier.ended and number not in self._ending)
            if earlier is not None and earlier.origin.topic == topic and not is_over:
                self.delivery.hold(controller, functools.partial(self._end_earlier, number))
                self._held_behind[controller.topic_number] = number

    def _end_earlier(self, number: int) -> None:
        """Ends a topic that has closed, before the first message that was sent after it has come back."""
        earlier = self.delivery.topic(number)
        if earlier is None or earlier.ended or self.delivery.is_beginning(number):
            return
        # What comes out of order may still be of that topic.
        if self.datagram_source.is_in_order and self.may_end_topic(number):
            self._end_topic(earlier, earlier.expected if earlier.started else 0)

    def _end_topic(self, controller: RecoveringController, following: int = 0) -> None:
        """Ends a topic; its next stay is held back until all receivers have got the end."""
        number = controller.topic_number
        self._ending.add(number)
        try:
            self.delivery.end_topic(controller, max(following, self.datagram_source.at_end(number)))
        finally:
            self._ending.discard(number)

    def left_off(self, number: int) -> TopicLeftOff | None:
        """Returns where a topic goes on that an earlier stay has left; None if no stay has left it, or it goes on."""
        return self._left_off.get(number)

    def begin_topics(self) -> None:
        """Delivers the beginning of the stream to receivers that have not got it yet."""
        for controller in self.topics():
            self.delivery.begin_topic(controller.topic_number)

    def can_receive(self, source: SourceAdvert) -> bool:
        """Returns whether the topic's line is free; it is not while messages of a deleted topic may still come."""
        return source.topic_number < 1 << wire_layout.TOPIC_BITS and not self.demux.line_in_use(source.topic_number)

    def topics(self) -> list[RecoveringController]:
        """Returns the controllers of all topics that are received."""
        return self.delivery.topics()

    def has_room(self) -> bool:
        """Returns whether each receiver that keeps messages has room."""
        return not any(
            sink.pulls and not sink.closed and sink.is_full_now() for each in self.topics() for sink in each.sinks
        )

    def has_all(self, published: Mapping[int, int]) -> bool:
        """Returns whether each message below the given numbers has come or is lost; the last one may be in pieces.

        The rest of a message in pieces may come another way: a source may wait for that, as the message is long.
        """
        known = (each for each in self.topics() if each.topic_number in published and each.started)
        return all(not each.awaits_earlier and each.expected >= published[each.topic_number] for each in known)

    def stop_topic(self, number: int, *, drain: bool) -> None:
        """Stops receiving a topic: at once, or after all that is published now."""
        if drain:
            if number not in self._draining:
                self._draining[number] = self.datagram_source.mark()
            return
        self._draining.pop(number, None)
        self._held_behind.pop(number, None)
        self.datagram_source.leave_topic(number)
        self.delivery.remove_topic(number)
        for held in [each for each, earlier in self._held_behind.items() if earlier == number]:
            del self._held_behind[held]
            self.delivery.release(held)

    def drain_withdrawn(self, offered: Container[int]) -> None:
        """Stops the topics that are not offered any more, after all that is published now."""
        for controller in self.topics():
            if controller.topic_number not in offered:
                self.stop_topic(controller.topic_number, drain=True)

    def end_drained_topics(self) -> bool:
        """Ends the topics that are read up to their marks; returns whether there were any."""
        through = [number for number, is_through in self._draining.items() if is_through()]
        found = False
        for number in [number for number in through if self.may_end_topic(number)]:
            if number in self._held_behind:
                continue  # the topic before it comes first
            found = True
            # A callback may have led here, and the other receivers get that end or beginning after it.
            if number in self._ending or self.delivery.is_beginning(number) or number not in self._draining:
                continue
            controller = self.delivery.topic(number)
            if controller is not None and not controller.ended:
                self._end_topic(controller)
            self.stop_topic(number, drain=False)
        return found

    def check(self, now_ns: int) -> int | None:
        """By timer: finds losses that no later message shows: numbers that were published and will not come.

        Returns: when to call again, in ns; None where messages cannot be lost.
        """
        if not (self.datagram_source.may_lose() or self._rejoined):
            self.delivery.end_checks()
            return None
        self._settle(now_ns)
        due = self.delivery.due(now_ns)
        if due and not self.demux.blocked:
            behind = self.datagram_source.catches_up  # datagrams that come in order, in small steps, are not missing
            published = [] if behind else [(each, self.datagram_source.published(each.topic_number)) for each in due]
            is_missing = any(each.misses_below(until) for each, until in published)
            # Messages that were published before the numbers were read are delivered by this, or overwritten. So are
            # those that fill a gap which is due: after a long callback they wait in the ring.
            if (is_missing or any(each.gives_up(now_ns) for each in due)) and self.drain() and is_missing:
                for controller, until in published:
                    controller.note_next_sequence(until, now_ns)
            self.delivery.check(due, now_ns)
        request_ns = self.datagram_source.request_infos(
            {e.topic_number for e in self.topics() if not e.started}, now_ns
        )
        times = [each.rules.next_loss_check(now_ns) for each in self.topics() if each.rules.loss_check_ns]
        if self._settling is not None:
            times.append(now_ns + _SETTLE_NS)
        return min(times if request_ns is None else [*times, request_ns], default=None)

    def _settle(self, now_ns: int) -> None:
        """Gives up gaps at once whose datagrams are known not to come, and none whose datagrams are on their way."""
        if self.demux.holds_datagram:
            return
        if self._settling is None:
            found = [(each, each.shown_below) for each in self.topics() if each.oldest_gap is not None]
            if found:
                self._settling = found, self.datagram_source.settling()
            return
        found, is_settled = self._settling
        settled = is_settled(now_ns)
        if settled is False:
            for controller in self.topics():
                controller.put_off(now_ns + _PUT_OFF_NS)
            return
        self._settling = None
        if settled:
            self.delivery.settle(found, now_ns)

    def drain(self) -> bool:
        """Delivers all that is published; returns False when a full receiver or a busy source keeps it from the end."""
        reader = self.datagram_source.reader
        position, end = -1, reader.tail
        # Messages of topics without receivers move the position without being delivered.
        while (handled := self.demux.poll_once(4096)) or position != reader.position:
            self._delivered(handled)
            position = reader.position
            if position >= end:
                break
        return not (self.demux.blocked or reader.ready())

    def skip_damage(self, now_ns: int) -> bool:
        """Skips records of a damaged ring, if that is possible now.

        Returns:
            Whether records were skipped; their messages are reported lost.
        """
        reader = self.datagram_source.reader
        if self.demux.holds_datagram or not (reader.broken or reader.out_of_sync):
            return False
        # Before the tail is read: messages that are published later are read from there on.
        published = [(each, self.datagram_source.published(each.topic_number)) for each in self.topics()]
        if not reader.resync():
            return False
        self.demux.count_damage()
        with contextlib.ExitStack() as losses:  # of all topics, also after a callback that raised no Exception
            for controller, until in reversed(published):
                losses.callback(controller.note_next_sequence, until, now_ns)
        return True

    def awaits_last_numbers(self, now_ns: int) -> bool:
        """Returns whether the source of a session that is cut short may soon say how far its topics went."""
        self._cut_short_ns = self._cut_short_ns or now_ns
        return now_ns - self._cut_short_ns < _LAST_WORDS_NS and self.datagram_source.may_say_more()

    def owner_died(self) -> bool:
        """Returns whether the source's process has died without closing the session."""
        return not self.datagram_source.owner_lives()

    def finish(self, go_on: Container[int] = ()) -> None:
        """Reports the last losses, then EOS: the session is over and read to its end.

        Args:
            go_on: the topics whose next stay may still bring what is published and did not come; it reports the rest.
        """
        self.over = True
        # The calls come in reverse, a topic that has come back last.
        with contextlib.ExitStack() as ends:  # of all topics, also after a callback that raised no Exception
            for controller in sorted(reversed(self.topics()), key=lambda each: not each.held):
                number = controller.topic_number
                until = 0 if number in go_on else self.datagram_source.at_end(number)
                ends.callback(self.delivery.end_topic, controller, until)

    # ------------------------------------------------------------------ after an eviction, or a silence

    def is_silent(self, now_ns: int) -> bool:
        """Returns whether the owner of a ring has shown no sign of life for the activity timeout.

        What receives over the network, also instead of a ring, notices that itself, and ends.
        """
        is_ring = self.datagram_source.counts_messages
        return is_ring and self.activity_timeout.too_long(self.datagram_source.life_signs(), now_ns)

    def shows_life(self) -> bool:
        """Returns whether there is a sign of life that `is_silent` has not seen; also after the session was left."""
        return self.activity_timeout.broken_by(self.datagram_source.life_signs())

    def note_eviction(self) -> None:
        """Takes note that the source has evicted this context, and reports what is lost."""
        self.evictions += 1
        self.report_losses()

    def report_losses(self) -> None:
        """Reports all messages that are published and were not delivered as lost, of topics without recovery."""
        for controller in self.topics():
            # A callback may have joined the session again, which then reports the rest.
            if not (self.over or controller.recovers):
                controller.finish(self.datagram_source.published(controller.topic_number))
        self.demux.show_tally()

    def has_unreported_losses(self) -> bool:
        """Returns whether published messages are lost and not reported to the receivers yet."""
        return any(each.misses_below(self.datagram_source.at_end(each.topic_number)) for each in self.topics())

    @property
    def closed(self) -> bool:
        """Whether the source has ended the session; records may still wait in the ring."""
        return self.datagram_source.closed

    def continue_from(self, previous: ReceivingSession, numbers: Container[int]) -> None:
        """Continues a session that was joined before, and ends the previous stay.

        Args:
            previous: the session as it was joined before; its receivers get the end.
            numbers: the topics that the source still offers; their missing messages are found, or recovered, here.
        """
        self._rejoined = previous.over = True
        # The source may have removed its ring, and this stay may never hear how far its topics went.
        self.datagram_source.take_lines(previous.datagram_source.lines)
        self.evictions = previous.evictions
        for each in previous.topics():
            if each.topic_number in numbers and (left_off := previous.delivery.leave_off(each)) is not None:
                self._left_off[each.topic_number] = left_off
        for each in sorted(previous.topics(), key=lambda each: each.held):
            until = 0 if each.topic_number in numbers else previous.datagram_source.at_end(each.topic_number)
            previous.delivery.end_topic(each, until)

    def counters(self) -> dict[str, int]:
        """Returns this context's counters on the session, by their names in the statistics."""
        found = dict(self._counters_before)
        for name, value in (self._slot() | self.datagram_source.counters()).items():
            found[name] = _combined(name, found.get(name, 0), value)
        return found | {"evictions": self.evictions}

    def damage(self) -> str:
        """Returns a text when a header of the session's shared memory is damaged; else an empty one."""
        try:
            self.datagram_source.reader.check()
        except SegmentMismatch:
            return "a header of its shared memory is damaged; close the sources of the session and make new ones"
        return ""

    def _slot(self) -> dict[str, int]:
        slot = np.frombuffer(self.datagram_source.reader.slot, SLOT, 1)[0]
        return {name: int(slot[name]) for name in _COUNTERS}

    def switch(self, datagram_source: DatagramSource, reason: str) -> bool:
        """Reads from another datagram source from now on; not while the demux holds a datagram (`holds_datagram`).

        Args:
            datagram_source: what brings everything that was not delivered yet; joined.
            reason: why it is not the ring; empty where it is.

        Returns:
            Whether the source of the session waits for an event.
        """
        self.demux.show()
        self._counters_before = {name: value for name, value in self.counters().items() if name not in _CARRIED_ON}
        before, self.datagram_source = self.datagram_source, datagram_source
        self.reason = reason
        self._settling = None
        self._draining = {number: datagram_source.mark() for number in self._draining}
        self.activity_timeout = ActivityTimeout(self.activity_timeout.timeout_ns)
        for controller in self.topics():
            rules = rules_of(self.options, datagram_source.recovery_ns)
            controller.rules = dataclasses.replace(
                controller.rules, recovery_ns=rules.recovery_ns, caching=rules.caching
            )
            datagram_source.join_topic(controller.topic_number)
        self.demux.switch_ring(datagram_source.reader, datagram_source)
        self.demux.count_lost(0)  # the slot there shows the earlier losses
        return before.leave()

    def leave(self) -> bool:
        """Leaves the session; returns whether the source waits for an event."""
        self.demux.show()
        self.demux.secure()
        self.demux.detached = True  # called back from the middle of a record, it reads no further
        return self.datagram_source.leave()

    def abandon(self) -> None:
        """Closes descriptors only; for the child process after a fork."""
        self.demux.secure()  # the child may be inside a callback; the parent reads on
        self.datagram_source.abandon()

    def _warn_of_kept_view(self) -> None:
        log.warning(
            "an array or view of a message of %s had to leave the ring: it was kept after its callback or lease, or "
            "half of the ring was read after it. "
            "It keeps its bytes, but costs more than a copy, and later views of the session may be copies: keep "
            "message.data, or copy the array before. More of this kind are only counted (views_kept)",
            self.source_string,
        )


def _combined(name: str, before: int, now: int) -> int:
    """Returns a counter over several datagram sources."""
    if name.endswith("_max"):
        return max(before, now)
    return now or before if name.endswith(("_min", "_mean")) else before + now
