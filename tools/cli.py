"""The command group: loads a command when it is named, and turns errors into one line and an exit code.

Exit codes: 0 done; 1 the bus or the host refused, or nothing came in time; 2 wrong use: an option, an argument, or the
configuration; 130 ended by Ctrl-C; 143 ended by SIGTERM.
"""

from __future__ import annotations

import difflib
import importlib
import os
import sys
from typing import Any, Final

import click

import ipcbus
from ipcbus_tools.common import Failure, Misuse
from ipcbus_tools.stopping import Stopped

MODULES: Final = {
    "pub": "pub",
    "echo": "echo",
    "top": "top.command",
    "list": "list",
    "info": "info",
    "hz": "hz",
    "bw": "bw",
    "delay": "delay",
    "stats": "stats",
    "monitor": "monitor",
    "export": "export",
    "doctor": "doctor",
    "config": "config",
    "record": "record",
    "replay": "replay",
    "archive": "archive",
    "pipeline": "pipeline",
    "resolver": "resolver",
    "demo": "demo",
    "demo-receiver": "demo_receiver",
}
"""Module of each command; its `command` is the command."""

_BROKEN_PIPE = 128 + 13


class Commands(click.Group):
    """Commands by name, imported when they are needed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All names, in the order of their use."""
        del ctx
        return list(MODULES)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        """The command of a name, or None."""
        del ctx
        if name not in MODULES:
            return None
        command = importlib.import_module(f"ipcbus_tools.{MODULES[name]}").command
        return command if isinstance(command, click.Command) else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that the arguments name, or what was probably meant."""
        if args and args[0] not in MODULES and not args[0].startswith("-"):
            close = difflib.get_close_matches(args[0], MODULES, n=1)
            hint = f"did you mean {close[0]}?" if close else "see 'ipcbus --help'"
            raise Misuse(f"there is no command {args[0]!r}; {hint}")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401 - as in click
        """Runs the command; what it raises becomes a line and an exit code."""
        try:
            return super().invoke(ctx)
        except ipcbus.ConfigError as error:
            raise Misuse(str(error)) from error
        except (ipcbus.IpcBusError, TimeoutError) as error:
            raise Failure(str(error)) from error
        except Stopped as stopped:
            ctx.exit(stopped.exit_code)
        except KeyboardInterrupt:
            ctx.exit(130)
        except BrokenPipeError:
            # Who read the output has gone; the interpreter must not meet the pipe again at its end.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            ctx.exit(_BROKEN_PIPE)
        except OSError as error:
            raise Failure(f"{error.filename or 'the system'}: {error.strerror or error}") from error


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(ipcbus.__version__, prog_name="ipcbus")
def cli() -> None:
    """Looks at, feeds and tries out the message bus of this host.

    \b
    In two terminals:
      ipcbus echo greetings
      ipcbus pub greetings "good morning"
    Live:                   ipcbus top
    What runs now:          ipcbus list, and then ipcbus info, stats SESSION
    How fast, how late:     ipcbus hz, bw, delay TOPIC
    What went on, again:    ipcbus record TOPIC --to DIR, and then archive info, replay DIR
    Is this host all right: ipcbus doctor, and then doctor --reclaim
    All of it in 10 s:      ipcbus demo

    Nearly every command works in one domain (--domain), takes options of the bus from a file (--config), and prints
    facts for programs with --json.
    """


def _open_missing() -> None:
    """Gives streams that were closed by whoever started us the null device, which is no terminal and takes anything.

    The descriptors are taken too, lest a file that is opened later be written to as stdout.
    """
    for fd, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        if getattr(sys, name) is None:
            null = os.open(os.devnull, os.O_RDWR)
            if null != fd:
                os.dup2(null, fd)
                os.close(null)
            setattr(sys, name, open(fd, mode, encoding="utf-8", errors="replace", closefd=False))  # noqa: SIM115


def main() -> None:
    """Entry point of the console script."""
    _open_missing()
    cli.main(prog_name="ipcbus")
