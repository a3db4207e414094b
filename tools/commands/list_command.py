"""`ipcbus list`: lists contexts, topics, receivers and recorders from the statistics alone."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from ipcbus_tools.commands import top_command
from ipcbus_tools.common import (
    Misuse,
    age,
    duration,
    json_option,
    number,
    output,
    print_json,
    safe,
    size,
    statistics_options,
)
from ipcbus_tools.name_lookup import state
from ipcbus_tools.render import udp_text
from ipcbus_tools.render.text_tables import Row, reader, show_table

if TYPE_CHECKING:
    from rich.console import Console

    from ipcbus.stats import ContextStats, DomainSnapshot, RecorderStats, SessionStats

_NONE = "-"


@click.command("list")
@click.option("-v", "--verbose", is_flag=True, help="List sessions too, and their receivers with lag and latency.")
@click.option("--live", is_flag=True, help="Show all this live, on the screen of 'ipcbus top'.")
@click.option("--all", "everywhere", is_flag=True, help="List all domains of this host.")
@statistics_options
@json_option
@click.pass_context
def command(context: click.Context, verbose: bool, live: bool, everywhere: bool, domain: str, as_json: bool) -> None:
    """Lists contexts, topics, receivers and recorders of the domain; it only reads shared memory.

    When a process of another user keeps its numbers private, the list says so.

    \b
    Examples:
      ipcbus list
      ipcbus list -v --domain trading
      ipcbus list --live
      ipcbus list --all --json | jq '.[].contexts[].pid'
    """
    from ipcbus import stats

    if live:
        if everywhere:
            raise Misuse("--live shows one domain, and --all lists every domain; give --domain NAME instead of --all")
        context.invoke(top_command.command, domain=domain, as_json=as_json)
        return
    found = stats.take_snapshots() if everywhere else (stats.take_snapshot(domain),)
    if as_json:
        print_json([each.to_dict() for each in found] if everywhere else found[0].to_dict())
        return
    console = output()
    if not any(each.contexts for each in found):
        where = "on this host" if everywhere else f"in domain {domain!r}"
        console.print(safe(f"no context runs {where}" + ("" if everywhere else "; --all shows every domain")))
    for each in found:
        if each.contexts:
            _show(console, each, verbose)


def _show(console: Console, found: DomainSnapshot, verbose: bool) -> None:
    console.print(safe(f"domain {found.domain}"), style="bold")
    show_table(console, "contexts", _contexts(found))
    show_table(console, "topics", _topics(found))
    show_table(console, "receivers", _receivers(found))
    recorders = [_recorder(context, each) for context in found.contexts for each in context.recorders]
    show_table(console, "recorders", recorders)
    if verbose:
        show_table(console, "sessions", _sessions(found))
        show_table(console, "readers", _readers(found))


def _contexts(found: DomainSnapshot) -> list[Row]:
    now = time.time_ns()
    return [
        {
            "context": f"{context.context_id:08x}",
            "name": context.name,
            "pid": context.pid or _NONE,
            "user": context.user,
            "state": _state(context),
            "up": age((now - context.start_ns) / 1e9) if context.start_ns else _NONE,
            "topics": sum(len(session.sources) for session in context.sessions),
            "receivers": len(context.receivers),
            "command": context.command,
            "note": context.reason,
        }
        for context in found.contexts
    ]


def _state(context: ContextStats) -> str:
    if not context.alive:
        return "dead"
    if not context.pid:
        return "not readable"
    return "stopped" if context.stopped else ""


def _topics(found: DomainSnapshot) -> list[Row]:
    pairs = [(session, source) for session in found.sessions for source in session.sources]
    return [
        {
            "topic": source.topic,
            "source": session.source,
            "pid": session.pid,
            "user": session.user,
            "state": state(session),
            "messages": number(source.counters["lbm_msgs_sent"]) if source.counters else _NONE,
            "bytes": size(source.counters["bytes_sent"]) if source.counters else _NONE,
            "receivers": source.receivers if source.counters else _NONE,
            "note": session.reason,
        }
        for session, source in sorted(pairs, key=lambda pair: (pair[1].topic, pair[0].source))
    ]


def _receivers(found: DomainSnapshot) -> list[Row]:
    pairs = [(context, receiver) for context in found.contexts for receiver in context.receivers]
    return [
        {
            "topic": receiver.topic,
            "kind": "wildcard" if receiver.wildcard else "",
            "context": f"{context.context_id:08x}",
            "name": context.name,
            "pid": context.pid,
            "user": context.user,
            "state": _state(context),
            "messages": number(receiver.counters["lbm_msgs_rcved"]),
            "bytes": size(receiver.counters["bytes_rcved"]),
            "lost": number(receiver.counters["lost"]),
        }
        for context, receiver in sorted(pairs, key=lambda pair: (pair[1].topic, pair[0].start_ns))
    ]


def _sessions(found: DomainSnapshot) -> list[Row]:
    return [
        {
            "source": session.source,
            "pid": session.pid,
            "user": session.user,
            "state": state(session),
            "pacing": session.pacing,
            "window": udp_text.window(session),
            "topics": len(session.sources),
            **_sent(session),
            **_over_udp(session),
            "held up by": _holder(session),
            "note": session.reason,
        }
        for session in found.sessions
    ]


def _holder(session: SessionStats) -> str:
    """Returns the receiver or the rate limit that a source waits for, and how long it has waited."""
    slot = session.held_up_by
    since = f" for {duration(session.blocked_for_ns)}" if session.blocked_for_ns else ""
    if session.held_up_by_rate and session.uplink is not None:
        return udp_text.data_rate(session.uplink) + since
    if slot is None:
        return ""
    return f"pid {slot.pid} ({slot.user}) {slot.context_name}".rstrip() + since


def _sent(session: SessionStats) -> Row:
    sent = session.counters
    if not sent:
        return dict.fromkeys(("receivers", "datagrams", "messages", "bytes", "blocked", "waited"), _NONE)
    return {
        "receivers": f"{sent['num_clients']}/{session.slots_max}",
        "datagrams": number(sent["msgs_sent"]),
        "messages": number(sent["lbm_msgs_sent"]),
        "bytes": size(sent["bytes_sent"]),
        "blocked": number(sent["send_blocked"]),
        "waited": duration(sent["blocked_ns"]),
    }


def _over_udp(session: SessionStats) -> Row:
    uplink = session.uplink
    if uplink is None or not uplink.counters:
        return dict.fromkeys(("over UDP", "NAKs", "sent again", "rate limited"), "")
    return {
        "over UDP": f"{uplink.layer} {uplink.counters['num_clients']}",
        "NAKs": number(uplink.counters["naks_rcved"]),
        "sent again": number(uplink.counters["rxs_sent"]),
        "rate limited": duration(uplink.counters["rate_limited_ns"] + uplink.limited_for_ns),
    }


def _readers(found: DomainSnapshot) -> list[Row]:
    return [
        {"source": session.source} | reader(session, slot) for session in found.sessions for slot in session.receivers
    ]


def _recorder(context: ContextStats, recorder: RecorderStats) -> Row:
    counted = recorder.counters
    return {
        "recorder": recorder.log,
        "context": f"{context.context_id:08x}",
        "name": context.name,
        "pid": context.pid,
        "user": context.user,
        "state": recorder.doing,
        "messages": number(counted["messages"]),
        "bytes": size(counted["bytes"]),
        "lost": number(counted["lost"]),
        "missed": number(counted["missed"]),
        "dropped": number(counted["dropped"]),
        "behind": duration(counted["behind_ns"]),
        "buffer": size(counted["buffered_bytes"]) + ("" if recorder.fill is None else f" ({recorder.fill:.0%})"),
        "errors": number(counted["errors"]),
        "next offset": number(counted["next_offset"]),
    }
