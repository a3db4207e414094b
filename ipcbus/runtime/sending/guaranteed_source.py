"""The guaranteed messages of one source: its GMD area, the protocol above it, and the lock of both."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from typing import TYPE_CHECKING, Any

from ipcbus.delivery.received_message import Origin, resent_message
from ipcbus.errors import GmdError
from ipcbus.gmd.gmd_events import Confirmed, GmdFailure, GmdSourceStatistics
from ipcbus.gmd.gmd_settings import FOREVER_NS, GmdErrorNumber, SenderSettings, ZeroReceivers
from ipcbus.gmd.sender_state import GmdSender
from ipcbus.message import SourceEvent, SourceEventType
from ipcbus.runtime.gmd_areas import CHECK_NS
from ipcbus.topic import send_errors
from ipcbus.topic.message_saver import MessageSaver
from ipcbus.wire.gmd_messages import Ack

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from ipcbus.config import SourceOptions
    from ipcbus.gmd.gmd_events import GmdStatus
    from ipcbus.gmd.sender_area import SenderArea
    from ipcbus.message import Message
    from ipcbus.wire.gmd_messages import GmdRequest

log = logging.getLogger("ipcbus")

_LOOK_NS = 100_000_000
"""Time in ns between two looks at what a busy source has sent, for the timers of its messages."""
_EVENTS_A_TURN = 100
_SYNC_DELAY_S = 0.005
"""Time that the thread of durability `group` leaves an application to wait for its messages, which syncs them: a sync
of its own before that would only delay the other one."""


class _PublishedArea:
    """The area as the protocol sees it: without the message that a thread is about to send."""

    def __init__(self, area: SenderArea, saver: MessageSaver) -> None:
        self._area, self._saver = area, saver

    @property
    def last_number(self) -> int:
        """The number of the last message that was sent."""
        return self._area.last_number - self._saver.sends

    @property
    def checkpoint(self) -> Callable[[], list[bytes]]:
        """Returns the notes with which a segment of the area begins."""
        return self._area.checkpoint

    @checkpoint.setter
    def checkpoint(self, notes: Callable[[], list[bytes]]) -> None:
        self._area.checkpoint = notes

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the area has
        return getattr(self._area, name)


class GuaranteedSource(MessageSaver):
    """The guaranteed messages of one source.

    The source calls the methods of `MessageSaver`, the driver calls `receive`, `lost`, `turn` and `take_events`, and
    any thread calls the others.
    """

    def __init__(
        self,
        area: SenderArea,
        topic_number: int,
        settings: SenderSettings,
        origin: Origin,
        hurry: Callable[[], None],
        opening: int,
    ) -> None:
        """Takes over what the area has.

        Args:
            area: the source's area, just opened; this object closes it.
            topic_number: the session's number of the topic.
            settings: the options of the source.
            origin: topic and source string.
            hurry: makes the event loop call `turn` soon; any thread calls this.
            opening: stands for this opening of the area, see `gmd_messages.opening_of`.
        """
        self._lock = threading.Lock()
        self.area, self.origin = area, origin
        self._hurry = hurry
        self._sync_lock = threading.Lock()
        self._published = _PublishedArea(area, self)
        self.sender = GmdSender(
            self._published,
            topic_number,
            settings,
            time.monotonic_ns(),
            opening=opening,
        )
        self._ordered_acks = self.sender.ordered.acks
        super().__init__(area.save, self._lock)  # the first message calls `_change_terms`
        self._timeout_ns = self.sender.current_terms[1]
        self._is_watched = False  # whether `turn` is due by itself
        self._noted_number = area.last_number
        self._oldest = (0, 0)  # number and send time of the oldest pending message
        self._closed = False
        self._check_ns = 0
        self._syncs: threading.Event | None = None
        self._is_syncing = False  # whether the thread that syncs looks at new messages by itself
        self._ended = threading.Event()

    # ------------------------------------------------------------------ sending

    def _change_terms(self, mode: int, timeout_ns: int) -> None:
        if self.closes:
            raise send_errors.closed(self.origin.topic)
        self.sender.places.begin_sending()
        self.sender.terms(mode, timeout_ns)
        self._timeout_ns = timeout_ns

    def _unsave(self, number: int) -> None:
        with self._lock:
            try:
                self.area.unsave(number)
                self.sends = False
            except GmdError:
                # Acknowledgements came meanwhile, so that the number is used; receivers skip it.
                self.sends = False
                self.sender.delete(number)
        if self.closes:
            self._close_area()

    def _correct_place(self, number: int, place: int) -> None:
        with self._lock, contextlib.suppress(GmdError):  # the next send raises the error
            self.sender.places.correct(number, place)

    def _after_send(self) -> None:
        with self._lock:
            was_watched, self._is_watched = self._is_watched, True
            if self._syncs is not None and not self._is_syncing:
                self._is_syncing = True
                self._syncs.set()
            self.watches = True
        if not was_watched:
            self._hurry()
        if self.closes:
            self._close_area()

    # ------------------------------------------------------------------ on the driver

    def receive(self, peer: Hashable, message: GmdRequest, now_ns: int) -> None:
        """Takes a message of a receiver, from the channel `peer`."""
        with self._lock:
            if self.sends and isinstance(message, Ack) and message.ranges[-1][1] == self.area.last_number:
                # The receiver has the last message before the thread that sent it has said so.
                self.sends = not self.sender.knows(peer, message.instance)
            if not self._closed:
                self.sender.receive(peer, message, now_ns)

    def lost(self, peer: Hashable, now_ns: int) -> None:
        """Takes note that a channel has ended."""
        with self._lock:
            if not self._closed:
                self.sender.lost_peer(peer, now_ns)

    def turn(self, now_ns: int, send: Callable[[Hashable, bytes, bool], bool]) -> int:
        """Sends what receivers wait for; returns when to call again, in ns of the monotonic clock."""
        with self._lock:
            if self._closed:
                return FOREVER_NS
            due_ns = min(self.sender.turn(now_ns, send), self._check_area(now_ns))
            last_number = self._published.last_number
            self._is_watched = last_number > self._noted_number or self.sends
            self.watches = self._is_watched and (self._syncs is None or self._is_syncing)
            self._noted_number = last_number
            timeout_ns = self._timeout_ns or 10 * _LOOK_NS
        # While messages are sent, their times are noted by a timer, not by each send.
        return min(due_ns, now_ns + min(_LOOK_NS, timeout_ns // 10 + 1)) if self._is_watched else due_ns

    def _check_area(self, now_ns: int) -> int:
        """Looks whether the area is still there, and writes what waits; returns when to look again."""
        if now_ns >= self._check_ns:
            self._check_ns = now_ns + CHECK_NS
            try:
                self.area.check()
                if not self.sends:
                    self.area.write_releases()
            except GmdError as error:
                log.error("topic %r: %s", self.origin.topic, error)
        return self._check_ns if self.sender.pending or self.area.has_unwritten_releases else FOREVER_NS

    def take_events(self) -> list[SourceEvent]:
        """Returns the events for the application; `has_events` says whether there are more."""
        found: list[SourceEvent] = []
        with self._lock:
            while len(found) < _EVENTS_A_TURN and not self._closed:
                event = self.sender.next_event()
                if event is None:
                    break
                if isinstance(event, GmdFailure):
                    found.append(self._failure(event))
                elif isinstance(event, Confirmed):
                    found.append(
                        SourceEvent(
                            SourceEventType.GMD_DELIVERED,
                            gmd_sequence_number=event.last,
                            first_gmd_sequence_number=event.first,
                        )
                    )
        return found

    def _failure(self, event: GmdFailure) -> SourceEvent:
        return SourceEvent(
            SourceEventType.GMD_FAILURE,
            message=self._message(event),
            receiver=event.receiver,
            error_number=int(event.error_number),
            send_time_ns=event.send_time_ns,
            gmd_sequence_number=event.number,
            first_gmd_sequence_number=event.number,
        )

    def _message(self, event: GmdFailure) -> Message | None:
        copy = event.message
        if copy is None:
            return None
        numbers = self.sender.places.topic_numbers(copy)
        return resent_message(self.origin, event.number, copy.send_time_ns, numbers, copy.block, copy.data, 0)

    # ------------------------------------------------------------------ calls of the application

    @property
    def last_number(self) -> int:
        """The GMD number of the last message that was sent; 0 before the first."""
        return self._published.last_number

    @property
    def pending(self) -> int:
        """The number of messages whose copies are kept."""
        acks = self._ordered_acks
        if acks.is_ready:
            low = acks.low
            return max(0, self.area.last_number - self.sends + 1 - low)
        with self._lock:
            return self.sender.pending

    def counters(self) -> dict[str, int]:
        """Returns the counters, by their names in the layout."""
        found = self.ended_counters()
        with self._lock:
            sender = self.sender
            if self._closed:
                return found
            if sender.oldest != self._oldest[0]:
                self._oldest = sender.oldest, self._send_time(sender.oldest)
            age_ns = time.time_ns() - self._oldest[1] if self._oldest[1] else 0
            found["gmd_oldest_ns"] = max(age_ns, 0)  # the clock may have been set back
            return found | {"gmd_pending": sender.pending, "gmd_area_bytes": self.area.size}

    def statistics(self) -> GmdSourceStatistics:
        """Returns its figures; those of its area are 0 when it is closed."""
        found = self.counters()
        with self._lock:
            sender = self.sender
            return GmdSourceStatistics(
                found.get("gmd_pending", 0),
                found.get("gmd_area_bytes", 0),
                found["gmd_oldest_ns"] / 1e9 if found.get("gmd_pending") else None,
                sender.acknowledgements,
                sender.failures,
                sender.builder.messages,
                sender.refused,
                sender.ignored,
            )

    def ended_counters(self) -> dict[str, int]:
        """Returns the counters that stay when the source is closed."""
        return {"gmd_acks_rcved": self.sender.acknowledgements, "gmd_failures": self.sender.failures}

    def _send_time(self, number: int) -> int:
        """Returns when a message was sent, in ns since the epoch; 0 without a copy."""
        with contextlib.suppress(GmdError):
            copy = self.area.load(number) if number else None
            return copy.send_time_ns if copy is not None else 0
        return 0

    @property
    def expected(self) -> list[str]:
        """The names of the receivers that are expected to acknowledge messages to come."""
        with self._lock:
            return self.sender.expected

    @property
    def connected(self) -> list[str]:
        """The names of the receivers that are connected."""
        with self._lock:
            return self.sender.connected

    def status(self, number: int) -> GmdStatus:
        """Returns which receivers have acknowledged a message."""
        with self._lock:
            return self.sender.status(number)

    def resend(self, number: int | None) -> int:
        """Sends a failed message again, or all of them; returns how many."""
        with self._lock:
            count = self.sender.resend(number, time.monotonic_ns())
        self._hurry()
        return count

    def delete(self, number: int) -> bool:
        """Deletes a message; returns whether it was kept."""
        with self._lock:
            count = self.sender.delete(number)
        self._hurry()
        return count > 0

    def forget(self, name: str) -> bool:
        """Takes a receiver off; returns whether it was known."""
        with self._lock:
            known = self.sender.forget(name, time.monotonic_ns())
        self._hurry()
        return known

    def set_max_size(self, size: int) -> None:
        """Changes the limit of the area, in bytes; 0 for none."""
        with self._lock:
            self.area.max_size = size

    def wait_durable(self, number: int, timeout: float | None) -> bool:
        """Waits until a message survives a power loss; returns False when the time is over."""
        if self.area.durable_number >= number:
            return True
        if not self._sync_lock.acquire(timeout=-1 if timeout is None else max(timeout, 0)):
            return False
        try:
            if self.area.durable_number < number:
                self.area.sync()
            return True
        finally:
            self._sync_lock.release()

    # ------------------------------------------------------------------ durability `group`

    def start_syncing(self) -> None:
        """Starts a thread that syncs the files in turns, while there is something to sync."""
        self._syncs = threading.Event()
        thread = threading.Thread(target=self._sync_in_turns, name=f"ipcbus gmd {self.origin.topic}", daemon=True)
        thread.start()

    def _sync_in_turns(self) -> None:
        syncs = self._syncs
        while syncs is not None and not self.closes:
            syncs.wait()
            syncs.clear()
            try:
                while number := self._unsynced():
                    self._ended.wait(_SYNC_DELAY_S)
                    self.wait_durable(number, None)
            except GmdError:  # the next send raises it, or wakes this thread
                with self._lock:
                    self._is_syncing = self.watches = False

    def _unsynced(self) -> int:
        """Returns the last message if it is not synced; else 0, and the next message wakes the thread that asks."""
        with self._lock:
            last_number = self.area.last_number
            self._is_syncing = not self._closed and self.area.durable_number < last_number
            self.watches = self._is_watched and self._is_syncing
            return last_number if self._is_syncing else 0

    # ------------------------------------------------------------------ the end

    def close(self) -> None:
        """Closes the area; what is not acknowledged stays in its files.

        If a thread is about to send a message, it closes the area when it has found that the source is closed.
        """
        self.closes = True
        if not self.sends:
            self._close_area()

    def _close_area(self) -> None:
        self._ended.set()
        if self._syncs is not None:
            self._syncs.set()
        with self._sync_lock, self._lock:
            if not self._closed:
                self._closed = True
                self.area.close()


def settings_of(options: SourceOptions) -> SenderSettings:
    """Returns the terms of the protocol for the options of a source."""
    return SenderSettings(
        zero_receivers=ZeroReceivers(options.gmd_zero_receivers),
        reconnect_timeout_ns=options.gmd_reconnect_timeout * 1_000_000_000,
        confirms=options.gmd_confirm_delivery,
    )


def describe(error_number: int) -> str:
    """Returns the name of an error number in words."""
    try:
        return GmdErrorNumber(error_number).name.lower().replace("_", " ")
    except ValueError:
        return f"error {error_number}"
