"""Backpressure: a send without room waits or raises `WouldBlock`, and evicts receivers that are too slow."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from typing import TYPE_CHECKING

from ipcbus.errors import MessageTooLarge, WouldBlock
from ipcbus.wire.wire_layout import TRANSPORT_LBTIPC
from ringbuf.layout import RECORD_ALIGN, RECORD_HEADER, RECORD_TRAILER

if TYPE_CHECKING:
    from collections.abc import Callable

    from ipcbus.runtime.sending.sending_sessions import SendingSessions
    from ipcbus.topic.topic_source import TopicSource
    from ipcbus.transport.sending_session import SendingSession

log = logging.getLogger("ipcbus")

SPINS = 2000
"""Polls of a full ring before a sender sleeps."""
WAIT_NS = 20_000_000
"""The longest sleep of a blocked sender in ns; the sender then checks for signals and for a closed context."""
DRIVEN_WAIT_NS = 200_000
"""As `WAIT_NS` for a sender that has to drive the context in between."""
WARN_AFTER_NS = 1_000_000_000
"""Time after which a send that waits for a receiver of its own process that no thread drives says so."""


class Backpressure:
    """The backpressure of one session (topic.send_policy.SendPolicy)."""

    def __init__(self, sending_sessions: SendingSessions, session: SendingSession) -> None:
        self._sending_sessions = sending_sessions
        self._session = session
        self._free, self._waiting = threading.Condition(), 0

    def ring_full(self, need: int, block: bool, source: TopicSource) -> bool:
        """Waits until there is room, or raises `WouldBlock`; returns whether it waited."""
        writer = self._session.channel.writer
        if writer.has_room(need):
            return False
        self._session.give_up_if_cut_short()
        if self._session.batch.damaged:
            return False  # the next try raises
        inside = self._sending_sessions.inside_callback()
        if inside or not block:
            self._sending_sessions.evict_slow_receivers(self._session, need)
            self._refuse(need, source, inside)
            return False
        self._wait(need, source)
        return True

    def begin_fragments(self, need: int, block: bool, source: TopicSource) -> bool:
        """Raises if a message in fragments must not wait and has no room; returns whether it must not wait."""
        if block and not self._sending_sessions.inside_callback():
            return False
        if not self._session.plan.source_paced:
            writer = self._session.channel.writer
            window = writer.capacity
            if need + RECORD_HEADER + RECORD_ALIGN + RECORD_TRAILER * self._session.plan.checksums > window:
                has_option = self._session.plan.transport == TRANSPORT_LBTIPC
                cure = "raise transport_lbtipc_transmission_window_size" if has_option else "send it in parts"
                raise MessageTooLarge(
                    f"topic {source.topic!r}: a message of {need} bytes with its headers exceeds the window of "
                    f"{window} bytes of {self._session.source_string} and cannot be sent without a wait: "
                    f"{cure}, or let the send block, outside of callbacks"
                )
            if not writer.has_room(need):
                # Receivers that wait for the batch make the room.
                self._session.batch.flush()
            self.ring_full(need, False, source)
        return True

    def _refuse(self, need: int, source: TopicSource, inside: bool) -> None:
        writer = self._session.channel.writer
        error = WouldBlock(
            f"topic {source.topic!r}: the window of {self._session.source_string} is full"
            + (
                "; a send inside a callback never waits: keep the message and send it after the source's "
                "WAKEUP event, or send from another thread"
                if inside
                else "; send again after the source's WAKEUP event, or let the send block"
            )
            + f" (slowest receiver: {self._sending_sessions.slowest(self._session)})"
        )
        try:
            self._sending_sessions.pending_wakeups.expect(self._session, error)
            if writer.want_event(need):
                writer.count_would_block()
                raise error
        finally:
            del error  # or its traceback, which refers to this frame, would keep the exception alive

    def _wait(self, need: int, source: TopicSource) -> None:
        session, sending_sessions = self._session, self._sending_sessions
        begin = time.monotonic_ns()
        checked, warned = begin, False
        try:
            with (
                session.blocked(begin),
                contextlib.nullcontext() if session.evictor is None else session.evictor.wait(),
            ):
                while not session.batch.gate and not source.closed:
                    driven = sending_sessions.must_drive()
                    helped = sending_sessions.read_for_undriven(session)
                    wait_ns = DRIVEN_WAIT_NS if driven or helped else WAIT_NS
                    if session.evictor is not None:
                        sending_sessions.evict_slow_receivers(session, need)
                        wait_ns = min(wait_ns, session.evictor.next_check_ns)
                    if session.channel.writer.wait_room(need, SPINS, wait_ns):
                        break
                    session.give_up_if_cut_short()
                    now = time.monotonic_ns()
                    if driven:
                        sending_sessions.drive_briefly()
                    if not warned and now - begin >= WARN_AFTER_NS:
                        warned = self._warn_of_undriven(source)
                    if now - checked >= sending_sessions.liveness_ns:
                        checked = now
                        sending_sessions.reclaim()
        finally:
            # Also after the handler of a signal or a callback has ended the wait.
            session.channel.writer.count_blocked(time.monotonic_ns() - begin)

    def _warn_of_undriven(self, source: TopicSource) -> bool:
        undriven = self._sending_sessions.undriven(self._session)
        if undriven:
            log.warning(
                "topic %r: a send on %s waits for the receiving context %r of this process, which no thread drives; "
                "call its process_events() in another thread, send with block=False, or make the transmission window "
                "larger",
                source.topic,
                self._session.source_string,
                undriven[0],
            )
        return bool(undriven)

    def wait_for_release(self, block: bool, is_shut: Callable[[], bool]) -> None:
        """Waits until another thread has left its `acquire` block, or has sent the last fragment of its message.

        Or until the members of a share have caught up.
        """
        if not block or self._sending_sessions.inside_callback():
            if self._session.held:
                self._refuse_held()
            raise WouldBlock(
                f"another thread is inside an acquire() block, or sends the fragments of a message, on "
                f"{self._session.source_string}; send again later"
            )
        driven = self._sending_sessions.must_drive()
        if driven:
            self._sending_sessions.drive_briefly()
        with self._free:
            self._waiting += 1
            try:
                # Looked at again: what has been released since its look would not wake it.
                if is_shut():
                    self._free.wait((DRIVEN_WAIT_NS if driven else WAIT_NS) / 1e9)
            finally:
                self._waiting -= 1

    def _refuse_held(self) -> None:
        error = WouldBlock(
            f"the members of a share of {self._session.source_string} have umq_ulb_flight_size messages, or half of "
            "retransmit_retention_size_limit bytes, to work off; send again after the source's WAKEUP event, or let "
            "the send block"
        )
        pending = self._sending_sessions.pending_wakeups
        try:
            pending.expect(self._session, error)
            pending.released(self._session)  # members may have caught up meanwhile
            raise error
        finally:
            del error  # as in `_refuse`

    def released(self) -> None:
        """Wakes the threads that wait in `wait_for_release`."""
        if self._waiting:
            with self._free:
                self._free.notify_all()

    def batch_opened(self) -> None:
        """Makes the driver watch the batching interval of the new batch."""
        self._sending_sessions.batch_opened()
