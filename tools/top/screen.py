"""The screen as a pure function: from a frame, a view and a size to lines of text that fill the screen."""

from __future__ import annotations

import dataclasses
import datetime
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.console import Group
from rich.text import Text

from ipcbus import stats
from ipcbus_tools.name_lookup import NOT_READABLE
from ipcbus_tools.render import udp_text
from ipcbus_tools.top import charts, details, figures, message_view, panes, recorder_pane, table
from ipcbus_tools.top import view as views
from ipcbus_tools.top.view import View

if TYPE_CHECKING:
    from typing import Self

    from rich.console import Console

    from ipcbus.stats import DomainSnapshot, SessionStats, SlotStats, SourceStats
    from ipcbus_tools.top.host import Host
    from ipcbus_tools.top.rows import RecorderRow, Row
    from ipcbus_tools.top.session_history import SessionKey, SessionTrend

HEADER = 3
_WIDE = 100
"""Columns from which the header shows the bytes of shared memory in use, not only the share."""
_PROCESSORS = 4
"""Most processors that are shown one by one."""
_TREND_MIN_S = 10
"""Fewest seconds of a sparkline in the header."""
SMALLEST = (30, 8)
"""Smallest screen, in columns and lines."""


@dataclass(frozen=True, slots=True)
class Frame:
    """The data that one screen shows.

    Attributes:
        host: the machine; None when a recorded log is shown.
        found: the snapshot with its rates.
        rows: the lines of the table of sessions.
        trends: the last minute of each session.
        interval: seconds between two snapshots.
        lost: messages lost for good by all receivers since the first snapshot, and before by those that still run.
        hidden_dead: number of dead contexts that are no longer shown.
        title: origin of the snapshots; empty for the domain itself.
        others: names of other domains, if this one is empty.
        recorders: the lines of the table of recorders.
        domains: the lines of the page of domains.
        messages: the messages of the page of messages.
    """

    host: Host | None
    found: DomainSnapshot
    rows: tuple[Row, ...]
    trends: dict[SessionKey, SessionTrend]
    interval: float
    lost: int = 0
    hidden_dead: int = 0
    title: str = ""
    others: tuple[str, ...] = ()
    recorders: tuple[RecorderRow, ...] = ()
    domains: tuple[str, ...] = ()
    messages: message_view.Messages | None = None


@dataclass(frozen=True, slots=True)
class Size:
    """The size of the screen in characters; `unicode` says whether it shows more than ASCII."""

    width: int
    height: int
    unicode: bool = True

    @classmethod
    def of(cls, console: Console) -> Self:
        """Returns the current size of a console."""
        return cls(*console.size, console.encoding.lower().startswith("utf"))


def screen(frame: Frame, view: View, size: Size) -> Group:
    """Returns the lines of the screen, as many as it has, none wider than it."""
    if size.width < SMALLEST[0] or size.height < SMALLEST[1]:
        return _group([Text("too small")], size)
    body = size.height - HEADER - 1
    rows = views.shown(frame.rows, view)
    if view.page == views.HELP:
        lines = details.help_lines()
    elif view.page == views.DETAILS:
        row = rows[views.position(rows, view)] if rows else None
        lines = details.session_lines(row, size.width)
    elif view.page == views.TOPICS:
        lines = _topics(views.topics(rows, view), view, size, body)
    elif view.page == views.DOMAINS:
        lines = _domains(frame, view, body)
    elif view.page == views.MESSAGES:
        seen = frame.messages
        lines = message_view.lines(seen, size.width, body, unicode=size.unicode) if seen is not None else []
    else:
        lines = _main(frame, rows, view, size, body)
    if view.page in (views.HELP, views.DETAILS):
        first = table.window(view.scroll, view.scroll, body, len(lines))
        lines = lines[first : first + body]
    lines = [*_header(frame, view, size), *lines[:body]]
    lines += [Text()] * (size.height - 1 - len(lines))
    return _group([*lines, _footer(view, size)], size)


