"""`ipcbus info`: one session, with its topics, who reads it, and who holds it up."""

from __future__ import annotations

import dataclasses
import datetime
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from ipcbus_tools.common import age, duration, json_option, look_options, number, output, print_json, safe, size
from ipcbus_tools.completion import candidates
from ipcbus_tools.name_lookup import full_name, pick_session, state
from ipcbus_tools.polling import interval_option, watch
from ipcbus_tools.render import udp_text
from ipcbus_tools.render.text_tables import Row, reader, show_table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ipcbus.stats import Absent, DomainSnapshot, SessionStats

_LOOK_S = 0.25


@dataclass(frozen=True, slots=True)
class AbsentReader:
    """A context that wants topics of the session by name, and has no slot there.

    Attributes:
        pid: its process.
        user: its user.
        context_id: its context.
        context_name: the context's name, often empty.
        command: its command line; empty when it cannot be read.
        topics: what it wants of the session.
        reason: what keeps it away, as far as it can be told from outside.
    """

    pid: int
    user: str
    context_id: int
    context_name: str
    command: str
    topics: tuple[str, ...]
    reason: str

    @classmethod
    def of(cls, found: Absent) -> AbsentReader:
        """What is shown of one."""
        context = found.context
        return cls(
            context.pid, context.user, context.context_id, context.name, context.command, found.topics, found.reason
        )


@dataclass(frozen=True, slots=True)
class SessionInfo:
    """A session at one moment.

    Attributes:
        domain: the domain.
        taken_ns: when, ns since the epoch.
        seconds: the time that the rates are of.
        session: the session, as in a snapshot.
        absent: who wants to receive from it and is not joined.
    """

    domain: str
    taken_ns: int
    seconds: float
    session: SessionStats
    absent: tuple[AbsentReader, ...]

    @classmethod
    def of(cls, found: DomainSnapshot, session: SessionStats) -> SessionInfo:
        """What is known of a session of a snapshot."""
        from ipcbus import stats

        missing = tuple(AbsentReader.of(each) for each in stats.absent(found, session))
        return cls(found.domain, found.taken_ns, found.seconds, session, missing)

    def to_dict(self) -> dict[str, Any]:
        """As dictionaries, lists, numbers and texts, for `json.dumps`; docs/reference/json.md."""
        return {
            "domain": self.domain,
            "taken_ns": self.taken_ns,
            "seconds": self.seconds,
            "session": self.session.to_dict(),
            "absent": [{**dataclasses.asdict(each), "topics": list(each.topics)} for each in self.absent],
        }


@click.command("info")
@click.argument("session", shell_complete=candidates.sessions)
@interval_option(_LOOK_S)
@look_options
@json_option
def command(session: str, interval: float, domain: str, as_json: bool) -> None:
    """Tells what SESSION is: who sends, its topics, who reads how far behind, and who holds it up.

    SESSION is a source string, a part of one that no other has, or a topic that only one session carries. Where two
    contexts have the same source string, it is CONTEXT:SOURCE, or CONTEXT alone. What cannot
    be read, because it belongs to another user or is damaged, is told with the reason.

    \b
    Examples:
      ipcbus info LBT-IPC:6481f8d4:20001
      ipcbus info 6481f8d4
      ipcbus info quotes.AAPL
      ipcbus info orders --json | jq '.session | .held_up_by as $s | .receivers[] | select(.slot == $s) | .pid'
    """
    chosen = ""
    for found in watch(domain, interval, 1, begin=True):
        picked = pick_session(found, chosen or session)
        if not chosen:
            chosen = full_name(picked)
        elif as_json:
            print_json(SessionInfo.of(found, picked).to_dict())
        else:
            _show(SessionInfo.of(found, picked))


