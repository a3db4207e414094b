"""A session that this context sends on: its ring, open batch and topics, and the contexts that receive them."""

from __future__ import annotations

import contextlib
import logging
import threading
import weakref
from typing import TYPE_CHECKING

import numpy as np

from ipcbus.resolution.local import object_names
from ipcbus.resolution.local.adverts import SessionAdvert
from ipcbus.topic.batch import BatchWriter
from ipcbus.topic.tsni import SequenceInfos
from ipcbus.transport.ring.activity import OwnerActivity
from ipcbus.transport.ring.doorbells import Doorbells
from ipcbus.transport.ring.eviction import Evictor
from ipcbus.transport.ring.topic_lines import last_word, quiet_word
from ipcbus.wire import wire_layout
from ringbuf import segment
from ringbuf.channel import OwnedChannel, Shape
from ringbuf.doorbell import CALL, DATA
from ringbuf.layout import (
    CONTROL_HEADER,
    RECORD_ALIGN,
    RECORD_HEADER,
    RECORD_TRAILER,
    RING_HEADER,
    SLOT,
    SLOTS_MAX,
    WRITER_WANTS_EVENT,
    bytes_between,
    field_offset,
    round_up,
    slots_offset,
)
from ringbuf.shared_words import SharedWords, WatchedWord
from ringbuf.slot_doorbells import SlotDoorbells

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator

    from ipcbus.topic.send_policy import SendPolicy
    from ipcbus.topic.topic_source import TopicSource
    from ipcbus.transport.transport_kinds import SessionPlan
    from ipcbus.transport.udp.session_socket import SessionSocket
    from ipcbus.transport.udp.udp_sender import UdpSender, UdpSenderListener
    from ringbuf.answer_wait import AnswerWait

log = logging.getLogger("ipcbus")

_BURST_MAX = 1 << 14
"""Bytes to which a datagram of a burst is filled at most: a longer one saves little, and its messages wait longer."""
_CONTEXT_ID = field_offset(SLOT, "context_id")
_PARKED = field_offset(CONTROL_HEADER, "parked")
_WAITS = field_offset(CONTROL_HEADER, "writer_waits")


