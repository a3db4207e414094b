"""The command group: it imports a command when the user names it, and turns errors into one line and an exit code.

Exit codes: 0 done; 1 the bus or the host refused, or nothing came in time; 2 wrong use: an invalid option,
argument or configuration; 130 ended by Ctrl-C; 143 ended by SIGTERM.
"""

from __future__ import annotations

import importlib
import io
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
    "request": "Asks the receivers of a topic, and prints the response.",
    "respond": "Answers the requests of a topic with the output of a command.",
    "top": "Shows every session live.",
    "list": "Lists contexts, topics, receivers and recorders.",
    "info": "Shows one session with its topics and receivers.",
    "hz": "Measures the messages a second of a topic.",
    "bw": "Measures the bytes a second of a topic.",
    "delay": "Measures the latency of a topic's receivers.",
    "bench": "Measures throughput and round trips between two processes of this host.",
    "stats": "Shows all counters of one session or recorder.",
    "monitor": "Writes snapshots to a file.",
    "export": "Serves the statistics to Prometheus.",
    "doctor": "Checks this host, and removes what dead processes left behind.",
    "config": "Checks a config file, and shows options.",
    "record": "Writes the messages of topics into an archive.",
    "replay": "Sends the messages of an archive or a file again.",
    "archive": "Shows, verifies, repairs and exports an archive.",
    "gmd": "Shows, verifies, repairs and empties areas of guaranteed delivery.",
    "pipeline": "Reports on recorded traffic, with Spark.",
    "resolver": "Lets contexts of several hosts find each other without multicast.",
    "demo": "Shows the bus at work, and accounts for every message.",
    "completion": "Prints the script that completes words at the Tab key.",
    "demo-receiver": "",
    "bench-receiver": "",
}
"""Each command with its line in the help; a command without a line is hidden. `module_of` names its module.

The line stands here, and the modules import numpy, rich, psutil and the bus inside their functions: help and
completion load as little as they can. A test names the modules that they may not load.
"""


def module_of(name: str) -> str:
    """Returns the module whose `command` is the command of this name."""
    return f"ipcbus_tools.commands.{name.replace('-', '_')}_command"


_BROKEN_PIPE = 128 + 13

COMPLETE_VARIABLE: Final = "_IPCBUS_COMPLETE"
"""The completion script of a shell sets this variable to the name of the shell when it asks for completions."""


class Commands(click.Group):
    """Commands by name; each is imported when it is needed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Returns all names, in the order of the help."""
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
        """Returns the commands that begin with the given text, without importing them, and the options."""
        from click.shell_completion import CompletionItem

        found = [
            CompletionItem(name, help=line) for name, line in COMMANDS.items() if line and name.startswith(incomplete)
        ]
        return found + click.Command.shell_complete(self, ctx, incomplete)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Returns the command that the arguments name.

        Raises:
            Misuse: there is no such command; the text names one with a similar name.
        """
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            import difflib

            close = difflib.get_close_matches(args[0], COMMANDS, n=1, cutoff=0.7)
            hint = f"did you mean {close[0]}?" if close else "see 'ipcbus --help'"
            raise Misuse(f"there is no command {args[0]!r}; {hint}")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401 - as in click
        """Runs the command; an error becomes one line and an exit code."""
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
            # The reader of the output has gone; the interpreter must not write to the pipe again when it ends.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            ctx.exit(_BROKEN_PIPE)
        except OSError as error:
            what = f"{error.filename}: " if error.filename else f"{ctx.invoked_subcommand or 'ipcbus'} failed: "
            raise Failure(f"{what}{error.strerror or error}") from error


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "show_default": True})
@click.version_option(ipcbus.__version__, prog_name="ipcbus")
def cli() -> None:
    """Shows, measures, feeds and checks the message bus of this host.

    \b
    In two terminals:
      ipcbus echo greetings
      ipcbus pub greetings "good morning"
    Ask and answer:         ipcbus respond clock --exec date, then ipcbus request clock now
    Live:                   ipcbus top
    What runs now:          ipcbus list, then ipcbus info SESSION, ipcbus stats SESSION
    Rates and latency:      ipcbus hz TOPIC, ipcbus bw TOPIC, ipcbus delay TOPIC
    How fast is this host:  ipcbus bench
    Record and replay:      ipcbus record TOPIC --to DIR, then ipcbus replay DIR
    Is this host all right: ipcbus doctor, then ipcbus doctor --reclaim
    A tour of 10 s:         ipcbus demo

    Nearly every command works in one domain (--domain), reads options of the bus from a file (--config), and prints
    JSON for programs (--json).
    """


def _open_missing() -> None:
    """Opens the null device for each standard stream that the parent process has closed.

    This also occupies the descriptor, so that the system does not give its number to a file that is opened later.
    """
    for fd, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        if getattr(sys, name) is None:
            null = os.open(os.devnull, os.O_RDWR)
            if null != fd:
                os.dup2(null, fd)
                os.close(null)
            setattr(sys, name, open(fd, mode, encoding="utf-8", errors="replace", closefd=False))  # noqa: SIM115


def main() -> None:
    """Runs the `ipcbus` command; the entry point of the console script."""
    _open_missing()
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        # A character that the encoding of the terminal does not have, such as half of a pair, ends no command.
        sys.stdout.reconfigure(errors="backslashreplace")
    if COMPLETE_VARIABLE in os.environ:
        from ipcbus_tools.completion.shell_completion import answer

        answer(cli)
    else:
        cli.main(prog_name="ipcbus")
