"""`ipcbus info`: shows one session with its topics, its receivers, and the receiver that holds it up."""

from __future__ import annotations

import dataclasses
import datetime
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from ipcbus_tools.common import age, duration, json_option, number, output, print_json, safe, size, statistics_options
from ipcbus_tools.completion import candidates
from ipcbus_tools.name_lookup import full_name, pick_session, session_again, state
from ipcbus_tools.polling import interval_option, watch
from ipcbus_tools.render import udp_text
from ipcbus_tools.render.text_tables import Row, reader, show_table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ipcbus.stats import Absent, DomainSnapshot, SessionStats

_POLL_S = 0.25


@dataclass(frozen=True, slots=True)
class AbsentReader:
    """A context that has receivers for topics of the session, and has not joined the session.

    Attributes:
        pid: the context's process.
        user: the user of the process.
        context_id: number of the context.
        context_name: the context's name, often empty.
        command: the command line of the process; empty when it cannot be read.
        topics: the topics of the session for which it has receivers.
        reason: why it has not joined, as far as other processes can see it.
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
        """Returns the fields that the command shows."""
        context = found.context
        return cls(
            context.pid, context.user, context.context_id, context.name, context.command, found.topics, found.reason
        )


@dataclass(frozen=True, slots=True)
class SessionInfo:
    """A session at one moment.

    Attributes:
        domain: the domain.
        taken_ns: time of the snapshot, ns since the epoch.
        seconds: the time that the rates are over.
        session: the session, as in a snapshot.
        absent: contexts that have receivers for its topics and have not joined it.
    """

    domain: str
    taken_ns: int
    seconds: float
    session: SessionStats
    absent: tuple[AbsentReader, ...]

    @classmethod
    def of(cls, found: DomainSnapshot, session: SessionStats) -> SessionInfo:
        """Returns the facts about a session of a snapshot."""
        from ipcbus import stats

        missing = tuple(AbsentReader.of(each) for each in stats.absent(found, session))
        return cls(found.domain, found.taken_ns, found.seconds, session, missing)

    def to_dict(self) -> dict[str, Any]:
        """Returns the facts as dictionaries, lists, numbers and texts, for `json.dumps`; docs/reference/json.md."""
        return {
            "domain": self.domain,
            "taken_ns": self.taken_ns,
            "seconds": self.seconds,
            "session": self.session.to_dict(),
            "absent": [{**dataclasses.asdict(each), "topics": list(each.topics)} for each in self.absent],
        }


@click.command("info")
@click.argument("session", shell_complete=candidates.sessions)
@interval_option(_POLL_S)
@statistics_options
@json_option
def command(session: str, interval: float, domain: str, as_json: bool) -> None:
    """Shows SESSION: its process, its topics, the lag of each receiver, and the receiver that holds it up.

    SESSION is a source string, a part of one that no other session has, or a topic that only one session carries. Where
    two contexts have the same source string, write CONTEXT:SOURCE, or CONTEXT alone. When a session cannot be read,
    because it belongs to another user or is damaged, the command says why.

    \b
    Examples:
      ipcbus info LBT-IPC:6481f8d4:20001
      ipcbus info 6481f8d4
      ipcbus info quotes.AAPL
      ipcbus info orders --json | jq '.session | .held_up_by as $s | .receivers[] | select(.slot == $s) | .pid'
    """
    chosen = ""
    for found in watch(domain, interval, 1, begin=True):
        picked = session_again(found, chosen, session) if chosen else pick_session(found, session)
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
    """Yields the facts about a session as a whole, each with its name."""
    session = found.session
    yield "domain", found.domain
    yield "sent by", _process(session.pid, session.user, session.context_name, session.command)
    if session.start_ns:
        since = datetime.datetime.fromtimestamp(session.start_ns / 1e9).strftime("%Y-%m-%d %H:%M:%S")
        yield "since", f"{since}, {age((found.taken_ns - session.start_ns) / 1e9)}"
    yield "state", f"{state(session) or 'alive'}{': ' if session.reason else ''}{session.reason}"
    yield "transport", udp_text.transport(session)
    yield from udp_text.windows(session)
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
        yield "unread", _percent(session.fill) if session.fill is not None else "no receiver"
        yield "held up", held_up(session)
    yield from udp_text.facts(session)


def _fragments(session: SessionStats) -> str:
    found = session.counters.get("fragments_sent")
    return f"; {number(found)} fragments of long messages" if found else ""


def held_up(session: SessionStats) -> str:
    """Returns whether the source has to wait, how long it has waited, and for which receiver."""
    if not session.wait and not session.blocked:
        return "no"
    if session.wait == "blocked":
        how = "a send waits for room"
    elif session.wait == "refused":
        how = "a send found no room, and the source waits for its WAKEUP"
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
    stopped = ", stopped" if holder.stopped else ""
    receiver = _process(holder.pid, holder.user, holder.context_name, holder.command)
    return f"{how}, by {receiver}, {size(holder.lag)} behind{stopped}"


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.1%}"


def _process(pid: int, user: str, name: str, command: str) -> str:
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
