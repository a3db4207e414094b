"""The guaranteed sources of a context: which areas they have, what receivers send them, and their timers."""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Protocol

from ipcbus.delivery.received_message import Origin
from ipcbus.gmd.gmd_settings import FOREVER_NS
from ipcbus.runtime.gmd_areas import open_sender_area
from ipcbus.runtime.sending.ack_inlet import AckInlet
from ipcbus.runtime.sending.expected_receivers import ExpectedReceivers, gmd_identity
from ipcbus.runtime.sending.guaranteed_source import GuaranteedSource, settings_of
from ipcbus.runtime.sending.waiting_answers import WaitingAnswers
from ipcbus.topic.send_modes import MODES
from ipcbus.wire import gmd_messages
from ipcbus.wire.gmd_messages import Register
from ipcbus.wire.wire_layout import GMD_COUNTERS

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from ipcbus.config import ContextOptions, SourceOptions
    from ipcbus.message import SourceEvent
    from ipcbus.resolution.local.adverts import SessionAdvert
    from ipcbus.topic.message_saver import MessageSaver
    from ipcbus.transport.sending_session import SendingSession
    from ipcbus.wire.gmd_messages import GmdRequest

Send = "Callable[[Hashable, bytes, bool], bool]"

log = logging.getLogger("ipcbus")

_SECOND_NS = 1_000_000_000
_CLOSED_MAX = 1024
"""How many closed sources are remembered, for receivers that register late."""


class NotifiedSource(Protocol):
    """A source, as far as it is guaranteed."""

    topic: str

    @property
    def source(self) -> str:
        """The source string of its session."""

    def _guarantee(self, saver: MessageSaver | None, mode: int, timeout_ns: int) -> None:
        """Lets it send guaranteed messages."""

    def _notify_gmd(self, event: SourceEvent) -> None:
        """Gives an event to the application."""


@dataclass(slots=True, eq=False)
class _Guaranteed:
    source: NotifiedSource
    session: SendingSession
    number: int
    state: GuaranteedSource
    in_memory: bool
    due_ns: int = 0


