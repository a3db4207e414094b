"""Options, errors, consoles and number formats that the commands share."""

from __future__ import annotations

import dataclasses
import datetime
import json
import math
import os
import re
import shutil
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from ipcbus_tools.completion import candidates

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress
    from rich.text import Text

    from ipcbus.config.keywords import SourceKeywords

_Function = TypeVar("_Function", bound=Callable[..., Any])
_Bar = TypeVar("_Bar", bound="Progress")
_Domain = TypeVar("_Domain", bound=str | tuple[str, ...] | None)

_MAX_S = 366 * 86400

_SIZE = re.compile(r"(\d+(?:\.\d+)?) ?(?:([KMGT])(?:i?B)?|B)?", re.ASCII | re.IGNORECASE)

_WIDE = 200
"""Columns of output that goes into a file or a pipe."""


class Failure(click.ClickException):
    """An error that ends a command: it prints one line with the cure and sets the exit code."""

    exit_code = 1

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.split()))

    def show(self, file: Any = None) -> None:  # noqa: ANN401 - as in click
        """Prints the line."""
        click.echo(f"error: {self.message}", file=file or sys.stderr)


class Misuse(Failure):
    """The options or arguments of the command are invalid."""

    exit_code = 2


class Seconds(click.FloatRange):
    """A time on the command line, in seconds; unlike a plain range, it refuses NaN, which no comparison excludes."""

    name = "seconds"

    def __init__(self, min: float = 0, max: float = _MAX_S) -> None:
        """Accepts `min` to `max` seconds; the default maximum, a year, fits every clock."""
        super().__init__(min, max)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:  # noqa: ANN401
        """Returns the number of seconds.

        Raises:
            click.BadParameter: the value is not a number, not finite, or out of the range.
        """
        seconds: float = click.FLOAT.convert(value, param, ctx)
        if not math.isfinite(seconds):
            self.fail(f"{value!r} is not a time; give seconds from {self.min:g} to {self.max:g}", param, ctx)
        found: float = super().convert(seconds, param, ctx)
        return found


def as_size(context: click.Context, option: click.Parameter, value: str | None) -> int | None:
    """Converts the text of an option, such as 4096, 64M or 1.5GiB, into bytes; units are powers of 1024.

    Raises:
        click.BadParameter: the text is not a size.
    """
    if value is None:
        return None
    found = _SIZE.fullmatch(value.strip())
    if found is None:
        raise click.BadParameter(f"{value!r} is not a size; give bytes, as in 4096, 64M or 1.5G", context, option)
    return int(float(found[1]) * 1024 ** ("KMGT".index(found[2].upper()) + 1 if found[2] else 0))


EXAMPLE_TIME = "2026-01-31T09:30, or 2026-01-31T09:30:00Z"
ZONE_HELP = "a time without Z or offset is this host's local time."
"""The rule for times on the command line, for the help of options."""


def as_time(text: str) -> datetime.datetime | None:
    """Returns a time in the form of ISO 8601, without a zone as local time; None where the text is not a time."""
    try:
        return datetime.datetime.fromisoformat(text).astimezone()
    except (ValueError, OverflowError, OSError):
        return None


def checked_domain(_context: click.Context, _option: click.Parameter, given: _Domain) -> _Domain:
    """Checks the names that an option for domains was given.

    Raises:
        Misuse: a name is invalid.
    """
    from ipcbus.errors import ConfigError
    from ipcbus.resolution.local.object_names import check_domain

    for name in given if isinstance(given, tuple) else (given,):
        if name not in (None, "default"):
            try:
                check_domain(name)
            except ConfigError as error:
                raise Misuse(f"--{error}") from error
    return given


def _checked_config(context: click.Context, _option: click.Parameter, given: str | None) -> None:
    """Checks the file of --config for a command that does not use it, so that an invalid file is reported."""
    if not context.resilient_parsing and (given is not None or os.environ.get("IPCBUS_CONFIG")):
        from ipcbus.config import Config  # the import takes a while; without a file it is not needed

        Config.load(given)


def bus_options(function: _Function) -> _Function:
    """Adds --domain and --config."""
    return _ONE_DOMAIN(config_option(function))


def statistics_options(function: _Function) -> _Function:
    """Adds --domain, and a --config that is only checked, to a command that reads statistics."""
    return _ONE_DOMAIN(config_check_option(function))


def domain_option(help: str, **more: Any) -> Callable[[_Function], _Function]:  # noqa: ANN401 - as click takes them
    """Adds --domain, whose names are checked."""
    return click.option(
        "--domain", metavar="NAME", callback=checked_domain, shell_complete=candidates.domains, help=help, **more
    )


_ONE_DOMAIN = domain_option("Work in this domain of the bus.", default="default")