def report(frame: Frame, size: Size) -> Group:
    """Returns a frame in full length: sessions, the receivers of each, topics."""
    view, everything = View(), 1 << 20
    rows = views.shown(frame.rows, view)
    lines = [*_header(frame, view, size), Text(), *_sessions(frame, rows, -1, size, everything)]
    for row in rows:
        readers = _readers(frame.found, row.session)
        if readers:
            lines += [Text(), *_receivers(row.session, readers, 0, size, everything)]
    pairs = views.topics(rows, view)
    if pairs:
        lines += [Text(), *_topics(pairs, view, size, everything, -1)]
    if frame.recorders:
        lines += [Text(), *_recorders(frame, size, everything)]
    return _group([*lines, Text()], size)


def page_rows(size: Size) -> int:
    """Returns the number of lines of PgUp and PgDn."""
    return max(1, size.height - HEADER - 3)


def _group(lines: list[Text], size: Size) -> Group:
    for line in lines:
        line.end, line.no_wrap, line.overflow = "\n", True, "crop"
        line.truncate(size.width, overflow="ellipsis" if size.unicode else "crop")
    lines[-1].end = ""
    return Group(*lines)


def _header(frame: Frame, view: View, size: Size) -> list[Text]:
    found = frame.found
    host = f"{frame.host.name}  " if frame.host else f"{frame.title}  " if frame.title else ""
    clock = _clock(found.taken_ns, dated=frame.host is None)
    first = Text("ipcbus top  ", "bold")
    if view.paused:
        first.append("PAUSED" + (f" {view.back} snapshots ago" if view.back else ""), "reverse").append("  ")
    first.append(Text.assemble((table.clean(host), ""), ("domain ", "dim"), table.clean(found.domain)))
    first.append(f"  {clock}")
    first.append(f"  every {frame.interval:.3g} s", "dim")
    sessions = [row.session for row in frame.rows if row.session and row.state not in ("dead", "gone")]
    second = Text()
    if frame.host:
        second.append(f"{_processors(frame.host.processors)}  ")
        used, total = frame.host.memory_used, frame.host.memory_total
        wide = size.width >= _WIDE
        how_full = (
            f"{figures.size(used)} of {figures.size(total)}" if wide else f"{figures.share(used / max(1, total))}%"
        )
        second.append(f"/dev/shm {how_full}  ")
    alive = sum(context.alive for context in found.contexts)
    second.append(f"contexts {alive}  sessions {len(sessions)}  topics {sum(len(each.sources) for each in sessions)}")
    second.append(f"  receivers {sum(len(context.receivers) for context in found.contexts if context.alive)}")
    third = _totals(frame, sessions)
    room = min(stats.SPAN_S, size.width - third.cell_len - 2)
    if room >= _TREND_MIN_S:
        third.append("  " + figures.sparkline(_sum(frame.trends), room, unicode=size.unicode), "cyan")
    return [first, second, third]


def _processors(busy: tuple[float, ...]) -> str:
    """Returns the load of each processor, or, if there are many, the mean and the highest load."""
    if len(busy) <= _PROCESSORS:
        return " ".join(f"CPU{place} {share:.0f}%" for place, share in enumerate(busy))
    return f"{len(busy)} CPUs {sum(busy) / len(busy):.0f}%, busiest {max(busy):.0f}%"


def _sum(trends: dict[SessionKey, SessionTrend]) -> list[float | None]:
    """Returns the throughput of all sessions, second by second; unknown only if that of all sessions is."""
    rates = [trail.rate for trail in trends.values()]
    columns = [[value for value in column if value is not None] for column in zip(*rates, strict=False)]
    return [sum(column) if column else None for column in columns]


def _clock(time_ns: int, *, dated: bool) -> str:
    try:
        time = datetime.datetime.fromtimestamp(time_ns / 1e9)
    except (ValueError, OverflowError, OSError):
        return "??:??:??"  # the time of a damaged recording
    return time.strftime("%Y-%m-%d %H:%M:%S" if dated else "%H:%M:%S")