class GuaranteedSources:
    """The guaranteed sources of a context. Runs on the driver, but for `add` and `close`."""

    def __init__(
        self, domain: str, hurry: Callable[[], None], context: ContextOptions, end_pass: Callable[[], None]
    ) -> None:
        """Begins without sources.

        Args:
            domain: the bus domain.
            hurry: makes the event loop call `turn` soon; any thread calls this.
            context: the options of the context, for the areas.
            end_pass: makes the driver, which calls this, end its pass over the sessions.
        """
        self._end_pass = end_pass
        self._inlets: dict[SendingSession, AckInlet] = {}
        self._domain, self._hurry_loop, self._context = domain, hurry, context
        self._all: dict[NotifiedSource, _Guaranteed] = {}
        self._by_topic: dict[tuple[SendingSession, int], _Guaranteed] = {}
        self._opening: dict[tuple[SendingSession, int], list[tuple[Hashable, GmdRequest]]] = {}
        self._opening_lock = threading.Lock()
        self._closed: tuple[tuple[SessionAdvert, int], ...] = ()
        """The topics of the sources that closed last."""
        self._refusals = WaitingAnswers()
        self._ended = dict.fromkeys(GMD_COUNTERS, 0)
        self.malformed = 0

    def inlet(self, session: SendingSession) -> AckInlet:
        """Returns what takes the acknowledgements of a session out of its pipes."""
        if session not in self._inlets:
            self._inlets[session] = AckInlet(partial(self._take_at_once, session))
        return self._inlets[session]

    def _take_at_once(self, session: SendingSession, peer: Hashable, message: bytes) -> None:
        """Takes a message that the driver has found in a pass."""
        self.take(session, peer, message)
        self._hurry_loop()
        self._end_pass()

    def forget(self, session: SendingSession) -> None:
        """Forgets a session that has ended."""
        self._inlets.pop(session, None)

    def expect(self, session: SendingSession, number: int) -> None:
        """Keeps what receivers send to a topic until `add`: they may find the source before its area is open."""
        self._opening[session, number] = []

    def add(
        self, source: NotifiedSource, session: SendingSession, number: int, options: SourceOptions
    ) -> GuaranteedSource | None:
        """Opens the GMD area of a new source, if it has a `gmd_name`; what is pending there is sent from now on.

        Raises:
            ipcbus.GmdError: the area cannot be opened.
        """
        if not options.gmd_name:
            return None
        try:
            return self._add(source, session, number, options)
        finally:
            self._opening.pop((session, number), None)

    def _add(
        self, source: NotifiedSource, session: SendingSession, number: int, options: SourceOptions
    ) -> GuaranteedSource:
        area = open_sender_area(self._domain, source.topic, options, self._context)
        each: _Guaranteed | None = None

        def hurry() -> None:
            if each is not None:
                each.due_ns = 0
            self._hurry_loop()

        try:
            origin = Origin(source.topic, source.source)
            origin.set_sender(options.gmd_name, area.incarnation)
            opening = gmd_messages.opening_of(session.advert.session_id, number)
            state = GuaranteedSource(area, number, settings_of(options), origin, hurry, opening)
        except BaseException:
            area.close()
            raise
        state.length_max = self._context.control_channel_message_maximum - gmd_messages.RESENT_OVERHEAD
        each = _Guaranteed(source, session, number, state, options.ipc_gmd_type == "memory")
        source._guarantee(state, MODES[options.delivery_mode], options.delivery_timeout * _SECOND_NS)
        self._all[source] = self._by_topic[session, number] = each
        self.inlet(session).add(number, state, area, state.sender.ordered.acks, partial(self._confirmed, each))
        with self._opening_lock:  # so that `lost` comes before or after all of it
            for peer, message in self._opening.pop((session, number), []):
                state.receive(peer, message, time.monotonic_ns())
        if options.gmd_durability == "group" and options.ipc_gmd_type != "memory":
            state.start_syncing()
        hurry()
        return state

    def of(self, source: object) -> GuaranteedSource | None:
        """Returns the guaranteed messages of a source; None for a source without a `gmd_name`."""
        each = self._all.get(source)  # type: ignore[call-overload]
        return None if each is None else each.state

    def unregistered(self, source: object) -> int:
        """Returns how many contexts have joined a source whose named receivers it has not registered yet."""
        each = self._all.get(source)  # type: ignore[call-overload]
        if each is None:
            return 0
        joined = each.session.joined_contexts(each.number)
        known = {gmd_identity(name) for name in each.state.connected}
        names = ExpectedReceivers(self._domain, (), each.source.topic).names(each.source.topic)
        return sum(bool(names.get(context_id, set()) - known) for context_id in joined)

    def close(self, source: object) -> None:
        """Closes the area of a source that refuses sends already; any thread may call this."""
        each = self._all.pop(source, None)  # type: ignore[call-overload]
        if each is None:
            return
        self._closed = (*self._closed[-_CLOSED_MAX + 1 :], (each.session.advert, each.number))
        self._by_topic.pop((each.session, each.number), None)
        self.inlet(each.session).remove(each.number)
        _tell_pending(each)
        each.state.close()
        self._ended = _joined(self._ended, each.state.ended_counters())

    def counters(self) -> dict[str, int]:
        """Returns the counters of all sources, by their names in the layout."""
        found = self._ended
        for each in list(self._all.values()):
            found = _joined(found, each.state.counters())
        return found

    def abandon(self) -> None:
        """Gives the areas up in the child of a fork; they belong to the parent."""
        self._all.clear()
        self._by_topic.clear()

    # ------------------------------------------------------------------ control channels

    def take(self, session: SendingSession, peer: Hashable, message: bytes) -> None:
        """Takes a message of guaranteed delivery from a receiver."""
        found = gmd_messages.decode(message)
        if found is None or not isinstance(found, gmd_messages.GmdRequest):
            self.malformed += 1
            return
        each = self._by_topic.get((session, found.topic))
        opening = self._opening.get((session, found.topic)) if each is None else None
        if opening is not None:
            opening.append((peer, found))
        elif each is not None:
            each.state.receive(peer, found, time.monotonic_ns())
            each.due_ns = 0
        elif isinstance(found, Register):
            # The messages of a closed source wait for the next one: a receiver must not deliver them as plain ones.
            is_closed = (session.advert, found.topic) in self._closed
            reason = gmd_messages.UNREGISTERED if is_closed else gmd_messages.NOT_GUARANTEED
            self._refusals.add(session, peer, gmd_messages.refused(found.topic, found.instance, reason))

    def has_room(self, session: SendingSession) -> None:
        """Takes note that a channel that had no room has some."""
        for each in self._of(session):
            each.due_ns = 0

    def lost(self, session: SendingSession, peer: Hashable) -> None:
        """Takes note that a channel has ended."""
        now_ns = time.monotonic_ns()
        with self._opening_lock:
            for (at, _), kept in list(self._opening.items()):
                if at is session:
                    kept[:] = [each for each in kept if each[0] != peer]
        for each in self._of(session):
            each.state.lost(peer, now_ns)
            each.due_ns = 0

    def turn(self, session: SendingSession, now_ns: int, send: Callable[[Hashable, bytes, bool], bool]) -> int:
        """Sends what the receivers of a session wait for; returns when to call again, in ns of the monotonic clock."""
        self._refusals.send(session, send)
        due_ns = FOREVER_NS
        for each in self._of(session):
            if each.due_ns <= now_ns:
                each.due_ns = each.state.turn(now_ns, send)
                self._notify(each)
            due_ns = min(due_ns, each.due_ns)
        return due_ns

    def _confirmed(self, each: _Guaranteed) -> None:
        """Reports deliveries as complete, after the pass of the driver."""
        each.due_ns = 0
        self._hurry_loop()
        self._end_pass()

    def _notify(self, each: _Guaranteed) -> None:
        events = each.state.take_events()
        for event in events:
            each.source._notify_gmd(event)
        if events:
            each.due_ns = 0

    def _of(self, session: SendingSession) -> list[_Guaranteed]:
        return [each for each in list(self._all.values()) if each.session is session]

    @property
    def has_work(self) -> bool:
        """Whether receivers have sent something, so that `turn` is due."""
        return bool(self._refusals) or any(not each.due_ns for each in list(self._all.values()))

    @property
    def any(self) -> bool:
        """Whether there is a guaranteed source, or an answer to a receiver that took another one for one."""
        return bool(self._all or self._refusals)


def _tell_pending(each: _Guaranteed) -> None:
    """Logs what becomes of the messages that are pending when a source closes."""
    pending = each.state.pending
    if pending and each.in_memory:
        log.warning(
            "topic %r: the source closes with %d guaranteed messages that are not acknowledged; its GMD area is in "
            "memory, so that they are gone. Wait until gmd_num_pending is 0, or keep the area in files "
            "(ipc_gmd_type)",
            each.source.topic,
            pending,
        )
    elif pending:
        log.info(
            "topic %r: the source closes with %d guaranteed messages that are not acknowledged; they stay in the GMD "
            "area, and are sent when the source is made again, or by 'ipcbus gmd agent'",
            each.source.topic,
            pending,
        )


def _joined(one: dict[str, int], other: dict[str, int]) -> dict[str, int]:
    """Returns the counters of two groups of sources together; the oldest message of both counts."""
    found = {name: one[name] + other.get(name, 0) for name in GMD_COUNTERS}
    return found | {"gmd_oldest_ns": max(one["gmd_oldest_ns"], other.get("gmd_oldest_ns", 0))}
