"""The sources of a context whose messages shares get: what members send them, and what they assign."""

from __future__ import annotations

import functools
import logging
import threading
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

from ipcbus.message import SourceEvent, SourceEventType
from ipcbus.runtime.sending.expected_receivers import ExpectedReceivers
from ipcbus.runtime.sending.waiting_answers import WaitingAnswers
from ipcbus.shares.share_queue import ShareQueue
from ipcbus.shares.share_settings import FOREVER_NS, ShareLoss, ShareSettings
from ipcbus.topic.message_retention import Retention
from ipcbus.wire import share_messages
from ipcbus.wire.share_messages import Ack, Join, Leave, Nack, ShareRequest
from ipcbus.wire.work_entries import goes_on, take_apart

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from ipcbus.config import ContextOptions, SourceOptions
    from ipcbus.runtime.sending.retentions import Retentions
    from ipcbus.shares.share_settings import LostWork, ShareStatistics
    from ipcbus.transport.sending_session import SendingSession

log = logging.getLogger("ipcbus")

SHARES_MAX = 64
"""Most shares of a source: each keeps messages."""

_DEAD = (ShareLoss.DELIVERIES, ShareLoss.LIFETIME)
"""Why a message goes to the topic for such messages."""
_MS_NS = 1_000_000
_READ_BYTES = 1 << 20
_LOOK_NS = 100_000_000
"""Time in ns after which a source with members is looked at, if nothing calls before."""
_BURST_NS = 50_000
"""Publications that follow each other within this time are assigned together, by the thread that drives the context."""
_LOCK_S = 0.0002
"""Time in seconds for which a send waits until another thread has assigned."""


class SharedSource(Protocol):
    """A source, as far as shares use it."""

    topic: str

    def _retain(self, retention: Retention | None) -> None:
        """Lets it keep what it sends."""

    def _feed_shares(self) -> None:
        """Makes it refuse messages that are longer than all that it keeps."""

    def _hold(self, holds: bool) -> None:
        """Makes its sends wait, or lets them go on."""

    def _notify(self, event: SourceEvent, *, last: bool = False) -> None:
        """Gives an event to the application; one of the `last` ones also where the source is closed."""


@dataclass(slots=True, eq=False)
class _Shared:
    source: SharedSource
    session: SendingSession
    number: int
    settings: ShareSettings
    retention: Retention
    size_limit: int
    """Sends wait while half of these bytes wait for members."""
    is_own: bool
    """Whether the retention serves the shares only: the source has no `late_join`."""
    following: int
    """The number after the last message that the queues have."""
    dead_letter_topic: str
    queues: dict[str, ShareQueue] = field(default_factory=dict)
    is_in_pieces: bool = False
    """Whether a message in fragments is next, of which not all were read."""
    due_ns: int = 0
    published_ns: int = 0
    look_ns: int = 0
    holds: bool = False
    warned: set[ShareLoss] = field(default_factory=set)

    def is_full(self) -> bool:
        """Returns whether a share with members has as many messages, or as many bytes, as it may have."""
        most = size = -1
        for queue in list(self.queues.values()):
            if queue.has_members:
                most, size = max(most, queue.pending), max(size, queue.pending_bytes)
        if most < 0:
            return False
        if self.is_own:
            size += self.retention.retained_bytes
        unread = self.retention.next - self.following
        if most + unread >= self.settings.flight_max:  # else its messages, of one fragment or more, are not too many
            unread = self.retention.count_from(self.following)
        return most + unread >= self.settings.flight_max or 2 * size > self.size_limit


class _Section:
    """What one thread at a time does; a signal handler of that thread may come in again."""

    def __init__(self) -> None:
        self._lock, self._depth = threading.RLock(), 0

    def __enter__(self) -> None:
        self._lock.acquire()
        self._depth += 1

    def __exit__(self, *_: object) -> None:
        self.leave()

    def leave(self) -> None:
        """Lets another thread in."""
        self._depth -= 1
        self._lock.release()

    def enter_soon(self) -> bool:
        """Enters, unless another thread stays inside, or this one is inside already; returns whether it did."""
        if not self._lock.acquire(timeout=_LOCK_S):
            return False
        if self._depth:
            self._lock.release()
            return False
        self._depth = 1
        return True


