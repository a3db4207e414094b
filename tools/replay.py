"""`ipcbus replay`: a recorded feed goes onto the bus again, at its own pace or as fast as it can."""

from __future__ import annotations

import dataclasses
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

import ipcbus
from ipcbus import stats
from ipcbus.config import Config
from ipcbus.wire.layout import MESSAGE_HEADER_BYTES
from ipcbus_tools.common import (
    Failure,
    Misuse,
    Seconds,
    bus_options,
    json_option,
    notes,
    number,
    output,
    print_json,
    source_options,
    transport_option,
)
from ipcbus_tools.feed import Feed, Survey
from ipcbus_tools.stopping import Stopped, Stopper

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

MAX_SPEED = 0.0
_STEP = 2048
"""Messages between two looks at the progress bar."""
_LOOK_S = 0.02
_NEAR_S = 0.0002
"""A message due so soon is sent now: waiting for less is not exact anyway."""


def _speed(context: click.Context, option: click.Parameter, value: str) -> float:
    """`real`, `max`, or a factor such as `10x`, as a factor."""
    text = value.lower()
    if text in ("max", "real"):
        return 1.0 if text == "real" else MAX_SPEED
    try:
        factor = float(text.removesuffix("x"))
    except ValueError:
        factor = 0.0
    if not 0 < factor < float("inf"):
        raise click.BadParameter(f"{value!r} is none of real, max, and a factor such as 10x or 0.5x", context, option)
    return factor


@dataclasses.dataclass(slots=True)
class Progressed:
    """What was sent, and how long that took."""

    messages: int = 0
    bytes: int = 0
    seconds: float = 0.0


@click.command("replay", short_help="Sends the messages recorded in a file.")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--speed",
    callback=_speed,
    default="max",
    show_default=True,
    metavar="real|max|Nx",
    help="As recorded, as fast as it goes, or N times as fast as recorded.",
)
@click.option(
    "--topic-from",
    metavar="KEY",
    default="stream",
    show_default=True,
    help="The JSON key whose value is the topic of a line.",
)
@click.option(
    "--topic", metavar="TOPIC", default="feed", show_default=True, help="Topic of lines without it, and of plain text."
)
@transport_option
@click.option(
    "--wait-receivers",
    metavar="N",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Start when N contexts receive each topic of the file; they miss nothing.",
)
@click.option(
    "--timeout", metavar="SECONDS", type=Seconds(), default=30, show_default=True, help="Wait at most this long."
)
@click.option(
    "--linger",
    metavar="SECONDS",
    type=Seconds(),
    default=5,
    show_default=True,
    help="At the end, stay at most so long until everything is read.",
)
@bus_options
@json_option
def command(
    file: Path,
    speed: float,
    topic_from: str,
    topic: str,
    transport: str | None,
    wait_receivers: int,
    timeout: float,
    linger: float,
    domain: str,
    config: str | None,
    as_json: bool,
) -> None:
    """Sends the messages recorded in FILE.

    FILE is a capture, a line '<time stamp in ns> <JSON>' for each message, or any other text, a line for each message;
    gzip is unpacked. The payload is the JSON, or the line, byte for byte. Receivers may use any number of its topics.

    \b
    Examples:
      ipcbus replay feed.gz --wait-receivers 3
      ipcbus replay feed.gz --speed real
      ipcbus replay feed.gz --speed 10x --transport lbtsmx
      ipcbus replay /var/log/messages --topic log
    """
    with Stopper() as stopper:
        with stopper.allowed():
            feed = Feed(file, key=topic_from, topic=topic)
            survey = _survey(feed, speed)
        settings = Config.load(config)
        with ipcbus.Context(settings, domain=domain) as context:
            sources = _open_sources(context, settings, transport, survey)
            done = Progressed()
            everything_read = False
            try:
                with stopper.allowed():
                    _wait_for_receivers(sources.values(), wait_receivers, timeout)
                    _send(feed, survey, sources, Pace(speed, survey.first_ns, stopper), done)
                    everything_read = _wait_until_read(domain, sources.values(), linger, stopper)
            except Stopped:
                _report(survey, sources, done, False, as_json)
                raise
            _report(survey, sources, done, everything_read, as_json)


def _survey(feed: Feed, speed: float) -> Survey:
    with notes().status(f"reading {feed.path.name}"):
        survey = feed.survey()
    if survey.messages == 0:
        raise Failure(f"{feed.path} holds no messages; give a file with a line for each")
    if speed != MAX_SPEED and not feed.is_capture:
        raise Misuse(f"{feed.path} has no time stamps to follow; replay it with --speed max")
    return survey


