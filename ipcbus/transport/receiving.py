"""A session that this context has joined: ring, demux, the delivery controllers of its topics."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import numpy as np

from ipcbus.delivery.demux import Controller, Demux, Sink
from ipcbus.delivery.message import Origin, event
from ipcbus.delivery.types import MessageType
from ipcbus.resolution import names
from ipcbus.wire import layout
from ringbuf.channel import JoinedChannel
from ringbuf.errors import SegmentMismatch
from ringbuf.layout import CONTROL_HEADER, RING_HEADER, control_view
from ringbuf.words import Words

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ipcbus.resolution.adverts import SessionAdvert, SourceAdvert
    from ringbuf.slots import Identity

log = logging.getLogger("ipcbus")

_TOPIC = 24  # offset of TopicLine.topic


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
        burst_loss: int,
        failed: Callable[[Sink, Exception], None],
        told: Callable[[int], None],
    ) -> None:
        """Joins a session at its end.

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
        self.demux = Demux(self.channel.reader, advert.topics_max, self)
        self.failed = failed
        self._told = told
        self._burst_loss = burst_loss
        self._had_bos: dict[int, set[Sink]] = {}
        self._started = self.channel.joined_at > 0
        self._draining: dict[int, int] = {}
        self.ended = False

    @property
    def source_string(self) -> str:
        """The session's name."""
        return self.advert.source_string

    def receive(self, source: SourceAdvert, sinks: Sequence[Sink]) -> None:
        """Gives the topic's messages to these sinks from now on."""
        known = self.demux.controller(source.topic_number)
        if known is not None:
            known.set_sinks(sinks)
            for sink in sinks:
                self._give_bos(known, [sink])
            return
        floor = self._lines.load64(self._line(source.topic_number) + 0)
        controller = Controller(Origin(source.topic, self.source_string), source.topic_number, floor)
        controller.set_sinks(sinks)
        self.demux.set_controller(controller)
        self._joined.or64(self._word(source.topic_number), 1 << self.channel.index)
        if self._lines.load32(self._line(source.topic_number) + _TOPIC) != source.topic_number:
            # The registry that was read is old: another topic has this line now, and nobody joined it here.
            self.stop_topic(source.topic_number, drain=False)
            return
        if self._started:
            self._give_bos(controller, sinks)

    def can_receive(self, source: SourceAdvert) -> bool:
        """Whether the topic's line is free; not so while messages of a deleted topic may still come."""
        return source.topic_number < 1 << layout.TOPIC_BITS and not self.demux.line_taken(source.topic_number)

    def topics(self) -> list[Controller]:
        """The controllers of all topics that are received."""
        return self.demux.controller_list()

    def stop_topic(self, number: int, *, drain: bool) -> None:
        """Stops receiving a topic: at once, or after what is published now."""
        if drain:
            self._draining.setdefault(number, self.channel.reader.tail)
            return
        self._draining.pop(number, None)
        self._had_bos.pop(number, None)
        self._joined.and64(self._word(number), ~(1 << self.channel.index) & 0xFFFFFFFFFFFFFFFF)
        self.demux.remove_controller(number)

    def settle(self) -> bool:
        """Ends the topics that are drained; says whether there were any."""
        position = self.channel.reader.position
        done = [number for number, until in self._draining.items() if position >= until]
        for number in done:
            controller = self.demux.controller(number)
            self._draining.pop(number, None)
            if controller is not None:
                self._end(controller)
            self.stop_topic(number, drain=False)
        return bool(done)

    # What the demux hands over (delivery.demux.Rare).

    def begin(self) -> None:
        """The first record: the session has begun for every receiver of it."""
        self._started = True
        for controller in self.topics():
            self._give_bos(controller, controller.sinks)

    def gap(self, controller: Controller, first: int, last: int) -> None:
        """Reports lost messages: one event a message, or one for all when there are very many."""
        self.demux.count_lost(last - first + 1)
        # Who loses the very first messages is told of the beginning all the same.
        self._started = True
        self._give_bos(controller, controller.sinks)
        if last - first >= self._burst_loss:
            self._tell(controller, MessageType.UNRECOVERABLE_LOSS_BURST, first, last)
            return
        for number in range(first, last + 1):
            self._tell(controller, MessageType.UNRECOVERABLE_LOSS, number, number)

    # Checks by timer.

    def check_loss(self) -> None:
        """Finds losses behind which nothing follows: numbers that were published and will not come any more."""
        if not self.advert.source_paced or self.demux.blocked:
            return
        published = [(each, self._published(each)) for each in self.topics()]
        if not any(each.missing_until(until) for each, until in published):
            return
        # What was published before the numbers were read is either delivered by this, or overwritten.
        if not self.drain():
            return
        for controller, until in published:
            self._report_missing(controller, until)

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
        for controller in self.topics():
            self._end(controller)
        self.ended = True

    def counters(self) -> dict[str, int]:
        """This context's counters on the session, by their names in the statistics."""
        slot = control_view(self.channel.control.view())[2][self.channel.index]
        wanted = (
            "msgs_rcved",
            "bytes_rcved",
            "lbm_msgs_rcved",
            "lbm_msgs_no_topic_rcved",
            "lost",
            "overruns",
            "malformed",
        )
        return {name: int(slot[name]) for name in wanted}

    def leave(self) -> bool:
        """Leaves the session; True when the source waits for an event."""
        self.demux.show()
        self.demux.left = True  # called back from the middle of a record, it reads no further
        return self.channel.leave()

    def abandon(self) -> None:
        """Closes descriptors only; for a child after a fork."""
        self.channel.abandon()

    def _end(self, controller: Controller) -> None:
        self._report_missing(controller, self._published(controller))
        had_bos = self._had_bos.pop(controller.topic_number, set())
        for sink in controller.sinks:
            if sink in had_bos:
                self._event(sink, controller, MessageType.EOS, -1, -1)

    def _published(self, controller: Controller) -> int:
        """Messages of a topic with numbers below this one are published; 0 when its line is another topic's now."""
        line = self._line(controller.topic_number)
        published = self._lines.load64(line + 8)
        return published if self._lines.load32(line + 24) == controller.topic_number else 0

    def _report_missing(self, controller: Controller, until: int) -> None:
        missing = controller.missing_until(until)
        if missing:
            controller.skip_to(until)
            self.gap(controller, until - missing, until - 1)

    def _give_bos(self, controller: Controller, sinks: Sequence[Sink]) -> None:
        if not self._started:
            return
        had_bos = self._had_bos.setdefault(controller.topic_number, set())
        had_bos -= {sink for sink in had_bos if sink.closed}
        for sink in sinks:
            if sink not in had_bos:
                had_bos.add(sink)
                self._event(sink, controller, MessageType.BOS, -1, -1)

    def _tell(self, controller: Controller, kind: MessageType, first: int, last: int) -> None:
        for sink in controller.sinks:
            self._event(sink, controller, kind, first, last)

    def _event(self, sink: Sink, controller: Controller, kind: MessageType, first: int, last: int) -> None:
        self._told(1)
        sink.event(event(controller.origin, kind, first, last), self)

    def _line(self, number: int) -> int:
        return RING_HEADER.itemsize + layout.TOPIC_LINE.itemsize * (number % self.advert.topics_max)

    def _word(self, number: int) -> int:
        return CONTROL_HEADER.itemsize + 8 * (number % self.advert.topics_max)
