"""`ipcbus respond`: answers the requests of a topic with the output of a command."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import click

import ipcbus
from ipcbus import MessageType
from ipcbus_tools.common import Seconds, bus_options, json_option, print_json, safe, visible
from ipcbus_tools.completion import candidates
from ipcbus_tools.signals import SignalHandler

if TYPE_CHECKING:
    from ipcbus import Message

_SHOWN = 200
_GRACE_S = 2.0
"""Time in seconds for a command to end by itself after SIGTERM."""


@click.command("respond")
@click.argument("topic", shell_complete=candidates.topics)
@click.option(
    "--exec",
    "line",
    metavar="COMMAND",
    required=True,
    help="Run COMMAND in a shell for each request: its stdin is the request, its stdout the response.",
)
@click.option("-n", "--count", metavar="N", type=click.IntRange(min=1), help="End after N requests (default: never).")
@click.option(
    "--timeout",
    metavar="SECONDS",
    type=Seconds(),
    default=60,
    show_default=True,
    help="Kill a COMMAND that runs for SECONDS; the request gets no response.",
)
@bus_options
@json_option
def command(
    topic: str, line: str, count: int | None, timeout: float, domain: str, config: str | None, as_json: bool
) -> None:
    """Answers the requests of TOPIC with the output of COMMAND, one request after the other, until Ctrl-C.

    COMMAND gets the request on stdin, and the name of the topic in the variable IPCBUS_TOPIC. A COMMAND that fails
    answers nothing: the asking side waits until its time is over, and a line on stderr says so. A signal that ends
    ipcbus respond ends a running COMMAND too, with SIGTERM, and 2 s later with SIGKILL. With --json each request is an
    object on stdout.

    \b
    Examples:
      ipcbus respond clock --exec date
      ipcbus respond upper --exec 'tr a-z A-Z'
      ipcbus respond price --exec ./lookup.py -n 10 --json
    """
    environment = os.environ | {"IPCBUS_TOPIC": topic}
    answered = 0
    with SignalHandler() as signals, ipcbus.Context(config, domain=domain) as context:
        receiver = context.receiver(topic)
        while count is None or answered < count:
            with signals.interruptible():
                message = receiver.receive()
            if message.type != MessageType.REQUEST:
                continue
            answered += 1
            output, problem = _run(signals, line, message.data, timeout or None, environment)
            if not problem:
                with signals.interruptible():
                    problem = _respond(message, output)
            _report(message, len(output), problem, as_json)


def _run(
    signals: SignalHandler, line: str, data: bytes, timeout: float | None, environment: dict[str, str]
) -> tuple[bytes, str]:
    """Runs the command; returns its stdout, and what went wrong, or an empty text. A signal ends the command too."""
    process = subprocess.Popen(
        line, shell=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, process_group=0
    )
    with process:
        try:
            with signals.interruptible():
                output, _ = process.communicate(data, timeout)
        except subprocess.TimeoutExpired:
            _end(process, signal.SIGKILL)
            return b"", f"{line!r} ran for {timeout:g} s and was killed; raise --timeout"
        except BaseException:
            _end(process, signal.SIGTERM)
            raise
    if process.returncode:
        return b"", f"{line!r} ended with exit code {process.returncode}"
    return output, ""


def _end(process: subprocess.Popen[bytes], signum: signal.Signals) -> None:
    """Ends the shell and the processes that it has started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signum)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE_S)
        os.killpg(process.pid, signal.SIGKILL)


def _respond(message: Message, output: bytes) -> str:
    """Sends the response; returns what went wrong, or an empty text."""
    try:
        message.respond(output)
    except ipcbus.IpcBusError as error:
        return str(error)
    return ""


def _report(message: Message, length: int, problem: str, as_json: bool) -> None:
    if as_json:
        found = {"topic": message.topic, "sequence_number": message.sequence_number, "length": len(message)}
        print_json({**found, "answered": not problem, "response_length": length, "problem": problem})
    elif problem:
        asked = visible(message.data[:_SHOWN])
        text = f"topic {message.topic!r}: the request {asked!r} gets no response: {problem}"
        click.echo(safe(text).plain, file=sys.stderr)
