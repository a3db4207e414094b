"""What a send does when there is no room: it waits, or refuses, and looks who is in its way."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import TYPE_CHECKING

from ipcbus.errors import MessageTooLarge, WouldBlock
from ringbuf.layout import RECORD_ALIGN, RECORD_HEADER, RECORD_TRAILER

if TYPE_CHECKING:
    from ipcbus.runtime.sending.sending_sessions import SendingSessions
    from ipcbus.topic.topic_source import TopicSource
    from ipcbus.transport.sending_session import SendingSession

SPINS = 2000
"""Looks at a full ring before a sender sleeps."""
WAIT_NS = 20_000_000
"""Longest sleep of a blocked sender at a stretch; it then looks for signals and for a closed context."""
DRIVEN_WAIT_NS = 200_000
"""The same where the sender has to drive the context in between."""


class Backpressure:
    """What a send does when it cannot go on; one a session (topic.batch.Policy)."""

    def __init__(self, sending_sessions: SendingSessions, session: SendingSession) -> None:
        """For one session of a context."""
        self._sending_sessions = sending_sessions
        self._session = session
        self._free = threading.Condition()

    def full(self, need: int, block: bool, source: TopicSource) -> bool:
        """Waits until there is room, or refuses; says whether it waited."""
        writer = self._session.channel.writer
        if writer.has_room(need):
            return False
        self._session.give_up_if_cut_short()
        if self._session.batch.damaged:
            return False  # the next try is refused
        inside = self._sending_sessions.inside_callback()
        if inside or not block:
            self._sending_sessions.held_up(self._session, need)
            self._refuse(need, source, inside)
            return False
        self._wait(need, source)
        return True

    def whole(self, need: int, block: bool, source: TopicSource) -> bool:
        """Refuses a message in pieces that must not wait while there is no room for all of it."""
        if block and not self._sending_sessions.inside_callback():
            return False
        if not self._session.plan.source_paced:
            writer = self._session.channel.writer
            window = writer.capacity
            if need + RECORD_HEADER + RECORD_ALIGN + RECORD_TRAILER * self._session.plan.checksums > window:
                raise MessageTooLarge(
                    f"topic {source.topic!r}: a message of {need} bytes with its headers exceeds the window of "
                    f"{window} of {self._session.source_string} and cannot be sent without waiting: raise "
                    "transport_lbtipc_transmission_window_size, or let the send block, outside of callbacks"
                )
            if not writer.has_room(need):
                # Readers that wait for the batch are the ones who make room.
                self._session.batch.flush()
            self.full(need, False, source)
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
            del error  # or its traceback, which holds this frame, would keep it from vanishing

    def _wait(self, need: int, source: TopicSource) -> None:
        session, sending_sessions = self._session, self._sending_sessions
        begin = time.monotonic_ns()
        checked = begin
        try:
            with (
                session.blocked(begin),
                contextlib.nullcontext() if session.evictor is None else session.evictor.wait(),
            ):
                while not session.batch.gate and not source.closed:
                    driven = sending_sessions.drives_itself()
                    wait_ns = DRIVEN_WAIT_NS if driven else WAIT_NS
                    if session.evictor is not None:
                        sending_sessions.held_up(session, need)
                        wait_ns = min(wait_ns, session.evictor.next_check_ns)
                    if session.channel.writer.wait_room(need, SPINS, wait_ns):
                        break
                    session.give_up_if_cut_short()
                    now = time.monotonic_ns()
                    if driven:
                        sending_sessions.drive_a_little()
                    if now - checked >= sending_sessions.liveness_ns:
                        checked = now
                        sending_sessions.reclaim()
        finally:
            # Also when a signal's handler or a callback has ended the wait.
            session.channel.writer.count_blocked(time.monotonic_ns() - begin)

    def reserved(self, block: bool) -> None:
        """Waits until another thread has left its acquire block, or sent the last piece of its message."""
        if not block or self._sending_sessions.inside_callback():
            raise WouldBlock(
                f"another thread is inside an acquire() block, or in the middle of a message, on "
                f"{self._session.source_string}; send again after it"
            )
        with self._free:
            self._free.wait(0.02)

    def released(self) -> None:
        """Lets the others in."""
        with self._free:
            self._free.notify_all()

    def opened(self) -> None:
        """Somebody has to watch the batching interval from now on."""
        self._sending_sessions.batch_opened()