def _totals(frame: Frame, sessions: list[SessionStats]) -> Text:
    readers = [slot for session in sessions for slot in session.receivers]
    text = Text(f"{figures.count(sum(each.per_second.get('lbm_msgs_sent', 0.0) for each in sessions))} msg/s", "bold")
    text.append(f"  {figures.mebibytes(sum(each.per_second.get('bytes_sent', 0.0) for each in sessions))} MiB/s")
    lost = frame.lost
    rate = sum(slot.per_second.get("lost", 0.0) for slot in readers)
    text.append(f"  lost {figures.whole(lost)}", panes.BAD if lost else "")
    text.append(f" ({figures.count(rate)}/s)" if rate else "", panes.BAD)
    for trouble, style in recorder_pane.troubles(frame.recorders):
        text.append(f"  {trouble}", style)
    uplinks = [each.uplink for each in sessions if each.uplink is not None]
    for name, counter in (("NAKs", "naks_rcved"), ("again", "rxs_sent")):
        rate = sum(uplink.per_second.get(counter, 0.0) for uplink in uplinks)
        text.append(f"  {name} {figures.count(rate)}/s" if rate else "", panes.WARN)
    _append_recoveries(text, frame.found)
    states = [row.state for row in frame.rows]
    blocked = sum(1 for each in sessions if each.wait or (each.blocked or 0) > 0.01)
    for name, count, style in (
        ("held up", blocked, panes.WARN),
        ("rate limited", sum((uplink.limited or 0) > 0.01 for uplink in uplinks), panes.WARN),
        ("unrecovered", sum(_unrecovered(slot) for slot in readers), panes.BAD),
        ("evicted", sum(each.counters.get("receivers_evicted", 0) for each in sessions), panes.BAD),
        ("not readable", states.count(NOT_READABLE), panes.DIM),
        ("dead", states.count("dead") + frame.hidden_dead, panes.BAD),
    ):
        text.append(f"  {name} {count}" if count else "", style)
    return text


def _append_recoveries(text: Text, found: DomainSnapshot) -> None:
    """Appends what the domain keeps, recovers and asks, as far as it does."""
    alive = [context.counters for context in found.contexts if context.alive]
    kept, recovering, missing, pending = (
        sum(counters.get(name, 0) for counters in alive)
        for name in ("retained_bytes", "recoveries_running", "retransmissions_missing", "reqs_pending")
    )
    text.append(f"  kept {figures.size(kept)}" if kept else "")
    text.append(f"  recovering {recovering}, missing {figures.whole(missing)}" if recovering else "", panes.WARN)
    text.append(f"  requests {figures.whole(pending)}" if pending else "")
    unacknowledged, failures = (sum(each.get(name, 0) for each in alive) for name in ("gmd_pending", "gmd_failures"))
    text.append(f"  pending {figures.whole(unacknowledged)}" if unacknowledged else "")
    text.append(f"  failed {figures.whole(failures)}" if failures else "", panes.BAD)


def _unrecovered(slot: SlotStats) -> int:
    return slot.reception.unrecovered if slot.reception else 0


def _footer(view: View, size: Size) -> Text:
    if view.typing:
        return Text.assemble(
            ("filter: ", "bold"), table.clean(view.filter), ("_", "blink"), ("   Enter: keep  Esc: drop", "dim")
        )
    if view.page in (views.MESSAGES, views.DOMAINS):
        more = "p pause" if view.page == views.MESSAGES else "Enter go there"
        return Text(f"q quit  Esc back  ? help  {more}", "dim")
    text = Text("q quit  ? help  f filter", "dim")
    if view.filter:
        text.append(f" {table.clean(view.filter)!r}", "bold")
    arrows = "↑↓" if size.unicode else "up/down"
    for each in (
        f"> sort {view.sort}{' reversed' if view.reverse else ''}",
        *("Enter messages", "t topics", "d details", "D domain", "p pause", f"{arrows} choose", "m mouse"),
    ):
        if text.cell_len + 2 + len(each) <= size.width:
            text.append(f"  {each}", "dim")
    return text


