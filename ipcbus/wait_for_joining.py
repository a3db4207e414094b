"""Waits for others to join, before messages are sent and before a source ends; a warning when no receiver joined."""

from __future__ import annotations

import contextlib
import logging
import math
import sys
import time
from typing import TYPE_CHECKING

from ipcbus.errors import WrongThread
from ipcbus.event_queue import dispatches
from ipcbus.runtime.error_mapping import check_count
from ipcbus.runtime.loop.timerfd import LOOK_S, bounded
from ipcbus.runtime.sending.expected_receivers import ExpectedReceivers

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from ipcbus.context import Context
    from ipcbus.source import Source

log = logging.getLogger("ipcbus")

_ASKS_NS = 300_000_000
"""Time in which a receiver that has joined asks for what was sent before, in ns."""
_LOOK_S = 0.01
_NAMED = 3


def wait_until_joined(
    context: Context,
    n: int,
    timeout: float | None,
    joined: Callable[[], int],
    said: Callable[[str], str],
    *,
    same: str = "the same topic",
    hint: str = "",
) -> None:
    """Lets the context work until `joined` returns `n` or more.

    Args:
        context: the context of the handle that waits.
        n: the number to reach.
        timeout: seconds; None waits for ever.
        joined: counts, and raises when the handle is closed.
        said: makes the beginning of the error text of "1 of 3".
        same: what the others have to use, besides the domain, for that text.
        hint: the end of that text.

    Raises:
        TimeoutError: fewer had joined.
        TypeError, ValueError: `n` or `timeout` is not valid.
    """
    check_count("n", n)
    seconds = bounded(timeout)
    deadline = math.inf if seconds is None else time.monotonic() + seconds
    while (found := joined()) < n:
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError(
                f"{said(f'{found} of {n}')} after {round(seconds or 0.0, 3)} s; start the others, check that they "
                f"use the same domain and {same}, or wait longer{hint}"
            )
        context._wait_for_change(min(LOOK_S, left))


def await_answers_taken(context: Context, seconds: float, leave_out: Collection[int]) -> None:
    """Waits until the asking contexts have taken all answers, for `seconds` at most.

    Args:
        context: the context that has answered.
        seconds: the longest wait.
        leave_out: ids of contexts for which it does not wait.
    """
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        with context._event_loop.driver_lock():
            waiting = context._receiving_sessions.send_answers()
        if waiting <= set(leave_out):
            return
        context._event_loop.wait_changed(0.001)


def may_linger(contexts: Iterable[Context]) -> bool:
    """Returns whether the calling thread may wait: not inside a callback, nor while an exception propagates."""
    inside = dispatches() or any(context._event_loop.is_driver() for context in contexts)
    return not inside and sys.exc_info()[0] is None


def linger(context: Context, sources: Collection[Source], leave_out: Collection[int]) -> None:
    """Waits before sources are closed: for receivers that are about to join, then for those that recover messages.

    Args:
        context: the context of the sources.
        sources: the sources that are being closed.
        leave_out: ids of contexts that the sources do not wait for.
    """
    _await_joins(context, sources, leave_out)
    _await_recoveries(context, sources, leave_out)
    _await_shares(context, sources)


def _await_joins(context: Context, sources: Iterable[Source], leave_out: Collection[int]) -> None:
    """Keeps the open batches for receivers that are about to join, for `resolver_no_receiver_linger_timeout` at most.

    A receiver gets the datagrams that are published after it has joined. The messages of the open batch still reach the
    receiver if the batch is published then. While no receiver reads the session, the batching interval does not publish
    the batch.
    """
    waiting = [source for source in sources if source._linger_ns and source._unpublished()]
    if not waiting:
        return
    begin_ns = time.monotonic_ns()
    with contextlib.ExitStack() as kept:
        for source in waiting:
            kept.enter_context(source._session.hold_batch())
        while True:
            awaited, passed_ns = ExpectedReceivers(context.domain, leave_out), time.monotonic_ns() - begin_ns
            waiting = [
                each
                for each in waiting
                if passed_ns < each._linger_ns and each._unpublished() and _may_join(each, awaited)
            ]
            if not waiting:
                return
            _let_work(context)


def _await_recoveries(context: Context, sources: Iterable[Source], leave_out: Collection[int]) -> None:
    """Lets receivers get what the sources keep, for `retransmit_close_timeout` at most; also those about to join."""
    waiting = [source for source in sources if source._recoveries_ns and not source.closed]
    if not waiting:
        return
    for source in waiting:
        source._batch.flush()  # only what is published can be recovered
    begin_ns = time.monotonic_ns()
    channels = context._sending_sessions.control_channels
    while True:
        awaited, passed_ns = ExpectedReceivers(context.domain, leave_out), time.monotonic_ns() - begin_ns
        waiting = [
            each
            for each in waiting
            if passed_ns < each._recoveries_ns
            and (_may_join(each, awaited, _ASKS_NS) or channels.is_recovering(each._session, each._number, leave_out))
        ]
        if not waiting:
            return
        _let_work(context)


def _await_shares(context: Context, sources: Iterable[Source]) -> None:
    """Lets members of shares work off what was sent, as long as each `retransmit_close_timeout` brings progress."""
    shares = context._sending_sessions.shares
    for source in sources:
        if source.closed or not shares.statistics(source._session, source._number):
            continue
        source._batch.flush()  # only what is published can be assigned
        done, since_ns = 0, time.monotonic_ns()
        while (busy := shares.is_busy(source._session, source._number)) and not source.closed:
            if busy != done:
                done, since_ns = busy, time.monotonic_ns()
            if time.monotonic_ns() - since_ns >= source._shares_ns:
                break
            _let_work(context)


def _let_work(context: Context) -> None:
    try:
        context._wait_for_change(_LOOK_S)
    except WrongThread:  # in sequential mode another thread drives the context, and serves the receivers
        context._event_loop.wait_changed(_LOOK_S)


def _may_join(source: Source, awaited: ExpectedReceivers, settles_ns: int = 0) -> bool:
    """Returns whether a receiver is about to join a source, after it has begun or the source has.

    Args:
        source: the source.
        awaited: the receivers of the domain.
        settles_ns: for how long after that a receiver that has joined counts, too.
    """
    joined = source._session.joined_contexts(source._number)
    now_ns = time.time_ns()
    return any(
        now_ns < max(since_ns, source._opened_ns) + (settles_ns if which in joined else source._linger_ns)
        for which, since_ns in awaited.of(source.topic).items()
    )


def warn_of_unheard(sources: Iterable[Source]) -> None:
    """Warns of the sources whose messages were all published before a receiver joined."""
    unheard = [source for source in sources if source.unheard]
    if not unheard:
        return
    named = ", ".join(f"{source.topic!r} ({source.unheard} on {source.source})" for source in unheard[:_NAMED])
    more = f" and {len(unheard) - _NAMED} more" if len(unheard) > _NAMED else ""
    log.warning(
        "no receiver got the messages of the topics %s%s: none had joined when they were published; call "
        "wait_for_receivers() of a source before its first send",
        named,
        more,
    )