def _show(found: SessionInfo) -> None:
    from rich.text import Text

    console = output()
    session = found.session
    console.print(safe(session.source), style="bold")
    for name, text in facts(found):
        console.print(Text.assemble(f"  {name:<12}", safe(text)), soft_wrap=True)
    show_table(console, "topics", list(_topics(session)))
    show_table(console, "receivers", [reader(session, slot) for slot in session.receivers])
    for slot in session.receivers:
        if slot.reason:
            text = f"  pid {slot.pid} receives over {slot.layer}: {slot.reason}"
            console.print(safe(text), soft_wrap=True)
    show_table(console, "not joined", [_absent(each) for each in found.absent])


def facts(found: SessionInfo) -> Iterator[tuple[str, str]]:
    """What there is to say of a session as a whole, each with its name."""
    session = found.session
    yield "domain", found.domain
    yield "sent by", _who(session.pid, session.user, session.context_name, session.command)
    if session.start_ns:
        since = datetime.datetime.fromtimestamp(session.start_ns / 1e9).strftime("%Y-%m-%d %H:%M:%S")
        yield "since", f"{since}, {age((found.taken_ns - session.start_ns) / 1e9)}"
    yield "state", f"{state(session) or 'alive'}{': ' if session.reason else ''}{session.reason}"
    datagram = f", datagrams up to {size(session.datagram_max)}" if session.datagram_max else ""
    yield "transport", f"{session.transport}, {session.pacing.replace('_', '-')}"
    yield "window", f"{size(session.capacity)}{datagram}"
    yield (
        "room",
        f"{len(session.sources)} of {session.topics_max} topics"
        + (f", {session.counters['num_clients']} of {session.slots_max} receivers" if session.counters else ""),
    )
    if session.counters:
        yield (
            "sent",
            (
                f"{number(session.counters['lbm_msgs_sent'])} messages in {number(session.counters['msgs_sent'])} "
                f"datagrams, {size(session.counters['bytes_sent'])}{_fragments(session)}"
            ),
        )
        if session.counters.get("batch_wait_max"):
            yield (
                "batch wait",
                f"mean {duration(None if session.batch_wait_ns is None else round(session.batch_wait_ns))}",
            )
        yield "unread", _percent(session.fill) if session.fill is not None else "nobody reads"
        yield "held up", held_up(session)
    yield from udp_text.facts(session)


def _fragments(session: SessionStats) -> str:
    found = session.counters.get("fragments_sent")
    return f"; {number(found)} fragments of long messages" if found else ""


def held_up(session: SessionStats) -> str:
    """Returns whether the source has to wait, since when, and for whom."""
    if not session.wait and not session.blocked:
        return "no"
    if session.wait == "blocked":
        how = "a send waits for room"
    elif session.wait == "refused":
        how = "a send found no room, its WAKEUP is due"
    else:
        how = f"sends waited {_percent(session.blocked)} of the time"
    waited = session.held_up_for_ns or session.blocked_for_ns
    if waited:
        how += f", for at least {duration(waited)}"
    holder = session.held_up_by
    if session.held_up_by_rate and session.uplink is not None:
        return f"{how}, by {udp_text.data_rate(session.uplink)}"
    if holder is None:
        return how
    who = _who(holder.pid, holder.user, holder.context_name, holder.command)
    stopped = ", stopped" if holder.stopped else ""
    return f"{how}, by {who}, {size(holder.lag)} behind{stopped}"


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.1%}"


def _who(pid: int, user: str, name: str, command: str) -> str:
    return "  ".join(filter(None, (f"pid {pid} ({user or 'unknown'})", name, command)))


def _topics(session: SessionStats) -> Iterator[Row]:
    for source in session.sources:
        counted = source.counters
        yield {
            "topic": source.topic,
            "number": source.number,
            "receivers": source.receivers if counted else "-",
            "messages": number(counted["lbm_msgs_sent"]) if counted else "-",
            "bytes": size(counted["bytes_sent"]) if counted else "-",
        }


def _absent(found: AbsentReader) -> Row:
    return {
        "pid": found.pid,
        "user": found.user,
        "name": found.context_name,
        "wants": ", ".join(found.topics),
        "reason": found.reason,
        "command": found.command,
    }