def _open_sources(
    context: ipcbus.Context, settings: Config, transport: str | None, survey: Survey
) -> dict[str, ipcbus.Source]:
    """A source for each topic, on sessions that can carry the longest message."""
    options = source_options(transport)
    chosen = settings.values("source", **options)
    # The message with its header, and again as a multiple of 8 bytes.
    need = (survey.longest + MESSAGE_HEADER_BYTES + 7) & ~7
    if chosen.transport == "lbtsmx" and need > chosen.transport_lbtsmx_datagram_max_size:
        # Two of them have to fit into the window, each with the header of its record.
        window = 1 << (2 * need + 64 - 1).bit_length()
        options["transport_lbtsmx_datagram_max_size"] = need
        options["transport_lbtsmx_transmission_window_size"] = max(
            window, chosen.transport_lbtsmx_transmission_window_size
        )
    return {topic: context.source(topic, **options) for topic in survey.topics}


def _wait_for_receivers(sources: Iterable[ipcbus.Source], count: int, timeout: float) -> None:
    deadline = time.monotonic() + timeout
    for source in sources:
        source.wait_for_receivers(count, max(0.0, deadline - time.monotonic()))


class Pace:
    """When the next message is due."""

    def __init__(self, speed: float, first_ns: int, stopper: Stopper) -> None:
        """The clock starts with the first message."""
        self.as_fast_as_possible = speed == MAX_SPEED
        self._rate = speed * 1e9 or 1.0
        self._first_ns = first_ns
        self._begin = time.monotonic()
        self._stopper = stopper

    def early(self, at_ns: int) -> float:
        """Seconds until a message of this time stamp is due; negative when it is late."""
        return self._begin + (at_ns - self._first_ns) / self._rate - time.monotonic()

    def wait(self, seconds: float) -> None:
        """Lets the time pass."""
        self._stopper.wait(seconds)


def _send(feed: Feed, survey: Survey, sources: dict[str, ipcbus.Source], pace: Pace, done: Progressed) -> None:
    """Sends everything; `done` is right at any moment, also when a signal ends it."""
    begin = time.monotonic()
    # Sources share sessions; one of each session is enough to publish what is batched.
    sessions = list({source.source: source for source in sources.values()}.values())
    with _progress() as progress:
        task = progress.add_task("", total=survey.messages)
        try:
            for at, topic, payload in feed.lines():
                if not pace.as_fast_as_possible and (early := pace.early(at)) > _NEAR_S:
                    for source in sessions:
                        source.flush()
                    progress.update(task, completed=done.messages)
                    pace.wait(early)
                sources[topic].send(payload)
                done.messages += 1
                done.bytes += len(payload)
                if done.messages % _STEP == 0:
                    progress.update(task, completed=done.messages)
            for source in sessions:
                source.flush()
        finally:
            done.seconds = time.monotonic() - begin
            progress.update(task, completed=done.messages)


def _progress() -> Progress:
    columns = (BarColumn(None), MofNCompleteColumn(), TextColumn("{task.speed:.0f}/s", "dim"), TimeRemainingColumn())
    return Progress(*columns, console=notes(), transient=True, disable=not sys.stderr.isatty(), expand=True)


def _wait_until_read(domain: str, sources: Collection[ipcbus.Source], linger: float, stopper: Stopper) -> bool:
    """Waits until every reader of these sources' sessions is at the end; says whether they are."""
    mine = {source.source for source in sources}
    deadline = time.monotonic() + linger
    while True:
        sessions = [session for session in stats.take_snapshot(domain).sessions if session.source in mine]
        behind = [slot for session in sessions for slot in session.receivers if slot.alive and slot.lag]
        if not behind:
            return True
        if time.monotonic() >= deadline:
            pids = ", ".join(sorted({str(slot.pid) for slot in behind}))
            click.echo(f"note: not everything is read yet (pid {pids}); it stays readable for them", err=True)
            return False
        stopper.wait(_LOOK_S)


def _report(
    survey: Survey, sources: dict[str, ipcbus.Source], done: Progressed, everything_read: bool, as_json: bool
) -> None:
    rate = done.messages / done.seconds if done.seconds else 0.0
    if as_json:
        print_json(
            {
                "messages": done.messages,
                "bytes": done.bytes,
                "seconds": round(done.seconds, 6),
                "msgs_per_second": round(rate, 1),
                "complete": done.messages == survey.messages,
                "everything_read": everything_read,
                "topics": {topic: source.sequence_number + 1 for topic, source in sources.items()},
                "sessions": sorted({source.source for source in sources.values()}),
            }
        )
        return
    text = f"{number(done.messages)} messages, {number(done.bytes)} bytes in {done.seconds:.2f} s: {number(rate)} msg/s"
    if done.messages < survey.messages:
        text += f"; {number(survey.messages - done.messages)} were not sent"
    output().print(text, highlight=False)