def _main(frame: Frame, rows: list[Row], view: View, size: Size, body: int) -> list[Text]:
    place = views.position(rows, view)
    session = rows[place].session if rows else None
    readers = _readers(frame.found, session)
    sources = views.topics([rows[place]], View(filter=view.filter, only=rows[place].key)) if rows else []
    parts = _parts(frame, rows, len(readers), len(sources), body)
    lines = _sessions(frame, rows, place, size, parts[0], view)
    if parts[1]:
        lines += _receivers(session, readers, view.receivers, size, parts[1])
    if parts[2]:
        lines += _sources(session, sources, view, size, parts[2])
    if rows:
        order = [rows[place], *(row for i, row in enumerate(rows) if i != place)]
        free = body - len(lines) - parts[3]
        lines += charts.draw(order, frame.trends, size.width, free, unicode=size.unicode)
    if parts[3]:
        # The table of recorders stands at the bottom of the screen.
        lines += [Text()] * (body - len(lines) - parts[3])
        lines += _recorders(frame, size, parts[3])
    return lines


def _parts(frame: Frame, rows: list[Row], readers: int, sources: int, body: int) -> list[int]:
    """Returns the number of lines of the tables of sessions, receivers, topics and recorders."""
    wants = (1 + max(1, len(rows)), 2 + max(1, readers), 2 + max(1, sources), _recorder_lines(frame))
    return _share(body, wants, (5, 4, 3, 3))


