"""What commands share: options, failures, consoles, numbers for people."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ipcbus_tools.completion import candidates

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

_Function = TypeVar("_Function", bound=Callable[..., Any])
_Domain = TypeVar("_Domain", bound=str | tuple[str, ...] | None)

_LONGEST_S = 366 * 86400

_SIZE = re.compile(r"(\d+(?:\.\d+)?) ?(?:([KMGT])(?:i?B)?|B)?", re.ASCII | re.IGNORECASE)

_WIDE = 200
"""Columns of what is drawn for a width and goes into a file or a pipe."""


class Failure(click.ClickException):
    """What ends a command: one line with the cure, and an exit code."""

    exit_code = 1

    def __init__(self, message: str) -> None:
        """With the text after `error:`."""
        super().__init__(" ".join(message.split()))

    def show(self, file: Any = None) -> None:  # noqa: ANN401 - as in click
        """Prints the line."""
        click.echo(f"error: {self.message}", file=file or sys.stderr)


class Misuse(Failure):
    """The command was called in a way that cannot work."""

    exit_code = 2


class Seconds(click.FloatRange):
    """A time on the command line: unlike a plain range it refuses what is no number, which no comparison excludes."""

    name = "seconds"

    def __init__(self, min: float = 0, max: float = _LONGEST_S) -> None:
        """From so many seconds to so many; a year at most, which every clock can add."""
        super().__init__(min, max)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:  # noqa: ANN401
        """Returns the number.

        Raises:
            click.BadParameter: it is none, or not finite, or out of the range.
        """
        seconds: float = click.FLOAT.convert(value, param, ctx)
        if not math.isfinite(seconds):
            self.fail(f"{value!r} is no time; give seconds from {self.min:g} to {self.max:g}", param, ctx)
        found: float = super().convert(seconds, param, ctx)
        return found


def as_size(context: click.Context, option: click.Parameter, value: str | None) -> int | None:
    """Callback of an option for bytes, such as 4096, 64M or 1.5GiB; a unit is a power of 1024.

    Raises:
        click.BadParameter: it is none.
    """
    if value is None:
        return None
    found = _SIZE.fullmatch(value.strip())
    if found is None:
        raise click.BadParameter(f"{value!r} is no size; give bytes, as in 4096, 64M or 1.5G", context, option)
    return int(float(found[1]) * 1024 ** ("KMGT".index(found[2].upper()) + 1 if found[2] else 0))


def checked_domain(_context: click.Context, _option: click.Parameter, given: _Domain) -> _Domain:
    """Callback of an option that names domains.

    Raises:
        Misuse: one of them cannot be a name.
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
    """Callback of --config where nothing of it matters: a wrong file should not pass in silence all the same."""
    if not context.resilient_parsing and (given is not None or os.environ.get("IPCBUS_CONFIG")):
        from ipcbus.config import Config  # without a file there is nothing to check, and it takes a while to load

        Config.load(given)


def bus_options(function: _Function) -> _Function:
    """Adds --domain and --config."""
    return _domain_option(config_option(function))


def look_options(function: _Function) -> _Function:
    """Adds --domain, and a --config that is only checked, for what reads statistics."""
    return _domain_option(config_check_option(function))


def _domain_option(function: _Function) -> _Function:
    return click.option(
        "--domain",
        default="default",
        show_default=True,
        metavar="NAME",
        callback=checked_domain,
        shell_complete=candidates.domains,
        help="The domain of the bus to work in.",
    )(function)


def config_option(function: _Function, **more: Any) -> _Function:  # noqa: ANN401 - as click takes them
    """Adds --config."""
    return click.option(
        "--config",
        metavar="FILE",
        shell_complete=candidates.files,
        help="Options of the bus: TOML with sections [context], [source], [receiver], or lines 'scope option value'.",
        **more,
    )(function)


def config_check_option(function: _Function) -> _Function:
    """Adds a --config that is only checked; the command does not see it."""
    return config_option(function, expose_value=False, callback=_checked_config)


def json_option(function: _Function) -> _Function:
    """Adds --json."""
    return click.option("--json", "as_json", is_flag=True, help="Print facts as JSON, for programs.")(function)


def transport_option(function: _Function) -> _Function:
    """Adds --transport."""
    return click.option(
        "--transport",
        metavar="NAME",
        shell_complete=candidates.transports,
        help="lbtipc (batches; the default) or lbtsmx (each message at once).",
    )(function)


def source_options(transport: str | None) -> dict[str, Any]:
    """Returns the options that --transport means; nothing when it was not given, so that --config decides."""
    return {} if transport is None else {"transport": transport}


def print_json(value: object) -> None:
    """One line of JSON; flushed, because somebody may be waiting for it."""
    click.echo(json.dumps(value))


def output() -> Console:
    """Returns the console on stdout; wide when no terminal sets the width."""
    from rich.console import Console  # programs that want JSON need not wait until it is loaded

    return Console(width=None if sys.stdout.isatty() else max(_WIDE, shutil.get_terminal_size().columns))


def notes() -> Console:
    """Returns the console on stderr, for progress and remarks."""
    from rich.console import Console

    return Console(stderr=True, highlight=False)


def visible(data: bytes) -> str:
    """Bytes as text that cannot do anything to a terminal."""
    text = data.decode(errors="backslashreplace")
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def safe(text: str) -> Text:
    """What others named, for a console: no markup, and nothing that acts on the terminal."""
    from rich.text import Text

    return Text(visible(text.encode(errors="surrogateescape")))


def number(value: float) -> str:
    """Returns a count, with separators."""
    return f"{value:,.0f}"


def plural(count: int, thing: str) -> str:
    """So many things, with separators."""
    return f"{number(count)} {thing}{'' if count == 1 else 's'}"


def size(value: float) -> str:
    """Bytes in the unit that fits."""
    for unit in ("B", "KiB", "MiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} GiB"


def duration(ns: float | None) -> str:
    """Returns a time in the unit that fits; a dash for none."""
    if ns is None:
        return "-"
    for unit in ("ns", "us", "ms"):
        if ns < 999.5:
            return f"{ns:.3g} {unit}"
        ns /= 1000
    return f"{ns:.1f} s"


def age(seconds: float) -> str:
    """Returns how long something has been there."""
    if seconds < 120:
        return f"{max(0, seconds):.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.0f} h" if seconds < 172800 else f"{seconds / 86400:.0f} d"
