"""`ipcbus replay`: sends recorded messages again, at their own pace or as fast as possible."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from click.core import ParameterSource

from ipcbus_tools.common import (
    EXAMPLE_TIME,
    ZONE_HELP,
    Misuse,
    Seconds,
    as_time,
    bus_options,
    json_option,
    sending_options,
)
from ipcbus_tools.replay.replay_options import Sending, speed_of

if TYPE_CHECKING:
    import datetime

_FEED_TOPIC: Final = "feed"
_OF_FEEDS: Final = ("topic_from",)
_OF_ARCHIVES: Final = ("select", "pattern", "rename", "stream", "start", "end", "loops")


def _edge(context: click.Context, option: click.Parameter, value: str | None) -> int | datetime.datetime | None:
    """Converts a text into an offset or a time."""
    if value is None or value.isdecimal():
        return value if value is None else int(value)
    at = as_time(value)
    if at is None:
        raise click.BadParameter(f"{value!r} is neither an offset nor a time such as {EXAMPLE_TIME}", context, option)
    return at


def _renamed(_context: click.Context, option: click.Parameter, given: tuple[str, ...]) -> dict[str, str]:
    """Converts OLD=NEW texts into a dictionary of new names."""
    found = {}
    for each in given:
        old, equals, new = each.partition("=")
        if not (old and equals and new):
            raise click.BadParameter(f"{each!r} is not OLD=NEW, a topic of the archive and its new name", param=option)
        found[old] = new
    return found


@click.command("replay")
@click.argument("path", metavar="ARCHIVE|FILE", type=click.Path(exists=True, path_type=Path))
@click.option(
    "--speed",
    callback=speed_of,
    default="max",
    metavar="real|max|Nx",
    help="Send at the recorded pace (real), as fast as possible (max), or N times as fast as recorded.",
)
@click.option(
    "--topic",
    metavar="TOPIC",
    multiple=True,
    help="Archive: send only this topic; may be repeated. File: the topic of lines that name none, and of plain "
    f"text (default {_FEED_TOPIC}).",
)
@click.option("--select", multiple=True, hidden=True)  # the name of --topic in earlier releases
@click.option("--pattern", metavar="REGEX", help="Archive: send only topics that match this regular expression.")
@click.option(
    "--rename",
    metavar="OLD=NEW",
    multiple=True,
    callback=_renamed,
    help="Archive: send topic OLD as NEW; may be repeated.",
)
@click.option("--stream", metavar="NAME", help="Archive: send only what the recorder with this --stream wrote.")
@click.option("--start", metavar="OFFSET|TIME", callback=_edge, help=f"Archive: begin there; {ZONE_HELP}")
@click.option("--end", metavar="OFFSET|TIME", callback=_edge, help=f"Archive: end before that; {ZONE_HELP}")
@click.option(
    "--loops",
    metavar="N",
    type=click.IntRange(min=0),
    default=1,
    help="Archive: send everything N times; 0 goes on until Ctrl-C.",
)
@click.option(
    "--topic-from",
    metavar="KEY",
    default="stream",
    help="File: the JSON key whose value is the topic of a line, else --topic is.",
)
@sending_options(timeout=30)
@click.option(
    "--linger",
    type=Seconds(),
    default=5,
    help="At the end, wait at most SECONDS until the receivers have read everything.",
)
@bus_options
@json_option
@click.pass_context
def command(
    context: click.Context,
    /,
    path: Path,
    topic: tuple[str, ...],
    select: tuple[str, ...],
    topic_from: str,
    **options: Any,  # noqa: ANN401 - as Sending and Player take them
) -> None:
    """Sends the messages of an archive or a file.

    It waits for a receiver of each topic first, as 'ipcbus pub' does; --wait-receivers 0 starts at once.

    ARCHIVE is a directory that 'ipcbus record' wrote. Payloads and headers are sent unchanged, the messages of all logs
    in the order in which they were received.

    FILE is a capture, with a line '<time stamp in ns> <JSON>' for each message, or any other text, with a line for each
    message; gzip is unpacked. The payload is the JSON, or the line, unchanged.

    \b
    Examples:
      ipcbus replay archive --speed real
      ipcbus replay archive --speed 10x --topic quotes.AAPL --rename quotes.AAPL=test.AAPL
      ipcbus replay archive --start 2026-08-08T09:30 --end 2026-08-08T16:00 --loops 0
      ipcbus replay feed.gz --wait-receivers 3
      ipcbus replay /var/log/messages --topic log
    """
    from ipcbus_tools.replay import replay_archive, replay_feed  # they import the bus

    is_archive = path.is_dir()
    foreign, kind, other = (_OF_FEEDS, "an archive", "files") if is_archive else (_OF_ARCHIVES, "a file", "archives")
    for name in foreign:
        if context.get_parameter_source(name) is not ParameterSource.DEFAULT:
            raise Misuse(f"--{name.replace('_', '-')} is for {other}, and {path} is {kind}; leave it out")
    sending = Sending(**{each.name: options.pop(each.name) for each in dataclasses.fields(Sending)})
    if is_archive:
        replay_archive.replay(path, sending, topic=topic + select, **options)
        return
    if len(topic) > 1:
        raise Misuse(f"a file has one --topic, and here are {len(topic)}; leave all but one out")
    replay_feed.replay(path, sending, topic_from=topic_from, topic=topic[0] if topic else _FEED_TOPIC)
