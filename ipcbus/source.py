"""The sending handle of one topic."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from ipcbus.errors import ConfigError, WrongProcess
from ipcbus.message import SourceEvent, SourceEventType
from ipcbus.runtime.error_mapping import check_callbacks, check_count, checked_index, not_a_value
from ipcbus.runtime.loop.interrupts import shorten
from ipcbus.runtime.loop.timerfd import bounded
from ipcbus.runtime.sending.guaranteed_source import describe
from ipcbus.runtime.sending.requests import taken
from ipcbus.topic import send_errors
from ipcbus.topic.array_reservation import ArrayReservation
from ipcbus.topic.topic_source import TopicSource
from ipcbus.wait_for_joining import wait_until_joined
from ipcbus.wire.array_form import array_form

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable
    from typing import Never

    from numpy.typing import DTypeLike

    from ipcbus.config import SourceOptions
    from ipcbus.context import Context
    from ipcbus.errors import ClosedError
    from ipcbus.gmd.gmd_events import GmdSourceStatistics, GmdStatus
    from ipcbus.message import Message
    from ipcbus.runtime.sending.asking import Request
    from ipcbus.runtime.sending.guaranteed_source import GuaranteedSource
    from ipcbus.shares.share_settings import ShareStatistics
    from ipcbus.transport.sending_session import SendingSession
    from ipcbus.wire.array_form import Shape
    from ipcbus.wire.properties import Buffer, Headers

log = logging.getLogger("ipcbus")


class Source(TopicSource):
    """Sends the messages of one topic; made by `Context.source`.

    Several threads may use a source at the same time. Close it, or close its context.

    Attributes:
        topic: the name of the topic.
        message_max: bytes of the longest message that is sent in one piece; on LBT-SMX of the longest message at all.
    """

    def __init__(
        self,
        context: Context,
        topic: str,
        session: SendingSession,
        number: int,
        entry: int,
        on_event: Callable[[SourceEvent], object] | None,
        options: SourceOptions,
    ) -> None:
        """Use `Context.source` instead."""
        super().__init__(session.batch, topic, number, options.message_max)
        self._context = context
        self._session = session
        self._requests = context._sending_sessions.requests
        self._number = number
        self._joined_word = session.joined_word(number)
        self._entry = entry
        self._on_event = on_event
        self._linger_ns = options.resolver_no_receiver_linger_timeout * 1_000_000
        self._shares_ns = options.retransmit_close_timeout * 1_000_000
        self._recoveries_ns = options.retransmit_close_timeout * 1_000_000 if options.late_join else 0
        self._opened_ns = time.time_ns()
        self._keeps = options.late_join
        self._published_before_join: int | None = None
        self._unheard: int | None = None
        self._logged_errors: set[str] = set()
        self._guaranteed: GuaranteedSource | None = None
        self._known_receivers: dict[Hashable, tuple[int, str]] = {}
        self._known_evictions = session.evictor.count if session.evictor is not None else 0

    @property
    def source(self) -> str:
        """The session's source string, for example `LBT-IPC:6481f8d4:20001`."""
        return self._session.source_string

    @property
    def receivers(self) -> int:
        """The number of receiving contexts that are joined to this topic now."""
        return self._count_receivers()

    def _count_receivers(self) -> int:
        """Counts the joined contexts, and notes what was published before the first one was seen."""
        joined = self._session.receivers(self._number)
        if joined and self._published_before_join is None:
            self._published_before_join = self.sequence_number + 1 - self._unpublished()
        return joined

    @property
    def _is_joined(self) -> bool:
        """Whether a receiving context has joined; one that has died counts until its slot is freed."""
        return self._joined_word.changed() or self._session.is_joined(self._number)

    @property
    def unheard(self) -> int:
        """The number of messages, if all were published before a receiver joined; 0 once one may have got a message.

        Without guaranteed messages: their copies wait for a receiver (`gmd_num_pending`).
        """
        if self._unheard is not None:
            return self._unheard
        sent = self.sequence_number + 1
        joined, before = self._count_receivers(), self._published_before_join
        if before is not None and (before < sent or self._keeps or self._shares_what_it_sent()):
            return 0
        # Joins are seen by chance only: a context that joined the session and left again may have received the topic.
        heard = self._session.may_have_got(self._number) or (joined and self._unpublished())
        return 0 if heard else sent - self._guaranteed_numbers

    def _shares_what_it_sent(self) -> bool:
        """Returns whether members of shares work off what was sent before they joined."""
        return bool(self._context._sending_sessions.shares.statistics(self._session, self._number))

    def _unpublished(self) -> int:
        """Returns how many messages of this source are in the open batch."""
        line = self._session.line(self._number)
        return int(line["sequence_next"]) - int(line["published"])

    def wait_for_receivers(self, n: int = 1, timeout: float | None = None) -> None:
        """Waits until `n` receiving contexts have joined this topic; each of them gets every message sent afterwards.

        Each member of a share counts by itself, when it is registered. For a source with a `gmd_name`, a context on
        this host counts when its receivers with a `gmd_name` are registered too, so that the messages sent afterwards
        wait for their acknowledgements.

        Args:
            n: the number of contexts. The context of this source counts too, if it has a receiver of the topic.
            timeout: seconds; None waits for ever.

        Raises:
            TimeoutError: fewer contexts had joined; the text says how many.
            ClosedError: the source is closed.
            WrongThread: the call would have to wait inside a callback of the same context.
            WrongProcess: the context was made before a fork, in the parent.
            TypeError, ValueError: `n` is not a whole number, or negative; `timeout` is not a number, or NaN.
        """
        try:
            wait_until_joined(
                self._context,
                n,
                timeout,
                self._joined,
                lambda count: f"topic {self.topic!r}: {count} receiving contexts had joined",
            )
        except KeyboardInterrupt as error:
            shorten(error)
            raise

    def acquire_array(
        self,
        shape: Shape,
        dtype: DTypeLike,
        *,
        delivery_mode: str | None = None,
        delivery_timeout: float | None = None,
    ) -> ArrayReservation:
        """Reserves the bytes of an array in the ring, in which the caller writes a message without a copy.

        Use it as `with src.acquire_array(shape, dtype) as array:`, like `acquire`; overwrite all of its old items. The
        end of the block publishes the message; an exception cancels it. After the block `array` is empty and read-only.
        Of what was made from it, such as slices and tensors, nothing reaches the ring any more: it may be kept, and has
        memory of its own, which costs more than a copy. Name the array by `as`: an object that is its only user and
        remembers its address, such as `torch.from_numpy(stack.enter_context(...))`, must not be used after the block.

        Args:
            shape: the lengths of the array, a whole number or a sequence of them.
            dtype: the type of its items; not with references to objects.
            delivery_mode: as in `acquire`.
            delivery_timeout: as in `acquire`.

        Raises:
            TypeError, ValueError: there is no such array, or it would hold references to objects.
            ipcbus.IpcBusError: as in `acquire`.
        """
        lengths, items, length = array_form(shape, dtype, f"topic {self.topic!r}: acquire_array()")
        reservation = self.acquire(length, delivery_mode=delivery_mode, delivery_timeout=delivery_timeout)
        return ArrayReservation(reservation, lengths, items)

    def request(self, data: Buffer, timeout: float | None = 5.0, *, headers: Headers | None = None) -> Message:
        """Sends a request, and waits for the first response.

        Every receiver of the topic gets the request, as a message of type REQUEST, and may answer with
        `Message.respond`. The request is published at once, with its batch. If no receiver has joined yet, the request
        waits until one has. In sequential mode the call drives the context.

        Args:
            data: bytes-like; may be empty.
            timeout: seconds to wait; 0, or less, does not wait, None waits for ever.
            headers: as in `send`.

        Returns:
            The first response, a message of type RESPONSE. Later responses are counted and dropped.

        Raises:
            RequestTimeout: no response came in time.
            NoResponder: no receiver has joined and none is about to, within 0.5 s or `timeout`; for a topic that is
                advertised to other hosts, within `timeout`. Or all receivers have gone or died.
            WouldBlock: too many requests are in flight (option requests_outstanding_maximum).
            WrongThread: the caller is inside a callback of the same context; or in sequential mode, another thread
                drives the context.
            ClosedError, WrongProcess: the source is closed, or belongs to the parent of a fork.
            IpcBusError, TypeError, BufferError, ValueError: as in `send`.
        """
        try:
            return self._requests.ask(self, data, headers, timeout)
        except KeyboardInterrupt as error:
            shorten(error)
            raise

    async def arequest(self, data: Buffer, timeout: float | None = 5.0, *, headers: Headers | None = None) -> Message:
        """Sends a request, and waits for the first response in asyncio; otherwise as `request`.

        Args:
            data: as in `request`.
            timeout: as in `request`.
            headers: as in `send`.

        Raises:
            IpcBusError, TypeError, BufferError, ValueError: as in `request`.
        """
        try:
            self._check()
            request = self._requests.begin(self, data, headers, timeout=bounded(timeout))
            try:
                while not (request.queue or request.closed):
                    await self._context._waiters.wait(request)
            finally:
                request.close()
            return taken(request)
        except BaseException as error:
            shorten(error)
            raise

    def requests(
        self,
        data: Buffer,
        on_response: Callable[[Message], object],
        *,
        timeout: float | None = None,
        headers: Headers | None = None,
        on_end: Callable[[Request], object] | None = None,
    ) -> Request:
        """Sends a request that may get several responses, and returns without waiting.

        Args:
            data: bytes-like; may be empty.
            on_response: a plain function that the thread that drives the context calls with each response, a message of
                type RESPONSE.
            timeout: seconds until the request ends; None for no limit.
            headers: as in `send`.
            on_end: a plain function that is called with the request when it has ended; `Request.error` says why.

        Returns:
            The request in flight; its `close` ends it.

        Raises:
            ConfigError: a callback is not a plain function.
            WouldBlock: too many requests are in flight (option requests_outstanding_maximum).
            ClosedError, WrongProcess: the source is closed, or belongs to the parent of a fork.
            IpcBusError, TypeError, BufferError, ValueError: as in `send`.
        """
        begun = self._requests.ask_many(self, data, headers, timeout, on_response, on_end)
        if begun is not None:
            return begun
        self._check()
        check_callbacks(on_response=on_response, on_end=on_end)
        if on_response is None:
            raise TypeError(f"topic {self.topic!r}: requests() needs on_response; use request() to wait for a response")
        return self._requests.begin(
            self, data, headers, timeout=bounded(timeout), on_response=on_response, on_end=on_end
        )

    @property
    def shares(self) -> dict[str, ShareStatistics]:
        """The figures of the shares of this source, by their names; of those that have, or had, a member."""
        return self._context._sending_sessions.shares.statistics(self._session, self._number)

    # ------------------------------------------------------------------ guaranteed messages

    @property
    def gmd_sequence_number(self) -> int:
        """The GMD number of the last guaranteed message; 0 before the first. It goes on after a restart."""
        return 0 if self._guaranteed is None else self._guaranteed.last_number

    @property
    def gmd_num_pending(self) -> int:
        """The number of guaranteed messages whose copies are in the GMD area: not acknowledged, nor deleted."""
        return 0 if self._guaranteed is None else self._guaranteed.pending

    @property
    def gmd_receivers(self) -> list[str]:
        """The names of the receivers that are expected to acknowledge messages to come."""
        return [] if self._guaranteed is None else self._guaranteed.expected

    def gmd_status(self, gmd_sequence_number: int) -> GmdStatus:
        """Returns which receivers have acknowledged a guaranteed message, and which have not.

        Args:
            gmd_sequence_number: its GMD number; for an unknown number the standing is UNKNOWN.

        Raises:
            ConfigError: the source has no `gmd_name`.
            TypeError: `gmd_sequence_number` is not a whole number.
        """
        return self._gmd().status(checked_index("gmd_sequence_number", gmd_sequence_number))

    def gmd_statistics(self) -> GmdSourceStatistics:
        """Returns figures of the guaranteed messages, since the source was made.

        Raises:
            ConfigError: the source has no `gmd_name`.
        """
        return self._gmd().statistics()

    def gmd_resend(self, gmd_sequence_number: int | None = None) -> int:
        """Sends failed messages again, with their GMD numbers, to the receivers for which they failed.

        Args:
            gmd_sequence_number: the GMD number of a message; None for all failed messages. A message that has not
                failed is sent again without a call.

        Returns:
            The number of messages.

        Raises:
            ConfigError: the source has no `gmd_name`.
            TypeError: `gmd_sequence_number` is not a whole number.
        """
        number = gmd_sequence_number
        return self._gmd().resend(None if number is None else checked_index("gmd_sequence_number", number))

    def gmd_delete(self, gmd_sequence_number: int) -> bool:
        """Deletes the copy of a guaranteed message; receivers that have not got it do not get it any more.

        Args:
            gmd_sequence_number: the GMD number of the message.

        Returns:
            Whether there was a copy.

        Raises:
            ConfigError: the source has no `gmd_name`.
            TypeError: `gmd_sequence_number` is not a whole number.
        """
        return self._gmd().delete(checked_index("gmd_sequence_number", gmd_sequence_number))

    def gmd_forget(self, receiver: str) -> bool:
        """Takes a receiver off, which is then not expected any more.

        Messages that no other receiver is to acknowledge wait for the first receiver that registers.

        Args:
            receiver: its `gmd_name`.

        Returns:
            Whether the receiver was known.

        Raises:
            ConfigError: the source has no `gmd_name`.
        """
        return self._gmd().forget(receiver)

    def gmd_set_max_size(self, size: int) -> None:
        """Changes the limit of the GMD area (option gmd_max_size).

        Args:
            size: bytes; 0 for no limit. More bytes than that may be there; then sends raise `GmdAreaFull`.

        Raises:
            ConfigError: the source has no `gmd_name`.
            TypeError, ValueError: `size` is not a whole number, or negative.
        """
        check_count("size", size)
        self._gmd().set_max_size(size)

    def wait_durable(self, gmd_sequence_number: int | None = None, timeout: float | None = None) -> None:
        """Waits until a guaranteed message is on the disk, so that it survives a power loss.

        Args:
            gmd_sequence_number: its GMD number, which the source has given; None for the last message.
            timeout: seconds; None waits for ever. A sync of the files that has begun is not cut short.

        Raises:
            TimeoutError: the time is over.
            GmdError: the files cannot be synced.
            ConfigError: the source has no `gmd_name`.
            TypeError, ValueError: an argument is not a number, or NaN, or no message has this number yet.
        """
        state = self._gmd()
        number, last = gmd_sequence_number, state.last_number
        wanted = last if number is None else checked_index("gmd_sequence_number", number)
        seconds = bounded(timeout)
        if wanted > last:
            raise ValueError(
                f"topic {self.topic!r}: gmd_sequence_number = {wanted}, but the last message has number {last}; send "
                "the message first"
            )
        if not state.wait_durable(wanted, seconds):
            raise TimeoutError(
                f"topic {self.topic!r}: the guaranteed message {wanted} was not synced after {seconds} s; wait longer, "
                "or look whether the disk is busy"
            )

    def _gmd(self) -> GuaranteedSource:
        if self._guaranteed is None:
            raise ConfigError(
                f"the source of topic {self.topic!r} has no gmd_name, so that it sends no guaranteed messages; make it "
                "with ctx.source(topic, gmd_name=...)"
            )
        return self._guaranteed

    def _notify_gmd(self, event: SourceEvent) -> None:
        """Gives an event of guaranteed delivery to the application; without `on_event`, logs a failure."""
        if self._on_event is not None:
            self._notify(event)
        elif event.type is SourceEventType.GMD_FAILURE:
            log.warning(
                "topic %r: guaranteed message %d failed for receiver %r (%d, %s); it stays in the GMD area until "
                "gmd_resend() or gmd_delete() is called; give on_event to handle this",
                self.topic,
                event.gmd_sequence_number,
                event.receiver,
                event.error_number,
                describe(event.error_number),
            )

    def close(self) -> None:
        """Publishes the open batch and ends the source; with the last source of a session the session ends.

        Joined receivers can still read what was published. If receivers of the topic are about to join, the open batch
        waits for them, for `resolver_no_receiver_linger_timeout` (ms) at most; while receivers are getting messages
        that the source keeps (`late_join`), the call waits for `retransmit_close_timeout` (ms) at most. A signal whose
        handler raises ends the wait. Closing twice does nothing.

        Raises:
            WrongThread: the call would have to wait, inside a callback, for another thread's `acquire` block.
        """
        self._context._close_source(self)

    def __repr__(self) -> str:
        """Returns a text with the topic and the session."""
        return f"<Source {self.topic!r} on {self.source}{' (closed)' if self.closed else ''}>"

    def _check(self) -> None:
        if self._context._forked:
            raise WrongProcess(
                f"the source of topic {self.topic!r} belongs to the parent of this fork; make a new Context here"
            )
        if self.closed:
            raise self._closed_error()

    def _joined(self) -> int:
        self._check()
        sending = self._context._sending_sessions
        joined = sending.shares.joined(self._session, self._number, self.topic)
        return joined - sending.guaranteed.unregistered(self) if joined else 0

    def _closed_error(self) -> ClosedError:
        return send_errors.closed(self.topic, with_context=self._context._closed)

    def _refuse_sends(self) -> None:
        """Ends the source for senders: every later send raises `ClosedError`."""
        self._unheard = self.unheard
        self._session.infos.remove(self)
        super()._refuse_sends()
        self._requests.end_all(self, self._closed_error())

    def __reduce__(self) -> Never:
        """Raises TypeError: a source cannot be pickled or copied."""
        raise not_a_value(self, "ctx.source(topic)")

    def _notify(self, event: SourceEvent, *, last: bool = False) -> None:
        if self._on_event is None or (self.closed and not last) or self._context._closed:
            return
        try:
            self._on_event(event)
        except BaseException as error:
            kind = type(error).__name__
            if not self._context._event_loop.pass_on(error) and kind not in self._logged_errors:
                self._logged_errors.add(kind)
                log.exception("on_event of the source of %r raised; more of this kind are not logged", self.topic)

    def _notify_room(self) -> None:
        """Notifies the application that there is room again."""
        self._notify(SourceEvent(SourceEventType.WAKEUP))

    def _notify_receivers(self) -> None:
        """Compares the joined contexts with those before, and notifies the application of the differences."""
        if self._published_before_join is None:
            self._count_receivers()
        if self._on_event is None:
            return
        joined = self._session.joined_receivers(self._number)
        before, self._known_receivers = self._known_receivers, joined
        self._notify_evictions()
        for which, (pid, name) in before.items():
            if joined.get(which) != (pid, name):
                self._notify(SourceEvent(SourceEventType.DISCONNECT, pid, name))
        for which, (pid, name) in joined.items():
            if before.get(which) != (pid, name):
                self._notify(SourceEvent(SourceEventType.CONNECT, pid, name))

    def _notify_evictions(self) -> None:
        """Notifies the application of evicted contexts; their DISCONNECT events follow."""
        evictor = self._session.evictor
        if evictor is None:
            return
        self._known_evictions, evicted = evictor.evicted_since(self._known_evictions)
        for who in evicted:
            self._notify(SourceEvent(SourceEventType.RECEIVER_EVICTED, who.pid, who.context_name))
