"""`ipcbus gmd agent`, `resend` and `forget`: act in the place of senders that are gone."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from ipcbus_tools.common import Failure, Seconds, json_option, output, plural, print_json, safe
from ipcbus_tools.completion import candidates
from ipcbus_tools.signals import SignalHandler, Stopped

if TYPE_CHECKING:
    from ipcbus_tools.gmd_agent import AgentEvent

_LOOK_S: Final = 0.1


@dataclass(frozen=True, slots=True)
class ResendResult:
    """The result of `ipcbus gmd resend`.

    Attributes:
        path: the directory of the area.
        resent: number of failed messages that are sent again.
        pending: messages that are not acknowledged.
        failed: those of them that have failed.
    """

    path: str
    resent: int
    pending: int
    failed: int


@dataclass(frozen=True, slots=True)
class ForgetResult:
    """The result of `ipcbus gmd forget`.

    Attributes:
        path: the directory of the area.
        receiver: the name that was taken off.
        receivers: the names that are expected now.
        pending: messages that are not acknowledged.
    """

    path: str
    receiver: str
    receivers: tuple[str, ...]
    pending: int


directory_option = click.option(
    "--directory",
    metavar="DIR",
    shell_complete=candidates.directories,
    help="The directory of the areas (ipc_gmd_directory); default: the state directory of the user.",
)


def areas_directory(option: str | None) -> Path:
    """Returns the directory that option --directory names, or the user's.

    Raises:
        GmdError: the path is not a directory.
    """
    from ipcbus.errors import GmdError
    from ipcbus.gmd.area_folders import default_directory

    found = Path(option) if option else default_directory(os.environ, Path.home())
    if found.exists() and not found.is_dir():
        raise GmdError(f"{found}: this is not a directory; give the directory of the areas (ipc_gmd_directory)")
    return found


def _directory_of_agent(option: str | None) -> Path:
    """Returns the directory for an agent, which would wait in a directory that no sender uses.

    The user's directory may be missing: an agent may start before the user's first sender, which makes it.

    Raises:
        GmdError: the path is not a directory, or the option names a directory that does not exist.
    """
    from ipcbus.errors import GmdError

    found = areas_directory(option)
    if option and not found.exists():
        raise GmdError(
            f"{found}: there is no such directory; give the directory of the senders (ipc_gmd_directory), or make it "
            f"if they start later: mkdir -p -m 700 {shlex.quote(str(found))}"
        )
    return found


@click.command("agent", short_help="Delivers what is pending in areas whose senders are gone.")
@directory_option
@click.option("--once", is_flag=True, help="End when nothing is pending; exit code 1 when messages have failed.")
@json_option
@click.pass_context
def agent_command(context: click.Context, directory: str | None, once: bool, as_json: bool) -> None:
    """Delivers the pending messages of senders whose processes are gone, until SIGTERM or Ctrl-C.

    The agent opens their areas with the domain and the transport options that the areas keep, and sends under the
    sender's name, incarnation and numbers until the receivers have acknowledged. It gives an area back when its sender
    returns. It waits for ever for receivers that are away. Run one agent for each directory, as the senders' user. The
    directory that --directory names must exist.

    \b
    Examples:
      ipcbus gmd agent
      ipcbus gmd agent --directory /var/lib/orders --once
      ipcbus gmd agent --json | jq 'select(.event == "failed")'
    """
    from ipcbus.storage.files import Disk
    from ipcbus_tools.gmd_agent import Agent

    with SignalHandler() as signals:
        agent = Agent(Disk(), _directory_of_agent(directory), _print_json if as_json else _print)
        try:
            while True:
                agent.look()
                if once and agent.rests:
                    break
                with signals.interruptible():
                    signals.wait(_LOOK_S)
            troubles = agent.troubles
        except Stopped:
            if signals.signum != signal.SIGTERM:
                raise
            troubles = 0
        finally:
            agent.close()
    context.exit(1 if troubles else 0)


@click.command("resend", short_help="Sends failed messages of an area again.")
@click.argument("area", shell_complete=candidates.directories)
@click.option("--seconds", type=Seconds(), help="End after SECONDS (default: when nothing is pending any more).")
@json_option
@click.pass_context
def resend_command(context: click.Context, area: str, seconds: float | None, as_json: bool) -> None:
    """Sends the failed messages of AREA, whose sender is gone, again, and waits until they are acknowledged.

    What is not acknowledged in the end stays pending, without a failure, for the sender or the agent. With --seconds 0
    the command does not wait. The exit code is 1 when messages have failed again. While the sender runs, call
    gmd_resend in its program.

    \b
    Examples:
      ipcbus gmd resend ~/.local/state/ipcbus/gmd/gateway/orders/source
      ipcbus gmd resend AREA --seconds 0 --json | jq .resent
    """
    from ipcbus.gmd.area_inspection import failed, inspect, names_of
    from ipcbus.storage.files import Disk
    from ipcbus_tools.gmd_agent import LeftArea, left_identity, open_context

    files, folder = Disk(), Path(area).absolute()
    identity = left_identity(files, folder)
    with SignalHandler() as signals, open_context(identity) as bus:
        left = LeftArea(bus, folder, identity)
        resent = left.source.gmd_resend()
        deadline = None if seconds is None else time.monotonic() + seconds
        try:
            with signals.interruptible():
                while not left.rests and (deadline is None or time.monotonic() < deadline):
                    signals.wait(_LOOK_S)
        finally:
            pending = left.pending
            left.close()
            # What the area keeps, which `ipcbus gmd show` says too: a message may fail while the source closes.
            kept = inspect(files, folder)
            found = ResendResult(area, resent, pending, failed(kept, names_of(kept)))
            with contextlib.suppress(BrokenPipeError):
                _show(found, as_json=as_json)
    context.exit(1 if found.failed else 0)


@click.command("forget", short_help="Takes a receiver off that will not return.")
@click.argument("area", shell_complete=candidates.directories)
@click.argument("receiver")
@json_option
def forget_command(area: str, receiver: str, as_json: bool) -> None:
    """Takes RECEIVER, a gmd_name, off the receivers that AREA expects; the area's sender must be gone.

    Messages that only this receiver was to acknowledge go to the other receivers, or wait for the first one that
    registers. A receiver of this name that runs registers again. While the sender runs, call gmd_forget in its program.

    \b
    Examples:
      ipcbus gmd forget ~/.local/state/ipcbus/gmd/gateway/orders/source settlement
      ipcbus gmd forget AREA settlement --json | jq .pending
    """
    from ipcbus.gmd.area_inspection import inspect, names_of
    from ipcbus.storage.files import Disk
    from ipcbus_tools.gmd_agent import LeftArea, left_identity, open_context

    files, folder = Disk(), Path(area).absolute()
    identity = left_identity(files, folder)
    names = sorted(name.name for name in names_of(inspect(files, folder)))
    if receiver not in names:
        raise Failure(f"{area}: receiver {receiver!r} is not expected there; expected: {', '.join(names) or 'none'}")
    with open_context(identity) as bus:
        left = LeftArea(bus, folder, identity)
        left.source.gmd_forget(receiver)
        found = ForgetResult(area, receiver, tuple(name for name in names if name != receiver), left.pending)
        left.close()
    if as_json:
        print_json(found)
        return
    expected = ", ".join(found.receivers) or "none"
    output().print(
        safe(f"{area}: {receiver} was taken off; expected: {expected}; {plural(found.pending, 'pending message')}"),
        soft_wrap=True,
    )


def _show(found: ResendResult, *, as_json: bool) -> None:
    if as_json:
        print_json(found)
        return
    output().print(
        f"{plural(found.resent, 'failed message')} sent again; {found.pending:,} pending, {found.failed:,} failed",
        soft_wrap=True,
    )


def _print_json(event: AgentEvent) -> None:
    print_json(event)


def _print(event: AgentEvent) -> None:
    counts = f"; {event.pending:,} pending, {event.failed:,} failed" if event.event != "refused" else ""
    click.echo(safe(f"{event.area}: {event.text}{counts}").plain)
