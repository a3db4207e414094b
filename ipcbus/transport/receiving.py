"""A session that this context has joined: its ring, and the delivery of what comes through it."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import numpy as np

from ipcbus.delivery.controller import Rules
from ipcbus.delivery.session import DeliverySession
from ipcbus.resolution import names
from ipcbus.transport.life import Silence
from ipcbus.wire import layout
from ringbuf.channel import JoinedChannel
from ringbuf.errors import SegmentMismatch
from ringbuf.layout import CONTROL_HEADER, RING_HEADER, control_view
from ringbuf.words import Words

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Sequence

    from ipcbus.config import ReceiverOptions
    from ipcbus.delivery.budget import Budget
    from ipcbus.delivery.controller import DeliveryController
    from ipcbus.delivery.sink import Sink
    from ipcbus.resolution.adverts import SessionAdvert, SourceAdvert
    from ringbuf.slots import Identity

_TOPIC = 24  # offset of TopicLine.topic
_CLOSED = 192  # offset of RingHeader.closed
_COUNTERS = (
    "msgs_rcved",
    "bytes_rcved",
    "lbm_msgs_rcved",
    "lbm_msgs_no_topic_rcved",
    "lost",
    "overruns",
    "malformed",
    "duplicates",
    "msgs_reassembled",
    "reassembly_refused",
    "order_map_entries",
    "reassembly_bytes",
)


def ring_rules(options: ReceiverOptions) -> Rules:
    """How a topic of a ring is delivered: a ring brings nothing twice, so what is missing is lost at once."""
    return Rules(
        ordered=options.ordered_delivery,
        burst_loss=options.delivery_control_maximum_burst_loss,
        caching=options.otr_message_caching_threshold,
        loss_check_ns=options.delivery_control_loss_check_interval * 1_000_000,
        recovery_ns=0,
    )


class ReceivingSession:
    """One joined session. All its methods run on whoever drives the context."""

    def __init__(
        self,
        domain: str,
        advert: SessionAdvert,
        who: Identity,
        *,
        owner_uid: int,
        sample_every: int,
        budget: Budget,
        failed: Callable[[Sink, Exception], None],
        told: Callable[[int], None],
        options: ReceiverOptions,
    ) -> None:
        """Joins a session at its end; `options` are those of the first receiver that wants it.

        Raises:
            ringbuf.errors.RingError: as `JoinedChannel`.
        """
        self.advert = advert
        ring = names.ring(domain, advert.context_id, advert.local)
        control = names.control(domain, advert.context_id, advert.local)
        self.channel = JoinedChannel(ring, control, who, owner_uid=owner_uid, sample_every=sample_every)
        header = np.frombuffer(self.channel.ring.view(), RING_HEADER, 1)[0]
        lines = advert.topics_max
        words = int(np.frombuffer(self.channel.control.view(), CONTROL_HEADER, 1)[0]["user_bytes"])
        fits = header["user_bytes"] >= lines * layout.TOPIC_LINE.itemsize and words >= 8 * lines
        if not fits or header["session_id"] != advert.session_id or lines < 1 or lines & (lines - 1):
            self.channel.leave()
            raise SegmentMismatch(
                f"{ring} is not the ring that its registry describes; its owner is damaged, restart it"
            )
        self.owner_pid = int(header["pid"])
        self._lines = Words(self.channel.ring)
        self._joined = Words(self.channel.control)
        self.delivery = DeliverySession(
            self.source_string,
            lines,
            ring=self.channel.reader,
            budget=budget,
            failed=failed,
            told=told,
            begun=self.channel.joined_at > 0,
        )
        self.demux = self.delivery.demux
        self._told = told
        self._draining: dict[int, int] = {}
        self._carried: dict[int, int] = {}
        self._joined_again = False
        self.over = False
        self.evictions = 0
        smx = advert.transport == layout.TRANSPORT_LBTSMX
        timeout = options.transport_lbtsmx_activity_timeout if smx else options.transport_lbtipc_activity_timeout
        self.silence = Silence(timeout * 1_000_000)

    @property
    def source_string(self) -> str:
        """The session's name."""
        return self.advert.source_string

    def receive(
        self, source: SourceAdvert, sinks: Sequence[Sink], options: ReceiverOptions, *, tell: bool = True
    ) -> None:
        """Gives the topic's messages to these sinks from now on.

        Args:
            source: the topic.
            sinks: who gets its messages, in this order.
            options: of its first receiver; not used when the topic is received already.
            tell: tell them of the beginning; else `tell_begin` has to follow.
        """
        number = source.topic_number
        known = self.delivery.topic(number) is not None
        floor = self._lines.load64(self._line(number) + 0)
        self.delivery.receive(number, source.topic, sinks, ring_rules(options), floor)
        carried = self._carried.pop(number, None)
        controller = self.delivery.topic(number)
        if carried is not None and controller is not None:
            controller.go_on_from(carried)
        if not known:
            self._joined.or64(self._word(number), 1 << self.channel.index)
            if self._lines.load32(self._line(number) + _TOPIC) != number:
                # The registry that was read is old: another topic has this line now, and nobody joined it here.
                self.stop_topic(number, drain=False)
                return
        if tell:
            self.delivery.begin_topic(number)

    def tell_begin(self) -> None:
        """Tells receivers of the beginning who were not told yet."""
        for controller in self.topics():
            self.delivery.begin_topic(controller.topic_number)

    def can_receive(self, source: SourceAdvert) -> bool:
        """Whether the topic's line is free; not so while messages of a deleted topic may still come."""
        return source.topic_number < 1 << layout.TOPIC_BITS and not self.demux.line_taken(source.topic_number)

    def topics(self) -> list[DeliveryController]:
        """The controllers of all topics that are received."""
        return self.delivery.topics()

    def stop_topic(self, number: int, *, drain: bool) -> None:
        """Stops receiving a topic: at once, or after what is published now."""
        if drain:
            self._draining.setdefault(number, self.channel.reader.tail)
            return
        self._draining.pop(number, None)
        self._joined.and64(self._word(number), ~(1 << self.channel.index) & 0xFFFFFFFFFFFFFFFF)
        self.delivery.remove_topic(number)

    def settle(self) -> bool:
        """Ends the topics that are drained; says whether there were any."""
        position = self.channel.reader.position
        done = [number for number, until in self._draining.items() if position >= until]
        for number in done:
            controller = self.delivery.topic(number)
            self._draining.pop(number, None)
            if controller is not None:
                self.delivery.end_topic(controller, self._published(number))
            self.stop_topic(number, drain=False)
        return bool(done)

    def check(self, now_ns: int) -> int | None:
        """By timer: finds losses behind which nothing follows, numbers that were published and will not come.

        Returns:
            When to look again, in ns; None where nothing can be lost.
        """
        if not (self.advert.source_paced or self._joined_again):
            return None
        due = self.delivery.due(now_ns)
        if due and not self.demux.blocked:
            published = [(each, self._published(each.topic_number)) for each in due]
            # What was published before the numbers were read is either delivered by this, or overwritten.
            if any(each.missing(until) for each, until in published) and self.drain():
                for controller, until in published:
                    controller.told_of(until, now_ns)
            self.delivery.check(now_ns)
        waiting = [each.rules.loss_check_ns for each in self.topics() if each.rules.loss_check_ns]
        return now_ns + min(waiting) if waiting else None

    def drain(self) -> bool:
        """Delivers everything that is there; False when a full receiver or a busy source kept it from the end."""
        reader = self.channel.reader
        position, end = -1, reader.tail
        # Messages of topics that nobody receives move the position without being delivered.
        while (handled := self.demux.poll_once(4096)) or position != reader.position:
            self._told(handled)
            position = reader.position
            if position >= end:
                break
        return not (self.demux.blocked or self.channel.reader.ready())

    def owner_died(self) -> bool:
        """Whether the source's process is gone without having closed the session."""
        return not self.channel.owner_lives()

    def finish(self) -> None:
        """The session is over and read to its end: last losses, then EOS."""
        self.over = True
        with contextlib.ExitStack() as ends:  # of all topics, also after a callback that raised no Exception
            for controller in reversed(self.topics()):
                ends.callback(self.delivery.end_topic, controller, self._published(controller.topic_number))

    # ------------------------------------------------------------------ after an eviction, or a silence

    def is_silent(self, now_ns: int) -> bool:
        """Whether the owner has shown no sign of life for too long."""
        return self.silence.too_long(self._signs(), now_ns)

    def shows_life(self) -> bool:
        """Whether there is a sign that `is_silent` has not seen; also after the session was left."""
        return self.silence.broken_by(self._signs())

    def _signs(self) -> tuple[int, int]:
        return self.channel.reader.activity, self.channel.reader.tail

    def cut_off(self) -> None:
        """The source has evicted this context: nothing more is read here."""
        self.evictions += 1
        self.tell_lost()

    def tell_lost(self) -> None:
        """Everything that is published and was not delivered is lost."""
        for controller in self.topics():
            # A callback may have led to the session being joined again, which then tells of the rest.
            if not self.over:
                controller.finish(self._published(controller.topic_number))

    def misses_more(self) -> bool:
        """Whether messages are published of whose loss its receivers were not told."""
        return any(each.missing(self._published(each.topic_number)) for each in self.topics())

    @property
    def closed(self) -> bool:
        """Whether the source has ended the session, read to its end or not."""
        return self._lines.load32(_CLOSED) != 0

    def go_on_from(self, left: ReceivingSession, numbers: Container[int]) -> None:
        """Goes on where the same session, joined before, was left; there its receivers are told of the end.

        Args:
            left: the session as it was joined before.
            numbers: topics that the source still offers: what is missing of them is found to be so here.
        """
        self._joined_again = left.over = True
        self.evictions = left.evictions
        for each in left.topics():
            if each.topic_number in numbers and each.stopped_before is not None:
                self._carried[each.topic_number] = each.stopped_before
        for each in left.topics():
            until = 0 if each.topic_number in numbers else left._published(each.topic_number)
            left.delivery.end_topic(each, until)

    def counters(self) -> dict[str, int]:
        """This context's counters on the session, by their names in the statistics."""
        slot = control_view(self.channel.control.view())[2][self.channel.index]
        return {name: int(slot[name]) for name in _COUNTERS} | {"evictions": self.evictions}

    def leave(self) -> bool:
        """Leaves the session; True when the source waits for an event."""
        self.demux.show()
        self.demux.left = True  # called back from the middle of a record, it reads no further
        return self.channel.leave()

    def abandon(self) -> None:
        """Closes descriptors only; for a child after a fork."""
        self.channel.abandon()

    def _published(self, number: int) -> int:
        """Messages of a topic with numbers below this one are published; 0 when its line is another topic's now."""
        line = self._line(number)
        published = self._lines.load64(line + 8)
        return published if self._lines.load32(line + 24) == number else 0

    def _line(self, number: int) -> int:
        return RING_HEADER.itemsize + layout.TOPIC_LINE.itemsize * (number % self.advert.topics_max)

    def _word(self, number: int) -> int:
        return CONTROL_HEADER.itemsize + 8 * (number % self.advert.topics_max)