def config_option(function: _Function, **more: Any) -> _Function:  # noqa: ANN401 - as click takes them
    """Adds --config."""
    return click.option(
        "--config",
        metavar="FILE",
        shell_complete=candidates.files,
        help="Read options of the bus from FILE: TOML with sections [context], [source], [receiver], or lines "
        "'scope option value'.  [default: the file that IPCBUS_CONFIG names]",
        **more,
    )(function)


def config_check_option(function: _Function) -> _Function:
    """Adds a --config that is only checked; the command does not see it."""
    return config_option(function, expose_value=False, callback=_checked_config)


def json_option(function: _Function) -> _Function:
    """Adds --json."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")(function)


def transport_option(function: _Function) -> _Function:
    """Adds --transport."""
    return click.option(
        "--transport",
        metavar="NAME",
        shell_complete=candidates.transports,
        help="Send over NAME: lbtipc (shared memory, batches messages), lbtsmx (shared memory, each message at once), "
        "lbtru (UDP to each receiver), lbtrm (UDP multicast) or lbttcp (TCP).  "
        "[default: what --config says, else lbtipc]",
    )(function)


def sending_options(timeout: float) -> Callable[[_Function], _Function]:
    """Adds --transport, --wait-receivers and --timeout, with the default of the last one."""

    def add(function: _Function) -> _Function:
        function = click.option(
            "--timeout", type=Seconds(), default=timeout, help="Wait SECONDS at most for receivers."
        )(function)
        function = click.option(
            "--wait-receivers",
            metavar="N",
            type=click.IntRange(min=0),
            default=1,
            help="Start when N contexts receive each topic, so that they miss nothing; 0 starts at once.",
        )(function)
        return transport_option(function)

    return add


def port_option(default: int, protocol: str) -> Callable[[_Function], _Function]:
    """Adds --port."""
    what = f"Listen on this {protocol} port; 0 takes a free one."
    return click.option("--port", metavar="N", type=click.IntRange(0, 65535), default=default, help=what)


def source_options(transport: str | None) -> SourceKeywords:
    """Returns the options of the source that --transport sets; without --transport none, so that --config decides."""
    return {} if transport is None else cast("SourceKeywords", {"transport": transport})


def print_json(value: object) -> None:
    """Prints one line of JSON and flushes it, because a program may wait for it; a dataclass becomes an object."""
    if dataclasses.is_dataclass(value):
        from ipcbus.stats.serialization import to_plain  # the import takes a while

        value = to_plain(value)
    click.echo(json.dumps(value))


def output() -> Console:
    """Returns the console on stdout; it is wide when stdout is not a terminal."""
    from rich.console import Console  # the import is slow, and output in JSON does not need it

    class Output(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError  # the command group ends with the exit code for it; rich alone would with 1

    return Output(width=None if sys.stdout.isatty() else max(_WIDE, shutil.get_terminal_size().columns))


def notes() -> Console:
    """Returns the console on stderr, for progress and remarks."""
    from rich.console import Console

    return Console(stderr=True, highlight=False)


def progress_bar(kind: type[_Bar]) -> _Bar:
    """Returns a bar of what is done on stderr; it is shown only on a terminal."""
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn

    columns = (BarColumn(None), MofNCompleteColumn(), TextColumn("{task.speed:.0f}/s", "dim"), TimeRemainingColumn())
    return kind(*columns, console=notes(), transient=True, disable=not sys.stderr.isatty(), expand=True)


def visible(data: bytes) -> str:
    """Returns bytes as text without control characters for the terminal."""
    text = data.decode(errors="backslashreplace")
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def safe(text: str) -> Text:
    """Returns text of other processes for a console: without markup and without control characters."""
    from rich.text import Text

    return Text(visible(text.encode(errors="surrogateescape")))


def number(value: float) -> str:
    """Returns a count with thousands separators."""
    return f"{value:,.0f}"


def plural(count: int, thing: str) -> str:
    """Returns a count with its noun: `1 message`, `1,234 messages`."""
    return f"{number(count)} {thing}{'' if count == 1 else 's'}"


def size(value: float) -> str:
    """Returns a number of bytes in the unit that fits."""
    for unit in ("B", "KiB", "MiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} GiB"


def duration(ns: float | None) -> str:
    """Returns a time in the unit that fits; a dash for None."""
    if ns is None:
        return "-"
    for unit in ("ns", "us", "ms"):
        if ns < 999.5:
            return f"{ns:.3g} {unit}"
        ns /= 1000
    return f"{ns:.1f} s"


def clock_time(time_ns: int) -> str:
    """Returns the local time of day of a time in ns since the epoch; question marks for a time that is damaged."""
    try:
        return datetime.datetime.fromtimestamp(time_ns / 1e9).strftime("%H:%M:%S.%f")
    except (ValueError, OverflowError, OSError):
        return "??:??:??.??????"


def age(seconds: float) -> str:
    """Returns an age in the unit that fits, without decimals."""
    if seconds < 120:
        return f"{max(0, seconds):.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.0f} h" if seconds < 172800 else f"{seconds / 86400:.0f} d"
