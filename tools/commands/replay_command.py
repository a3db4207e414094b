"""`ipcbus replay`: recorded messages go onto the bus again, at their own pace or as fast as they can."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any, Final

import click
from click.core import ParameterSource

from ipcbus_tools.common import Misuse, Seconds, bus_options, json_option, transport_option
from ipcbus_tools.replay.replay_options import speed_of

_OF_FEEDS: Final = ("topic_from", "topic")
_OF_ARCHIVES: Final = ("select", "pattern", "rename", "stream", "start", "end", "loops")


def _edge(context: click.Context, option: click.Parameter, value: str | None) -> int | datetime.datetime | None:
    """Returns an offset, or a time as ISO 8601 has it."""
    if value is None or value.isdecimal():
        return value if value is None else int(value)
    try:
        return datetime.datetime.fromisoformat(value)
    except ValueError:
        text = f"{value!r} is neither an offset nor a time such as 2026-08-08T10:00:00+02:00"
        raise click.BadParameter(text, context, option) from None


def _renamed(_context: click.Context, option: click.Parameter, given: tuple[str, ...]) -> dict[str, str]:
    """OLD=NEW as names by names."""
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
    show_default=True,
    metavar="real|max|Nx",
    help="As recorded, as fast as it goes, or N times as fast as recorded.",
)
@click.option("--select", metavar="TOPIC", multiple=True, help="Archive: only this topic; may be given several times.")
@click.option("--pattern", metavar="REGEX", help="Archive: only topics that this regular expression matches.")
@click.option(
    "--rename",
    metavar="OLD=NEW",
    multiple=True,
    callback=_renamed,
    help="Archive: send topic OLD as NEW; may be given several times.",
)
@click.option("--stream", metavar="NAME", help="Archive: only what the recorder with this --stream wrote.")
@click.option(
    "--start",
    metavar="OFFSET|TIME",
    callback=_edge,
    help="Archive: begin there; a time without a zone is of this host's.",
)
@click.option("--end", metavar="OFFSET|TIME", callback=_edge, help="Archive: end before that.")
@click.option(
    "--loops",
    metavar="N",
    type=click.IntRange(min=0),
    default=1,
    show_default=True,
    help="Archive: send everything N times; 0 goes on until Ctrl-C.",
)
@click.option(
    "--topic-from",
    metavar="KEY",
    default="stream",
    show_default=True,
    help="File: the JSON key whose value is the topic of a line.",
)
@click.option(
    "--topic",
    metavar="TOPIC",
    default="feed",
    show_default=True,
    help="File: topic of lines without it, and of plain text.",
)
@transport_option
@click.option(
    "--wait-receivers",
    metavar="N",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Start when N contexts receive each topic; they miss nothing.",
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
@click.pass_context
def command(context: click.Context, /, path: Path, **how: Any) -> None:  # noqa: ANN401 - as both ways take them
    """Sends the messages of an archive or a file.

    ARCHIVE is a directory that 'ipcbus record' wrote. Payloads and headers are sent as they were, byte for byte, those
    of all its logs in the order in which they were received.

    FILE is a capture, a line '<time stamp in ns> <JSON>' for each message, or any other text, a line for each message;
    gzip is unpacked. The payload is the JSON, or the line, byte for byte.

    \b
    Examples:
      ipcbus replay archive --speed real
      ipcbus replay archive --speed 10x --select quotes.AAPL --rename quotes.AAPL=test.AAPL
      ipcbus replay archive --start 2026-08-08T09:30 --end 2026-08-08T16:00 --loops 0
      ipcbus replay feed.gz --wait-receivers 3
      ipcbus replay /var/log/messages --topic log
    """
    from ipcbus_tools.replay import replay_archive, replay_feed

    is_archive = path.is_dir()
    foreign, kind, other = (_OF_FEEDS, "an archive", "files") if is_archive else (_OF_ARCHIVES, "a file", "archives")
    for name in foreign:
        if context.get_parameter_source(name) is not ParameterSource.DEFAULT:
            raise Misuse(f"--{name.replace('_', '-')} is for {other}, and {path} is {kind}; leave it out")
        del how[name]
    if is_archive:
        replay_archive.replay(path, **how)
    else:
        replay_feed.replay(path, **how)
