"""The end of a context."""

from __future__ import annotations

import _thread
import contextlib
import functools
import logging
import threading
import warnings
from typing import TYPE_CHECKING

from ipcbus.delivery import spare_bytes
from ipcbus.delivery.pump import CLOSED
from ipcbus.errors import WrongThread
from ipcbus.resolution.local.stale_cleanup import sweep
from ipcbus.wait_for_joining import await_answers_taken, linger, warn_of_unheard

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from ipcbus.context import Context
    from ipcbus.receiver import Receiver


log = logging.getLogger("ipcbus")

_PATIENCE_S = 5.0
_ANSWERS_S = 1.0
"""Longest time in seconds for which a context that closes waits until its responses are taken."""

dropped: set[Context] = set()
"""Contexts to which nothing refers any more, until they are closed."""


def silence(receiver: Receiver, *, queued: bool = True) -> None:
    """Lets no further callback of a receiver start; with `queued`, not even for messages in an event queue."""
    if queued:
        receiver._sink.silent = True
    receiver._sink.closed = True


def close(context: Context, *, drain: bool = False, patient: bool = False, leave_out: Collection[int] = ()) -> None:
    """Closes a context.

    Args:
        context: the context.
        drain: as in `Context.close`.
        patient: whether the open batches wait for receivers that are about to join.
        leave_out: ids of contexts that the open batches do not wait for.
    """
    if context._ended or context._forked:
        return
    if not context._closed:
        if drain:
            _drain(context)
        elif context._event_loop.is_driver():
            _settle(context)  # may raise inside a callback; then nothing has been done
    _begin(context, queued=not drain)
    try:
        if patient:
            linger(context, list(context._sources), leave_out)
            await_answers_taken(context, _ANSWERS_S, {*leave_out, context._id})
    finally:  # also when a signal has ended the wait
        _end(context)


def _end(context: Context) -> None:
    _settle(context)
    warn_of_unheard(list(context._sources))
    context._waiters.close()
    for source in list(context._sources):
        source._refuse_sends()
        source._batch.flush()
    context._event_loop.stop()
    if context._thread is not None and context._thread.ident != threading.get_ident():
        context._thread.join()
    with context._event_loop.driver_lock():  # waits for a thread that pulls
        for receiver in list(context._receivers):
            receiver._serve(False)
            receiver._sink.closed = True
            receiver._sink.stop_counting()
            context._waiters.wake(receiver._sink)
        context._receiving_sessions.close()
    with contextlib.ExitStack() as ending:  # also of the rest, when an area cannot be closed
        ending.callback(_end_parts, context)
        for source in list(context._sources):
            ending.callback(context._sending_sessions.guaranteed.close, source)


def _end_parts(context: Context) -> None:
    """Ends what the context consists of, once nothing uses it any more."""
    context._sending_sessions.close()
    context._network.close()
    context._bell.close()
    context._registry.close()
    context._timers.announce()
    context._event_loop.close()
    context._sources.clear()
    context._receivers.clear()
    sweep(context.domain)
    spare_bytes.drop()
    context._ended = True
    dropped.discard(context)
    context._forget()


def close_all(contexts: Collection[Context], *, patient: bool = False) -> None:
    """Closes contexts, also the rest when one raises; from the beginning on, none of them calls back any more."""
    own = {context._id for context in contexts}
    with contextlib.ExitStack() as closing:
        for context in contexts:
            if not context._forked:
                _begin(context)
            closing.callback(close, context, patient=patient, leave_out=own)


def _begin(context: Context, *, queued: bool = True) -> None:
    context._closed = True
    context._event_loop.pump.want(CLOSED)
    for receiver in list(context._receivers):
        silence(receiver, queued=queued)


def _settle(context: Context) -> None:
    """Publishes the open batches of the sources, after other threads have left their `acquire` blocks."""
    for source in list(context._sources):
        source._batch.finish_reservation(context._options.acquire_close_timeout * 1_000_000)


def _drain(context: Context) -> None:
    event_loop = context._event_loop
    if event_loop.is_driver():
        raise WrongThread(
            "close(drain=True) delivers messages and cannot be called inside a callback of the same context; return "
            "from the callback first, or call close()"
        )
    _settle(context)  # messages that the context sent to itself are delivered too
    with event_loop.driver_lock():
        event_loop.quiet = False  # also in a split context the calling thread calls back
        try:
            event_loop.poll()  # reads the network, runs timers, and delivers the events that the own thread deferred
            context._receiving_sessions.drain()
        finally:
            event_loop.quiet = event_loop.split


def drop(context: Context) -> None:
    """Schedules the close of a context to which nothing refers any more; for its finalizer.

    A finalizer runs in any thread, which may hold any lock. So this function never waits and takes no lock.
    """
    if context._ended or context._forked:
        return
    text = (
        f"{context!r} was not closed, and nothing refers to it any more: it is closed now; call close(), or use the "
        "context in a with block"
    )
    dropped.add(context)
    closing = functools.partial(_close_dropped, context)
    thread = context._thread
    if thread is not None and thread.is_alive():
        context._own_thread.handed.append(closing)
        context._event_loop.interrupt()
    else:
        with contextlib.suppress(RuntimeError):  # a thread cannot be started: the context is closed at exit
            _thread.start_new_thread(_start, (closing,))
    warnings.warn(text, ResourceWarning, source=context, stacklevel=2)


def await_dropped() -> None:
    """Waits at exit until the contexts in `dropped` are closed."""
    for context in list(dropped):
        context._close_done.wait(_PATIENCE_S)


def _start(closing: Callable[[], object]) -> None:
    # Thread.start waits, which a finalizer may not; and a thread that logs needs a name.
    threading.Thread(target=closing, name="ipcbus closing", daemon=True).start()


def _close_dropped(context: Context) -> None:
    try:
        if context._thread is not None and context._thread.ident == threading.get_ident():
            context._event_loop.rouse()
        close(context)
    except Exception:
        log.exception("a context of domain %r that was not closed could not be closed", context.domain)