def clicked(frame: Frame, view: View, size: Size, x: int, y: int) -> View:
    """Returns the view after a click at a place of the screen: a title sorts, a line is chosen."""
    body, line = size.height - HEADER - 1, y - HEADER
    if view.typing or not 0 <= line < body:
        return view
    rows = views.shown(frame.rows, view)
    if view.page == views.SESSIONS:
        if line == 0:
            fitted = table.fit(_columns(frame, rows, view, size), size.width - 2)
            return views.sorted_by(view, table.title_at(fitted, x - 2))
        place = views.position(rows, view)
        session = rows[place].session if rows else None
        sources = views.topics([rows[place]], View(filter=view.filter, only=rows[place].key)) if rows else []
        room = _parts(frame, rows, len(_readers(frame.found, session)), len(sources), body)[0]
        chosen = table.window(place, place - room // 2, room - 1, len(rows)) + line - 1
        if line < room and chosen < len(rows):
            return dataclasses.replace(view, chosen=rows[chosen].key, receivers=0)
    elif view.page == views.TOPICS and line:
        count = len(views.topics(rows, view))
        place = min(view.topic, max(0, count - 1))
        chosen = table.window(place, place - body // 2, body - 1, count) + line - 1
        return dataclasses.replace(view, topic=min(chosen, max(0, count - 1)))
    elif view.page == views.DOMAINS and line:
        return dataclasses.replace(view, line=min(line - 1, max(0, len(frame.domains) - 1)))
    return view


def _domains(frame: Frame, view: View, body: int) -> list[Text]:
    lines = [Text("  domain", table.HEAD)]
    place = min(view.line, max(0, len(frame.domains) - 1))
    first = table.window(place, place - body // 2, body - 1, len(frame.domains))
    for i, domain in enumerate(frame.domains[first : first + body - 1], first):
        here = "  this one" if domain == frame.found.domain else ""
        mark, style = ("> ", table.CHOSEN) if i == place else ("  ", "")
        lines.append(_marked(Text(table.clean(domain) + here, end=""), mark, style))
    if not frame.domains:
        lines.append(Text("  no other domain can be shown", "dim"))
    return lines


def _recorder_lines(frame: Frame) -> int:
    """Returns the lines that all recorders need."""
    return 1 + len(frame.recorders) if frame.recorders else 0


def _recorders(frame: Frame, size: Size, room: int) -> list[Text]:
    fitted = table.fit(recorder_pane.COLUMNS, size.width - 2)
    lines = [table.line(fitted, row, unicode=size.unicode) for row in frame.recorders[: room - 1]]
    return [_marked(line, "  ") for line in (table.head(fitted), *lines)]


def _share(room: int, wants: tuple[int, ...], least: tuple[int, ...]) -> list[int]:
    """Returns the lines of each table: as many as it needs, or a share of the room; 0 for tables without room."""
    given = [min(want, low) for want, low in zip(wants, least, strict=True)]
    while sum(given) > room and len([part for part in given if part]) > 1:
        given[max(i for i, part in enumerate(given) if part)] = 0
    given[0] = min(given[0], room)
    growing = True
    while growing and sum(given) < room:
        growing = False
        for i, want in enumerate(wants):
            if 0 < given[i] < want and sum(given) < room:
                given[i] += 1
                growing = True
    return given


def _columns(frame: Frame, rows: list[Row], view: View, size: Size) -> list[table.Column[Row]]:
    return panes.sessions(frame.trends, rows, size.width - 2, unicode=size.unicode, wanted=view.filter)


def _sessions(frame: Frame, rows: list[Row], place: int, size: Size, room: int, view: View | None = None) -> list[Text]:
    view = view or View(sort="msg/s")
    fitted = table.fit(_columns(frame, rows, view, size), size.width - 2)
    lines = [_marked(table.head(fitted, view.sort), "  ")]
    first = table.window(max(0, place), place - room // 2, room - 1, len(rows))
    for i, row in enumerate(rows[first : first + room - 1], first):
        if row.session is not None and row.session.counters:
            line = table.line(fitted, row, unicode=size.unicode)
        else:
            line = table.line(fitted[:1], row, unicode=size.unicode)
            owner = f"  pid {row.session.pid} ({row.session.user})" if row.session else ""
            about = f" {row.state}{owner}  {row.reason}"
            line.append(table.cut(about, max(0, size.width - 2 - line.cell_len), unicode=size.unicode), "dim")
        if row.state in ("dead", "gone"):
            line.stylize("dim")
        lines.append(_marked(line, "> " if i == place else "  ", table.CHOSEN if i == place else ""))
    if not rows:
        lines.append(Text("  " + _nothing(frame), "dim"))
    return lines


def _nothing(frame: Frame) -> str:
    if frame.rows:
        return "no session fits the filter"
    if frame.hidden_dead:
        return f"no session; the next context of this domain removes what {frame.hidden_dead} dead contexts left"
    others = ", ".join(table.clean(each) for each in frame.others)
    return "no session in this domain" + (f"; other domains (--domain): {others}" if others else "")


def _marked(line: Text, mark: str, style: str = "") -> Text:
    found = Text(mark, end="")
    found.append_text(line)
    if style:
        found.stylize(style)
    return found


def _readers(found: DomainSnapshot, session: SessionStats | None) -> list[panes.Reader]:
    if session is None:
        return []
    contexts = {context.context_id: context for context in found.contexts}
    joined = [panes.Reader.joined(session, slot, contexts.get(slot.context_id)) for slot in session.receivers]
    joined.sort(key=lambda reader: (not reader.holds_up, -(reader.slot.lag if reader.slot else 0), reader.pid))
    return joined + [panes.Reader.absent(each) for each in stats.absent(found, session)]


def _receivers(
    session: SessionStats | None, readers: list[panes.Reader], offset: int, size: Size, room: int
) -> list[Text]:
    fitted = table.fit(panes.readers(readers), size.width - 2)
    lines = [_title(_about(session), size), _marked(table.head(fitted), "  ")]
    first = min(offset, max(0, len(readers) - (room - 2)))
    for reader in readers[first : first + room - 2]:
        mark = "! " if reader.holds_up else "  "
        if reader.slot is not None:
            lines.append(_marked(table.line(fitted, reader, unicode=size.unicode), mark))
        else:
            line = table.line(fitted[:2], reader, unicode=size.unicode)
            about = f" {reader.reason}"
            line.append(table.cut(about, max(0, size.width - 2 - line.cell_len), unicode=size.unicode), "dim")
            lines.append(_marked(line, mark))
    if not readers:
        lines.append(Text("  no receiver" if session else "", "dim"))
    return lines


def _about(session: SessionStats | None) -> Text:
    """Returns the title above the receivers: their session, and the receiver that holds it up."""
    if session is None:
        return Text("receivers")
    joined = session.counters.get("num_clients", 0)
    text = Text()
    holder = session.held_up_by
    if holder is not None:
        since = f" for {figures.time(session.held_up_for_ns)}" if session.held_up_for_ns else ""
        share = f", {figures.share(session.blocked)} % blocked" if session.blocked is not None else ""
        about = f"held up by pid {holder.pid} ({holder.user}){since}{share}: {figures.program(holder.command)}"
        text.append(f"{table.clean(about)}  ", panes.WARN)
    uplink = session.uplink
    if uplink is not None and (session.held_up_by_rate or (uplink.limited or 0) > 0.01):
        share = f", {figures.share(uplink.limited)} % of the time" if uplink.limited is not None else ""
        how = "held up" if session.held_up_by_rate else "limited"
        text.append(f"{how} by {udp_text.data_rate(uplink)}{share}  ", panes.WARN)
    text.append(table.clean(session.source))
    if session.counters:
        text.append(f"  {joined} receiver{'' if joined == 1 else 's'}")
        clients = uplink.counters.get("num_clients", 0) if uplink is not None else 0
        if uplink is None or uplink.layer != session.transport:
            over = f", {clients} of them over {uplink.layer}" if uplink is not None and clients else ""
            text.append(f"{over}, {session.slots_max} slot{'' if session.slots_max == 1 else 's'}")
    if session.closed:
        text.append("  closed", panes.WARN)
    if holder is None and not session.held_up_by_rate:
        name = f" {session.context_name}" if session.context_name else ""
        text.append(table.clean(f"  pid {session.pid}{name}  {figures.program(session.command)}"), "dim")
    return text


def _sources(
    session: SessionStats | None, pairs: list[tuple[Row, SourceStats]], view: View, size: Size, room: int
) -> list[Text]:
    columns = [column for column in panes.SOURCES if column.title not in ("session", "pid")]
    fitted = table.fit(columns, size.width - 2)
    title = f"{len(pairs)} topic{'' if len(pairs) == 1 else 's'}"
    if session is not None and len(pairs) < len(session.sources):
        title = f"{len(pairs)} of {len(session.sources)} topics, with {table.clean(view.filter)!r}"
    if len(pairs) > room - 2:
        title += f", {room - 2} shown, t shows all"
    lines = [_title(Text(title if session else "topics"), size), _marked(table.head(fitted), "  ")]
    lines += [_marked(table.line(fitted, pair, unicode=size.unicode), "  ") for pair in pairs[: room - 2]]
    return lines


def _topics(
    pairs: list[tuple[Row, SourceStats]], view: View, size: Size, body: int, place: int | None = None
) -> list[Text]:
    fitted = table.fit(panes.SOURCES, size.width - 2)
    lines = [_marked(table.head(fitted), "  ")]
    place = min(view.topic, max(0, len(pairs) - 1)) if place is None else place
    first = table.window(max(0, place), place - body // 2, body - 1, len(pairs))
    for i, pair in enumerate(pairs[first : first + body - 1], first):
        style = table.CHOSEN if i == place else ""
        lines.append(_marked(table.line(fitted, pair, unicode=size.unicode), "> " if i == place else "  ", style))
    if not pairs:
        lines.append(Text("  no topic" + (" fits the filter" if view.filter else " in this domain"), "dim"))
    return lines


def _title(text: Text, size: Size) -> Text:
    rule = "──" if size.unicode else "--"
    title = Text.assemble((f"{rule} ", "dim"), text)
    rest = size.width - title.cell_len - 1
    if rest > 0:
        title.append(" " + rule[0] * rest, "dim")
    return title