class SharedSources:
    """The shares of a context's sources. Runs on the driver, but for `add`, `close`, `published` and figures.

    A message that comes alone is assigned by the thread that sends it, so that it wakes its member and no other thread.
    """

    def __init__(
        self,
        domain: str,
        hurry: Callable[[], None],
        context: ContextOptions,
        retentions: Retentions,
        released: Callable[[SendingSession], None],
    ) -> None:
        """Begins without sources.

        Args:
            domain: the bus domain.
            hurry: makes the event loop call `turn` soon; any thread calls this.
            context: the options of the context.
            retentions: what the sources of the context keep.
            released: called when sends of a session that waited for members may go on.
        """
        self._domain, self._hurry, self._retentions, self._released = domain, hurry, retentions, released
        self._entry_max = context.control_channel_message_maximum - share_messages.WORK_HEADER
        self._known: dict[tuple[SendingSession, int], tuple[SharedSource, SourceOptions]] = {}
        self._all: dict[tuple[SendingSession, int], _Shared] = {}
        self._of: dict[SendingSession, list[_Shared]] = {}
        self._send_alone: dict[SendingSession, Callable[[Hashable, bytes], bool]] = {}
        self._section = _Section()
        self._answers = WaitingAnswers()
        self._is_called = False
        self.publish: Callable[[str, str, str, LostWork], None] = lambda topic, source_topic, source, lost: None
        """Publishes a message that a share gives up: topic for such messages, its own topic, its source, the report."""
        self.malformed = 0

    def serve(self, session: SendingSession, send_alone: Callable[[Hashable, bytes], bool]) -> None:
        """Takes what sends a message to a receiver of a session at once, in any thread, or returns False."""
        self._send_alone[session] = send_alone

    def forget(self, session: SendingSession) -> None:
        """Forgets a session that has ended."""
        self._send_alone.pop(session, None)
        self._of.pop(session, None)

    def add(self, source: SharedSource, session: SendingSession, number: int, options: SourceOptions) -> None:
        """Lets members join a new source."""
        self._known[session, number] = source, options

    def close(self, session: SendingSession, number: int) -> Callable[[], None]:
        """Forgets a source that refuses sends already; any thread may call this.

        Returns:
            What tells the application which messages the members have not done; to be called without a lock.
        """
        self._known.pop((session, number), None)
        shared = self._all.pop((session, number), None)
        if shared is None:
            return _nothing
        self._of[session] = [each for each in self._of.get(session, ()) if each is not shared]
        session.held.discard(number)
        lost = {}
        with self._section:
            self._take_published(shared, time.monotonic_ns())
            for name, queue in shared.queues.items():
                lost[name] = -queue.statistics().lost
                queue.close()
                lost[name] += queue.statistics().lost
        return functools.partial(self._report_end, shared, lost)

    def close_all(self) -> list[Callable[[], None]]:
        """Forgets all sources, as `close`."""
        return [self.close(session, number) for session, number in list(self._known)]

    def _report_end(self, shared: _Shared, lost: dict[str, int]) -> None:
        shared.warned.add(ShareLoss.CLOSED)
        for name, count in lost.items():
            if count:
                log.warning(
                    "topic %r: the source is closed, and the members of share %r have not done %d of its messages; "
                    "each is reported (event SHARE_FAILURE) unless the context closes. Before closing, wait until "
                    "`shares` shows none as pending, or raise retransmit_close_timeout",
                    shared.source.topic,
                    name,
                    count,
                )
        self._report(shared, last=True)

    # ------------------------------------------------------------------ figures

    def statistics(self, session: SendingSession, number: int) -> dict[str, ShareStatistics]:
        """Returns the figures of the shares of a source, by their names."""
        shared = self._all.get((session, number))
        if shared is None:
            return {}
        entered = self._section.enter_soon()  # else another thread may give the queues messages meanwhile
        try:
            unread = shared.retention.count_from(shared.following)  # no queue has them yet
            found = {name: queue.statistics() for name, queue in list(shared.queues.items())}
        finally:
            if entered:
                self._section.leave()
        return {name: replace(each, pending=each.pending + unread) for name, each in found.items()}

    def is_busy(self, session: SendingSession, number: int) -> int:
        """Returns a number that changes while members work off messages of a source; 0 when nothing is left to do."""
        shared = self._all.get((session, number))
        if shared is None:
            return 0
        queues = [queue for queue in list(shared.queues.values()) if queue.members]
        pending = sum(queue.pending for queue in queues) + (shared.retention.published - shared.following) * len(queues)
        return pending and sum(queue.statistics().consumed for queue in queues) + 1

    def joined(self, session: SendingSession, number: int, topic: str) -> int:
        """Returns how many receivers have joined: members, and contexts with other receivers of the topic.

        A context on this host whose members have not registered yet does not count.
        """
        contexts = session.joined_contexts(number)
        if not contexts:
            return 0
        shared = self._all.get((session, number))
        members = (
            [each for queue in list(shared.queues.values()) for each in queue.members] if shared is not None else []
        )
        on_host = ExpectedReceivers(self._domain, (), topic).only_members(topic)
        return len(members) + sum(not on_host.get(each, each in members) for each in contexts)

    # ------------------------------------------------------------------ what members send

    def take(self, session: SendingSession, peer: Hashable, message: bytes) -> None:
        """Takes a message of shares from a receiver."""
        found = share_messages.decode(message)
        if found is None or not isinstance(found, ShareRequest):
            self.malformed += 1
            return
        with self._section:
            self._take(session, peer, found)

    def _take(self, session: SendingSession, peer: Hashable, found: ShareRequest) -> None:
        if isinstance(found, Join):
            self._join(session, peer, found)
            return
        shared = self._all.get((session, found.topic))
        for queue in () if shared is None else shared.queues.values():
            if not queue.knows(peer, found.instance):
                continue
            if isinstance(found, Ack):
                queue.acknowledge(peer, found.instance, found.ranges)
            elif isinstance(found, Nack):
                queue.refuse(peer, found.instance, found.number, found.delay_ns, time.monotonic_ns())
            elif isinstance(found, Leave):
                queue.leave(peer, found.instance)
        if shared is not None:
            shared.due_ns = 0

    def _join(self, session: SendingSession, peer: Hashable, found: Join) -> None:
        shared = self._all.get((session, found.topic)) or self._begin(session, found.topic)
        if shared is None:
            return  # it joins again; the source may be about to be made
        self._take_published(shared, time.monotonic_ns())  # a new share gets what is sent from now on
        queue = shared.queues.get(found.name)
        refusal = share_messages.TOO_MANY_SHARES
        if queue is None and len(shared.queues) < SHARES_MAX:
            queue = shared.queues[found.name] = ShareQueue(found.name, found.topic, shared.settings)
        if queue is not None:
            refusal = queue.join(peer, found.instance, found.context_id, found.portion)
        self._answers.add(session, peer, share_messages.joined(found.topic, found.instance, refusal))
        shared.due_ns = 0

    def _begin(self, session: SendingSession, number: int) -> _Shared | None:
        """Lets a source keep what it sends from now on, as its first member joins."""
        source, options = self._known.get((session, number), (None, None))
        if source is None or options is None:
            return None
        settings = ShareSettings(
            options.umq_ulb_flight_size,
            options.umq_ulb_message_reassignment_timeout * _MS_NS,
            options.umq_ulb_message_max_reassignments,
            options.umq_ulb_message_lifetime * _MS_NS,
            self._entry_max,
        )
        retention, size_limit = self._retentions.of(source), options.retransmit_retention_size_limit
        if is_own := retention is None:
            retention = Retention(0, 0, size_limit)
            source._retain(retention)
        source._feed_shares()
        dead = options.umq_ulb_dead_letter_topic
        shared = _Shared(source, session, number, settings, retention, size_limit, is_own, retention.next, dead)
        self._all[session, number] = shared
        self._of[session] = [*self._of.get(session, ()), shared]
        session.watch_published(self.published)
        return shared

    def lost(self, session: SendingSession, peer: Hashable) -> None:
        """Takes note that a channel has ended."""
        with self._section:
            for shared in self._of.get(session, ()):
                for queue in shared.queues.values():
                    queue.lost_peer(peer)
                shared.due_ns = 0

    # ------------------------------------------------------------------ what the source sends

    def published(self, session: SendingSession) -> None:
        """Takes note that a session has published; any thread calls this, inside a send."""
        now_ns, is_due = time.monotonic_ns(), False
        for shared in self._of.get(session, ()):
            came_ns, shared.published_ns = shared.published_ns, now_ns
            due_ns = self._assign_now(shared, now_ns) if now_ns - came_ns > _BURST_NS else 0
            if due_ns < now_ns + _LOOK_NS:
                shared.due_ns = min(shared.due_ns, due_ns)
                is_due = True
            if not shared.holds and shared.is_full():
                self._hold(shared, now_ns)
        if is_due and not self._is_called:
            self._is_called = True
            self._hurry()

    def _hold(self, shared: _Shared, now_ns: int) -> None:
        """Makes the next send of a source wait for members; a message of which fragments are sent goes on."""
        # The queues take what is complete first: the rest of a long message may need all the room that the source has.
        if self._section.enter_soon():
            try:
                self._take_published(shared, now_ns)
            finally:
                self._section.leave()
        shared.holds = True
        shared.session.held.add(shared.number)
        shared.source._hold(True)
        if not shared.is_full():
            # Members have acknowledged since: the thread that took that may not have seen that sends wait.
            shared.due_ns = 0
            self._hurry()

    def _assign_now(self, shared: _Shared, now_ns: int) -> int:
        """Assigns what was published in the thread that has sent it; returns when the driver has to go on."""
        send = self._send_alone.get(shared.session)
        if send is None or shared.session.plan.over_udp or not self._section.enter_soon():
            return 0
        try:
            self._take_published(shared, now_ns)
            return min((queue.turn(now_ns, send) for queue in list(shared.queues.values())), default=FOREVER_NS)
        finally:
            self._section.leave()

    def turn(self, session: SendingSession, now_ns: int, send: Callable[[Hashable, bytes, bool], bool]) -> int:
        """Assigns what a session has published to members; returns when to call again, in ns of the monotonic clock."""
        self._is_called = False  # first: another thread may set it meanwhile
        self._answers.send(session, send)
        due_ns = FOREVER_NS
        for shared in self._of.get(session, ()):
            if shared.due_ns <= now_ns:
                shared.due_ns = self._turn(shared, now_ns, send)
            due_ns = min(due_ns, shared.due_ns)
        return due_ns

    def _turn(self, shared: _Shared, now_ns: int, send: Callable[[Hashable, bytes, bool], bool]) -> int:
        shared.due_ns = now_ns + _LOOK_NS  # first: another thread may set it meanwhile
        due_ns, alone = FOREVER_NS, self._send_alone[shared.session]

        def assign(peer: Hashable, message: bytes) -> bool:
            return alone(peer, message) or send(peer, message, True)

        with self._section:
            self._take_published(shared, now_ns)
            for queue in list(shared.queues.values()):
                due_ns = min(due_ns, queue.turn(now_ns, assign))
        self._report(shared)
        if now_ns >= shared.look_ns:
            shared.look_ns = now_ns + _LOOK_NS
            shared.session.wake_unread()
        if shared.holds and not shared.is_full():
            shared.holds = False
            shared.source._hold(False)
            shared.session.held.discard(shared.number)
            self._released(shared.session)
        return min(due_ns, shared.due_ns)

    def _take_published(self, shared: _Shared, now_ns: int) -> None:
        """Gives the queues what was published since the last call."""
        retention, bytes_max = shared.retention, _READ_BYTES
        while shared.following < (end := retention.info()[1]):
            if shared.is_in_pieces and goes_on(retention.read(end - 1, end - 1, 1, epoch=True)[2], shared.following):
                break
            first, reached, entries = retention.read(shared.following, end - 1, bytes_max, epoch=True)
            if not entries:
                first = end
            if first > shared.following:
                for queue in shared.queues.values():
                    queue.lose(shared.following, first - 1, ShareLoss.NOT_KEPT, messages=first - shared.following)
            messages, following = take_apart(entries, first)
            for queue in shared.queues.values():
                queue.add(messages, now_ns)
            shared.following = following  # last: a thread that closes the source sees them in one place at least
            shared.is_in_pieces = bool(entries) and not messages
            if shared.is_in_pieces:
                if reached >= end:
                    break
                bytes_max *= 4
        if shared.is_own:
            retention.drop_below(shared.following)

    def _report(self, shared: _Shared, *, last: bool = False) -> None:
        """Tells the application which messages shares have given up."""
        for queue in list(shared.queues.values()):
            while (lost := queue.next_report()) is not None:
                if shared.dead_letter_topic and lost.reason in _DEAD:
                    self.publish(shared.dead_letter_topic, shared.source.topic, shared.session.source_string, lost)
                shared.source._notify(_event(lost), last=last)
                if lost.reason not in shared.warned:
                    shared.warned.add(lost.reason)
                    log.warning(
                        "topic %r: message %d is not delivered to share %r: %s; more are only counted and reported "
                        "(event SHARE_FAILURE)",
                        shared.source.topic,
                        lost.first,
                        lost.share,
                        lost.reason,
                    )

    @property
    def has_work(self) -> bool:
        """Whether `turn` is due."""
        return bool(self._answers) or any(not each.due_ns for each in list(self._all.values()))

    @property
    def any(self) -> bool:
        """Whether a source has a share."""
        return bool(self._all)


def _nothing() -> None:
    pass


def _event(lost: LostWork) -> SourceEvent:
    return SourceEvent(
        SourceEventType.SHARE_FAILURE,
        share=lost.share,
        reason=lost.reason,
        deliveries=lost.deliveries,
        sequence_number=lost.last,
        first_sequence_number=lost.first,
    )
