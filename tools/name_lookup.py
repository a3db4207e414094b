"""What a name on the command line means: sessions and topics of a domain, found or asked back."""

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

_LOOK_S = 0.1
_SHOWN = 8
"""So many candidates stand in a line that asks back."""


def looking_options(function: _Function) -> _Function:
    """Adds TOPIC, --interval, --count and --timeout: of commands that look at a topic again and again."""
    for option in (
        click.option(
            "--timeout", metavar="SECONDS", type=Seconds(), help="Give up when the topic has no source so long."
        ),
        click.option("-n", "--count", metavar="N", type=click.IntRange(min=1), help="End after N looks."),
        interval_option(),
        click.argument("topic", shell_complete=candidates.topics),
    ):
        function = option(function)
    return function


UNREAD = "not readable"
"""State of a session whose numbers may not, or cannot, be read."""


def state(session: SessionStats) -> str:
    """Returns how a session is, where that is more than living.

    `dead`: its process is gone; `not readable`; `closed`: its source has ended it; `stopped`: its process is, as by
    SIGSTOP; `blocked`: a send waits for room; `refused`: one found none and waits for its WAKEUP event.
    """
    if not session.alive:
        return "dead"
    if session.reason or not session.counters:
        return UNREAD
    if session.closed:
        return "closed"
    return "stopped" if session.stopped else session.wait


def pick_session(found: DomainSnapshot, text: str) -> SessionStats:
    """Returns the session that somebody means.

    Args:
        found: where to look.
        text: its source string, or that with its context before it (`CONTEXT:SOURCE`), or the name of a topic that it
            alone carries, or the number of its context, or a part of the source string that no other one has.

    Raises:
        Failure: there is none, or there are several; they are listed.
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
            how = "its source string" if _differ(fits) else "CONTEXT:SOURCE, since others have the same source string"
            raise _failure(f"{text!r} fits {len(fits)} sessions, name one by {how}: {_listed(fits)}")
    where = f"no session or topic {text!r} in domain {found.domain!r}"
    if not sessions:
        raise _failure(f"{where}: it has no session{_hidden(found)}; 'ipcbus list --all' shows every domain")
    raise _failure(f"{where}{_meant(found, text)}; there are: {_listed(sessions)}{_hidden(found)}")


def full_name(session: SessionStats) -> str:
    """What no other session of the domain has, also where another context claims the same source string."""
    return f"{session.context_id:08x}:{session.source}"


def wait_for_topic(domain: str, topic: str, timeout: float | None) -> None:
    """Returns as soon as a topic has a source; says once that it waits, and what else there is.

    Raises:
        Failure: none came in `timeout` seconds.
    """
    from ipcbus import stats

    deadline = None if timeout is None else time.monotonic() + timeout
    processes, told = stats.Processes(), False
    with SignalHandler() as stopper, stopper.allowed():
        while True:
            found = stats.take_snapshot(domain, processes)
            if any(source.topic == topic for session in found.sessions for source in session.sources):
                return
            left = _LOOK_S if deadline is None else deadline - time.monotonic()
            if left <= 0:
                raise _failure(
                    f"topic {topic!r}: no source in {timeout} s in domain {domain!r}{_meant(found, topic)}"
                    f"{_hidden(found)}; check the name and the domain with 'ipcbus list', or wait longer"
                )
            if not told:
                told = True
                text = f"topic {topic!r} has no source in domain {domain!r}{_meant(found, topic)}{_hidden(found)}"
                notes().print(safe(f"{text}; waiting for one"), soft_wrap=True)
            stopper.wait(min(left, _LOOK_S))


def _failure(text: str) -> Failure:
    """With names that others chose."""
    return Failure(safe(text).plain)


def _meant(found: DomainSnapshot, text: str) -> str:
    """What was probably meant."""
    names = {source.topic for session in found.sessions for source in session.sources}
    names.update(session.source for session in found.sessions)
    folded = {name.casefold(): name for name in names}
    close = difflib.get_close_matches(text.casefold(), folded, n=3)
    return f" (did you mean {' or '.join(folded[name] for name in close)}?)" if close else ""


def _hidden(found: DomainSnapshot) -> str:
    """That there may be more than can be seen."""
    reasons = [context.reason for context in found.contexts if context.reason and context.alive]
    return f"; {plural(len(reasons), 'context')} cannot be read: {reasons[0]}" if reasons else ""


def _differ(sessions: Sequence[SessionStats]) -> bool:
    return len({session.source for session in sessions}) == len(sessions)


def _listed(sessions: Sequence[SessionStats]) -> str:
    name = (lambda session: session.source) if _differ(sessions) else full_name
    found = [f"{name(session)} (pid {session.pid}, {_topics(session)})" for session in sessions]
    more = f", and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    return ", ".join(found[:_SHOWN]) + more


def _topics(session: SessionStats) -> str:
    if len(session.sources) == 1:
        return f"topic {session.sources[0].topic}"
    return f"{len(session.sources)} topics"
