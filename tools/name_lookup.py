"""Finds the session or the topic that a name on the command line means, or says which names there are."""

from __future__ import annotations

import difflib
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ipcbus_tools.common import Failure, Seconds, notes, plural, safe
from ipcbus_tools.completion import candidates
from ipcbus_tools.polling import interval_option
from ipcbus_tools.signals import SignalHandler

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ipcbus.stats import DomainSnapshot, SessionStats

_Function = TypeVar("_Function", bound=Callable[..., Any])

_POLL_S = 0.1
_SHOWN = 8
"""Most sessions that an error text lists."""


def topic_options(function: _Function) -> _Function:
    """Adds TOPIC, --interval, --count and --timeout to a command that takes snapshots of a topic."""
    for option in (
        click.option(
            "--timeout",
            type=Seconds(),
            help="Give up after SECONDS without a source (default: never).",
        ),
        click.option(
            "-n", "--count", metavar="N", type=click.IntRange(min=1), help="End after N snapshots (default: never)."
        ),
        interval_option(),
        click.argument("topic", shell_complete=candidates.topics),
    ):
        function = option(function)
    return function


NOT_READABLE = "not readable"
"""State of a session whose counters this user may not read, or that is damaged."""


def state(session: SessionStats) -> str:
    """Returns the state of a session; empty for one that lives and does not wait.

    `dead`: its process has ended without closing it; `not readable`; `closed`: its source has closed it; `stopped`: a
    signal such as SIGSTOP has stopped its process; `blocked`: a send waits for room; `refused`: a send found no room,
    and the source waits for its WAKEUP event.
    """
    if not session.alive:
        return "dead"
    if session.reason or not session.counters:
        return NOT_READABLE
    if session.closed:
        return "closed"
    return "stopped" if session.stopped else session.wait


def pick_session(found: DomainSnapshot, text: str) -> SessionStats:
    """Returns the session that the user means.

    Args:
        found: a snapshot of the domain.
        text: the session's source string, or that with its context before it (`CONTEXT:SOURCE`), or the name of a
            topic that only this session carries, or the number of its context, or a part of its source string that no
            other session has.

    Raises:
        Failure: no session fits, or several do; the text lists them.
    """
    sessions = list(found.sessions)
    part = text.casefold()
    for fits in (
        [session for session in sessions if session.source == text],
        [session for session in sessions if full_name(session).casefold() == part],
        [session for session in sessions if any(source.topic == text for source in session.sources)],
        [session for session in sessions if f"{session.context_id:08x}" == part],
        [session for session in sessions if part and part in session.source.casefold()],
    ):
        if len(fits) == 1:
            return fits[0]
        if fits:
            how = (
                "its source string"
                if _sources_differ(fits)
                else "CONTEXT:SOURCE, since other contexts have the same source string"
            )
            raise _failure(f"{text!r} fits {len(fits)} sessions; name one by {how}: {_list(fits)}")
    where = f"no session or topic {text!r} in domain {found.domain!r}"
    if not sessions:
        raise _failure(f"{where}: it has no session{_unreadable(found)}; 'ipcbus list --all' shows every domain")
    raise _failure(f"{where}{_suggestion(found, text)}; the sessions are: {_list(sessions)}{_unreadable(found)}")


def session_again(found: DomainSnapshot, name: str, text: str) -> SessionStats:
    """Returns, from a later snapshot, the session that `pick_session` has found.

    Args:
        found: the later snapshot.
        name: the session's `full_name`.
        text: what the user typed.

    Raises:
        Failure: the session has ended in between.
    """
    session = next((each for each in found.sessions if full_name(each) == name), None)
    if session is None:
        source = name.partition(":")[2]
        raise _failure(f"{text!r}: session {source} ended between two snapshots; 'ipcbus list' shows what runs now")
    return session


def full_name(session: SessionStats) -> str:
    """Returns the unique name of a session, also where another context claims its source string."""
    return f"{session.context_id:08x}:{session.source}"


def wait_for_topic(domain: str, topic: str, timeout: float | None) -> None:
    """Returns as soon as a topic has a source; prints once that it waits, and which topics have similar names.

    Raises:
        Failure: the topic had no source for `timeout` seconds.
    """
    from ipcbus import stats

    deadline = None if timeout is None else time.monotonic() + timeout
    processes, announced = stats.Processes(), False
    with SignalHandler() as signals, signals.interruptible():
        while True:
            found = stats.take_snapshot(domain, processes)
            if any(source.topic == topic for session in found.sessions for source in session.sources):
                return
            remaining = _POLL_S if deadline is None else deadline - time.monotonic()
            if remaining <= 0:
                raise _failure(
                    f"topic {topic!r}: no source in {timeout} s in domain {domain!r}{_suggestion(found, topic)}"
                    f"{_unreadable(found)}; check the name and the domain with 'ipcbus list', or wait longer"
                )
            if not announced:
                announced = True
                text = (
                    f"topic {topic!r} has no source in domain {domain!r}{_suggestion(found, topic)}{_unreadable(found)}"
                )
                notes().print(safe(f"{text}; waiting for one"), soft_wrap=True)
            signals.wait(min(remaining, _POLL_S))


def _failure(text: str) -> Failure:
    return Failure(safe(text).plain)


def _suggestion(found: DomainSnapshot, text: str) -> str:
    """Returns the names that the user probably meant, for an error text."""
    names = {source.topic for session in found.sessions for source in session.sources}
    names.update(session.source for session in found.sessions)
    folded = {name.casefold(): name for name in names}
    close = difflib.get_close_matches(text.casefold(), folded, n=3)
    return f" (did you mean {' or '.join(folded[name] for name in close)}?)" if close else ""


def _unreadable(found: DomainSnapshot) -> str:
    """Returns that some contexts cannot be read, for an error text."""
    reasons = [context.reason for context in found.contexts if context.reason and context.alive]
    return f"; {plural(len(reasons), 'context')} cannot be read: {reasons[0]}" if reasons else ""


def _sources_differ(sessions: Sequence[SessionStats]) -> bool:
    return len({session.source for session in sessions}) == len(sessions)


def _list(sessions: Sequence[SessionStats]) -> str:
    name = (lambda session: session.source) if _sources_differ(sessions) else full_name
    found = [f"{name(session)} (pid {session.pid}, {_topics(session)})" for session in sessions]
    more = f", and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    return ", ".join(found[:_SHOWN]) + more


def _topics(session: SessionStats) -> str:
    if len(session.sources) == 1:
        return f"topic {session.sources[0].topic}"
    return f"{len(session.sources)} topics"