class SendingSession:
    """A transport session of this context; its sources share it."""

    def __init__(
        self,
        domain: str,
        context_id: int,
        local: int,
        session_id: int,
        transport_id: int,
        plan: SessionPlan,
        group: str,
        session_socket: SessionSocket | None = None,
        listener: UdpSenderListener | None = None,
        answers: AnswerWait | None = None,
    ) -> None:
        """Makes the session's shared objects.

        Args:
            domain: the bus domain.
            context_id: the id of the context.
            local: the number of the session in the context.
            session_id: 32 random bits.
            transport_id: the id in the source string.
            plan: the options that it is made with.
            group: system group that may use the objects too, or empty.
            session_socket: the socket for UDP, where `plan.udp` asks for one.
            listener: what the UDP sender reports to; needed with `session_socket`.
            answers: learns when a receiver was woken, or something was sent over the network.

        Raises:
            ringbuf.ring_errors.SegmentFull, ringbuf.ring_errors.SegmentRefused: as `OwnedChannel`.
        """
        self.domain = domain
        self.plan = plan
        self.local = local
        self.topics_max = 1 << (plan.topics_max - 1).bit_length()
        shape = self._shape(session_id, group, session_socket)
        ring, control = object_names.ring(domain, context_id, local), object_names.control(domain, context_id, local)
        self.channel = OwnedChannel(ring, control, shape)
        self.advert = SessionAdvert(
            context_id,
            local,
            plan.transport,
            session_id,
            transport_id,
            self.channel.writer.capacity,
            plan.leaves_out,
            self.topics_max,
            plan.udp.endpoint(session_socket.socket.address)
            if plan.udp is not None and session_socket is not None
            else None,
        )
        self.udp_sender: UdpSender | None = None
        if plan.udp is not None and session_socket is not None and listener is not None:
            self.udp_sender = plan.udp.sender(
                self.channel,
                session_socket,
                session_id,
                self.topics_max,
                topic_numbers=self._topic_numbers,
                listener=listener,
                twin=not plan.over_udp,
            )
        self._lines = np.frombuffer(
            self.channel.ring.view(RING_HEADER.itemsize, shape.ring_user), wire_layout.TOPIC_LINE, self.topics_max
        )
        self._waiting_sends: dict[object, int] = {}
        self._waiting_sends_lock = threading.Lock()
        self._header = np.frombuffer(self.channel.ring.view(), RING_HEADER, 1)
        self._control_words = SharedWords(self.channel.control)
        self._numbers, self._next_line, self._answers = [0] * self.topics_max, 0, answers
        self._used: dict[int, tuple[int, ...]] = {}  # lines, with `membership_changes` when their topics were added
        self._slot_doorbells = SlotDoorbells(self.channel.writer, self._ring_data_doorbell, answers)
        self._doorbells = Doorbells(domain, self.source_string, self._slot_doorbells)
        self.sources = 0
        self._batch_holders: set[object] = set()
        self._owner_activity = OwnerActivity(plan.sm_interval_ms * 1_000_000)
        self._slots_at = slots_offset(shape.control_user)
        self.evictor = Evictor(self, plan.evict_after_ms) if plan.evict_after_ms else None

    def _shape(self, session_id: int, group: str, session_socket: SessionSocket | None) -> Shape:
        plan = self.plan
        record_max = RECORD_HEADER + round_up(plan.datagram_max, RECORD_ALIGN) + RECORD_TRAILER * plan.checksums
        return Shape(
            session_id=session_id,
            # Room for two datagrams with their record headers, also where the window was given to the byte.
            window=max(plan.window, 2 * record_max),
            record_max=record_max,
            source_paced=plan.source_paced,
            slots_max=min(plan.receivers_max + (session_socket is not None), SLOTS_MAX),  # the last for the UDP sender
            ring_user=self.topics_max * wire_layout.TOPIC_LINE.itemsize
            + (wire_layout.uplink_bytes(self.topics_max) if session_socket is not None else 0),
            control_user=8 * (self.topics_max + 1),  # a word for each line, and the quiet word
            control_extra=8 * self.topics_max,
            group=group,
            evicts=plan.evict_after_ms > 0,
            checksums=plan.checksums,
        )

    def start(self, policy: SendPolicy) -> None:
        """Makes the open batch; `policy` decides what a send does when there is no room."""
        self._on_published: Callable[[SendingSession], object] | None = None
        self._all_woken_at = 0
        self.held: set[int] = set()
        """The numbers of the topics whose sends wait for members of shares."""
        self.policy = policy
        self.topic_sources: weakref.WeakValueDictionary[int, TopicSource] = weakref.WeakValueDictionary()
        self.batch = BatchWriter(
            self.channel.writer,
            policy,
            self._slot_doorbells if self.udp_sender is None else self.udp_sender.direct(self.published, self._answers),
            minimum_length=self.plan.batch_minimum,
            datagram_max=self.plan.datagram_max,
            topics_max=self.topics_max,
            topics_offset=RING_HEADER.itemsize,
            interval_ns=self.plan.batch_interval_ms * 1_000_000,
            burst_length=min(self.plan.datagram_max * 7 // 8, _BURST_MAX) if self.plan.fills_datagrams else 0,
        )
        self.infos = SequenceInfos(self.batch)

    @property
    def source_string(self) -> str:
        """The source string, which names the session."""
        return self.advert.source_string

    def has_line(self) -> bool:
        """Returns whether one more topic fits."""
        return len(self._used) < self.topics_max

    def add_topic(self) -> int:
        """Returns a number for a new topic, never given before on this session."""
        # The line freed longest ago: a context that still acts on an old registry finds no new topic on it.
        turns = (i % self.topics_max for i in range(self._next_line, self._next_line + self.topics_max))
        line = next(i for i in turns if i not in self._used)
        self._next_line = line + 1
        self._used[line] = self.membership_changes()
        number = self._numbers[line] * self.topics_max + line
        self._numbers[line] += 1
        self._control_words.and64(self._topic_mask_offset(number), 0)
        entry = self._lines[line : line + 1]
        entry[:] = 0
        entry["topic"] = number
        self.sources += 1
        return number

    def remove_topic(self, number: int) -> None:
        """Frees the line of a topic; retires it when its numbers are used up."""
        line = number % self.topics_max
        self.sources -= 1
        if (self._numbers[line] + 1) * self.topics_max <= wire_layout.TOPIC_MASK:
            self._used.pop(line, None)

    def joined_slots(self, number: int) -> int:
        """Returns the mask of the slots whose live contexts receive a topic."""
        return self._control_words.load64(self._topic_mask_offset(number)) & self.channel.slots.active_mask()

    def joined_word(self, number: int) -> WatchedWord:
        """Returns the word that is not 0 while a context receives a topic from the ring; see `is_joined`."""
        return self._control_words.watched(self._topic_mask_offset(number))

    def is_joined(self, number: int) -> bool:
        """Returns whether a context receives a topic, or was evicted and may be about to return over UDP.

        The slot of a context that has died counts until it is freed.
        """
        if self._is_in_mask(number):
            return True
        udp_sender = self.udp_sender
        # A receiver is awaited before it leaves the ring, has registered before it is not awaited any more, and joins
        # the ring before it leaves UDP. In this order, a thread that does not hold the driver misses none on its way.
        return udp_sender is not None and (
            udp_sender.awaits_evicted
            or bool(udp_sender.joined(number))
            or self._is_in_mask(number)
            or udp_sender.awaits_evicted
        )

    def _is_in_mask(self, number: int) -> bool:
        return self._control_words.load64(self._topic_mask_offset(number)) != 0

    def receivers(self, number: int) -> int:
        """Returns how many contexts receive a topic."""
        over_udp = len(self.udp_sender.joined(number)) if self.udp_sender is not None else 0
        return self.joined_slots(number).bit_count() + over_udp

    def joined_contexts(self, number: int) -> set[int]:
        """Returns the ids of the contexts that receive a topic."""
        mask, slots = self.joined_slots(number), self.channel.slots
        found = {slots.identity(slot).context_id for slot in range(slots.slots_max) if mask >> slot & 1}
        return found | {client.context_id for client in self.udp_sender.joined(number)} if self.udp_sender else found

    def membership_changes(self) -> tuple[int, ...]:
        """Returns numbers that change when a context begins to receive the session, whatever the topic."""
        slots = self.channel.slots
        changes = self.udp_sender.reliable_sender.changes if self.udp_sender is not None else 0
        return (changes, *(slots.generation(slot) for slot in range(slots.slots_max)))

    def may_have_got(self, number: int) -> bool:
        """Returns whether a context may have got a message of a topic since the topic was added.

        A context that has joined the ring behind the last record, and has read none since, got nothing. Over UDP each
        one that came counts.
        """
        over_udp, *generations = self._used[number % self.topics_max]
        changes, *now = self.membership_changes()
        if changes != over_udp:
            return True
        own = self.udp_sender.slot if self.udp_sender is not None else -1
        joined, slots, end = self.joined_slots(number), self.channel.slots, self.channel.writer.head
        for slot, (before, generation) in enumerate(zip(generations, now, strict=True)):
            came = generation - before
            if slot != own and (came or joined >> slot & 1) and (came > 1 or slots.may_have_got(slot, end)):
                return True
        return False

    @contextlib.contextmanager
    def hold_batch(self) -> Iterator[None]:
        """Keeps the timer from publishing the open batch until receivers have joined, unless one has joined already."""
        holder = object()
        try:
            if not self._is_read():
                self._batch_holders.add(holder)
            yield
        finally:
            self._batch_holders.discard(holder)

    @property
    def holds_batch(self) -> bool:
        """Whether the timer must not publish the open batch."""
        return bool(self._batch_holders)

    def _is_read(self) -> bool:
        mask = self.channel.slots.active_mask()
        if self.udp_sender is not None:
            return bool(mask & ~self.udp_sender.bit or self.udp_sender.reliable_sender.addresses)
        return bool(mask)

    def joined_receivers(self, number: int) -> dict[Hashable, tuple[int, str]]:
        """Returns process id and name of each context that receives a topic, by a key that no later one gets."""
        mask, slots = self.joined_slots(number), self.channel.slots
        found: dict[Hashable, tuple[int, str]] = {}
        for slot in range(slots.slots_max):
            if mask >> slot & 1:
                identity = slots.identity(slot)
                # With the generation, a context that left and came back at once has another key.
                found[slot, slots.generation(slot)] = (identity.pid, identity.context_name)
        for client in self.udp_sender.joined(number) if self.udp_sender is not None else ():
            found[client.address, client.cookie] = (client.pid, client.name)
        return found

    def line(self, number: int) -> np.void:
        """Returns the topic's line in the ring."""
        return self._lines[number % self.topics_max]  # type: ignore[no-any-return]

    def _topic_numbers(self, number: int) -> tuple[int, int] | None:
        """Returns the number of a topic's next message, and one below which all its messages are published."""
        line = self.line(number)
        numbers = int(line["sequence_next"]), int(line["published"])
        return (max(numbers), min(numbers)) if int(line["topic"]) == number else None

    def count_timed_out_batch(self) -> None:
        """Counts an explicit batch that was published before its end, and logs the first one."""
        self._header["batches_timed_out"] += 1
        if self._header["batches_timed_out"] == 1:
            log.warning(
                "%s: an explicit batch was open for longer than explicit_batching_interval = %d ms, and is published "
                "before its end; more are only counted. End it with end_batch, or raise the option",
                self.source_string,
                self.plan.explicit_batch_ms,
            )

    def published(self, mask: int) -> None:
        """Sends what was published over UDP, and wakes the sleeping readers of these slots.

        The only place from which the datagrams of a session over UDP leave: the batch writer calls it for each record.
        Without UDP the batch writer rings the doorbells itself.
        """
        udp_sender = self.udp_sender
        if udp_sender is not None and mask & udp_sender.bit:
            mask &= ~udp_sender.bit
            udp_sender.send_published()
        if self._on_published is not None:
            self._on_published(self)
            mask = mask and self._needing_records(mask)
        if mask:
            self._slot_doorbells.ring(mask)

    def _needing_records(self, mask: int) -> int:
        """Leaves out the readers that wait for frames of their control channels, not for records.

        All are woken for each quarter of the ring, so that they make room.
        """
        head = self.channel.writer.head
        if head - self._all_woken_at > self.channel.writer.capacity // 4:
            self._all_woken_at = head
            return mask
        return mask & ~self._quiet()

    def _quiet(self) -> int:
        return self._control_words.load64(quiet_word(self.topics_max))

    def wake(self, mask: int) -> None:
        """Wakes the sleeping readers of these slots."""
        self._slot_doorbells.ring(mask)

    def wake_unread(self) -> None:
        """Wakes all sleeping readers if something was published since the last time."""
        head = self.channel.writer.head
        if head != self._all_woken_at:
            self._all_woken_at = head
            parked = self._control_words.load64(_PARKED)
            # Its UDP sender never sleeps: its bit asks sending threads for calls, and nothing would set it again.
            self.wake(parked & ~self.udp_sender.bit if self.udp_sender is not None else parked)

    def bytes_behind(self, position: int) -> int:
        """Returns how many bytes a reader at a position has not read."""
        return bytes_between(self._header[0], position, self.channel.writer.head)

    def watch_published(self, on_published: Callable[[SendingSession], object]) -> None:
        """Has a function called for each record that is published from now on, by any thread inside a send."""
        self._on_published = on_published
        self.batch.watch(self.published)

    def notify(self, slot: int) -> None:
        """Wakes the context in a slot, asleep or not, because its slot has changed."""
        self._ring_doorbell(slot, CALL)

    @contextlib.contextmanager
    def blocked(self, since_ns: int) -> Iterator[None]:
        """Shows in the ring, while threads wait for room, since when the first of them waits.

        Args:
            since_ns: when this thread began to wait, ns of the monotonic clock.
        """
        waiting = object()
        with self._waiting_sends_lock:
            self._waiting_sends[waiting] = since_ns
            self._header["blocked_since"] = min(self._waiting_sends.values())
        try:
            yield
        finally:
            with self._waiting_sends_lock:
                del self._waiting_sends[waiting]
                self._header["blocked_since"] = min(self._waiting_sends.values(), default=0)

    def writer_waits(self) -> bool:
        """Returns whether a refused send still waits for its WAKEUP event."""
        return bool(self._control_words.load32(_WAITS) & WRITER_WANTS_EVENT)

    @property
    def cut_short(self) -> bool:
        """Whether another program has cut its ring or its control block short."""
        return segment.cut_short(self.channel.ring) | segment.cut_short(self.channel.control)

    def give_up_if_cut_short(self) -> None:
        """Refuses sends from now on if the memory was cut short, and tells receivers how far each topic went."""
        if self.cut_short and not self.batch.damaged:
            self.batch.mark_damaged()
            self._tell_last_numbers()
            log.error(
                "the shared memory of %s was cut short by another program; its sources raise SegmentDamaged from now "
                "on, and its receivers get its end. Close the sources and make new ones",
                self.source_string,
            )

    def _tell_last_numbers(self) -> None:
        """Writes into both objects what was sent, published or not; receivers find it in the one that is whole."""
        for number, source in list(self.topic_sources.items()):
            following = source.sequence_number + 1
            line = self._lines[number % self.topics_max :][:1]
            line["topic"], line["sequence_next"], line["published"] = number, following, following
            at = last_word(self.channel.control.size, self.topics_max, number)
            self._control_words.store64(at, following + 1)
        self.channel.writer.close()
        self.wake_all()

    def show_activity(self, now_ns: int) -> int:
        """Raises the activity counter, the session message of a ring, if the session was idle for its interval.

        Returns:
            The time at which to call again.
        """
        if self._owner_activity.is_due(self.channel.writer.head, now_ns):
            self.channel.writer.touch()
        return self._owner_activity.next_ns

    def wake_all(self) -> None:
        """Wakes all sleeping readers."""
        parked = self._control_words.load64(_PARKED)
        self.published(parked)
        self.wake(parked & self._quiet())

    def close(self) -> None:
        """Ends the session; joined receivers can still read what is published."""
        self.batch.close()
        self.channel.close()
        self.wake_all()
        if self.udp_sender is not None:
            self.udp_sender.close()
        self._doorbells.close()

    def abandon(self) -> None:
        """Closes descriptors only; for the child process after a fork."""
        self.batch.fork_child()
        self.channel.abandon()
        if self.udp_sender is not None:
            self.udp_sender.abandon()
        self._doorbells.abandon()

    def _ring_data_doorbell(self, slot: int) -> bool:
        return self._ring_doorbell(slot, DATA)

    def _ring_doorbell(self, slot: int, what: bytes) -> bool:
        context_id = self._control_words.load64(self._slots_at + slot * SLOT.itemsize + _CONTEXT_ID)
        return self._doorbells.ring(slot, context_id, what)

    def _topic_mask_offset(self, number: int) -> int:
        return CONTROL_HEADER.itemsize + 8 * (number % self.topics_max)
