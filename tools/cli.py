"""The command group: loads a command when it is named, and turns errors into one line and an exit code.

Exit codes: 0 done; 1 the bus or the host refused, or nothing came in time; 2 wrong use: an option, an argument, or the
configuration; 130 ended by Ctrl-C; 143 ended by SIGTERM.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import TYPE_CHECKING, Any, Final

import click

import ipcbus
from ipcbus_tools.common import Failure, Misuse
from ipcbus_tools.signals import Stopped

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

COMMANDS: Final = {
    "pub": "Sends messages.",
    "echo": "Prints the messages of a topic.",
    "top": "Shows every session live.",
    "list": "Lists contexts, topics, receivers and recorders.",
    "info": "Everything about one session.",
    "hz": "Messages a second of a topic.",
    "bw": "Bytes a second of a topic.",
    "delay": "Latency of the receivers of a topic.",
    "stats": "All counters of one session or recorder.",
    "monitor": "Writes snapshots to a file.",
    "export": "Serves the numbers for Prometheus.",
    "doctor": "Checks this host, and removes what dead processes left.",
    "config": "Checks a config file, shows options.",
    "record": "Writes what comes on topics into an archive.",
    "replay": "Sends the messages of an archive or a file.",
    "archive": "Shows, verifies, repairs and exports recorded traffic.",
    "pipeline": "Reports on recorded traffic, with Spark.",
    "resolver": "Lets contexts of several hosts find each other without multicast.",
    "demo": "Shows the bus at work and accounts for every message.",
    "completion": "Prints the script for completion with the Tab key.",
    "demo-receiver": "",
}
"""Each command with its line in the help; a command without a line is hidden. `module_of` says where it is.

The line stands here, and the modules import numpy, rich, psutil and the bus in their functions: help and completion
load as little as they can. A test names what they may not load.
"""


def module_of(name: str) -> str:
    """Returns the module whose `command` is the command of this name."""
    return f"ipcbus_tools.commands.{name.replace('-', '_')}_command"


_BROKEN_PIPE = 128 + 13

COMPLETE_VARIABLE: Final = "_IPCBUS_COMPLETE"
"""Set to the name of a shell by its script that asks what an unfinished line may go on with."""


class Commands(click.Group):
    """Commands by name, imported when they are needed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Returns all names, in the order of their use."""
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        """Returns the command of a name, or None."""
        del ctx
        if name not in COMMANDS:
            return None
        command = importlib.import_module(module_of(name)).command
        return command if isinstance(command, click.Command) else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the list of commands into the help, without loading them."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, line in COMMANDS.items() if line])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Names of commands that begin so, without loading them, or options."""
        from click.shell_completion import CompletionItem

        found = [
            CompletionItem(name, help=line) for name, line in COMMANDS.items() if line and name.startswith(incomplete)
        ]
        return found + click.Command.shell_complete(self, ctx, incomplete)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Returns the command that the arguments name, or what was probably meant."""
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            import difflib

            close = difflib.get_close_matches(args[0], COMMANDS, n=1, cutoff=0.7)
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
    if COMPLETE_VARIABLE in os.environ:
        from ipcbus_tools.completion.shell_completion import answer

        answer(cli)
    else:
        cli.main(prog_name="ipcbus")
