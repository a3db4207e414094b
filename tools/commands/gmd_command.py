"""`ipcbus gmd`: shows the areas of guaranteed message delivery, verifies, repairs, delivers and empties them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ipcbus_tools.commands.gmd_agent_command import (
    agent_command,
    areas_directory,
    directory_option,
    forget_command,
    resend_command,
)
from ipcbus_tools.common import Failure, json_option, number, output, plural, print_json, safe
from ipcbus_tools.completion import candidates

if TYPE_CHECKING:
    from ipcbus_tools.render.gmd_output import AreaMessage


@click.group("gmd")
def command() -> None:
    """Shows, verifies, repairs and empties GMD areas, and delivers what is pending in areas whose senders are gone.

    A GMD area has the copies of guaranteed messages, or the acknowledgements of a receiver.

    AREA is the directory of an area, as 'ipcbus gmd list' shows it.

    \b
    Examples:
      ipcbus gmd list
      ipcbus gmd show ~/.local/state/ipcbus/gmd/gateway/orders/source --tail
      ipcbus gmd verify ~/.local/state/ipcbus/gmd/gateway/orders/source && echo good

    The file format is in docs/reference/gmd-journal.md.
    """


command.add_command(agent_command)
command.add_command(resend_command)
command.add_command(forget_command)

_area = click.argument("area", shell_complete=candidates.directories)


@command.command("list", short_help="Lists the areas of a directory.")
@directory_option
@json_option
def list_areas(directory: str | None, as_json: bool) -> None:
    """Lists the areas of a directory, with what is pending in them; their owners may use them meanwhile.

    \b
    Examples:
      ipcbus gmd list
      ipcbus gmd list --directory /var/lib/orders --json | jq '.areas[] | {name, topic, pending}'
    """
    from ipcbus.gmd.area_folders import area_folders
    from ipcbus.gmd.area_inspection import inspect, is_area
    from ipcbus.storage.files import Disk
    from ipcbus_tools.render.gmd_output import AreaInfo, AreaList, show_list

    files = Disk()
    there = areas_directory(directory)
    folders = [folder for folder in area_folders(files, there) if is_area(files.names(folder))]
    areas = tuple(AreaInfo.of(files, inspect(files, folder)) for folder in folders)
    found = AreaList(str(there), areas)
    if as_json:
        print_json(found)
    else:
        show_list(output(), found)


@command.command("show", short_help="Shows an area and its pending messages.")
@_area
@click.option("--tail", is_flag=True, help="Go on until Ctrl-C: print what is saved, twice a second.")
@json_option
def show(area: str, tail: bool, as_json: bool) -> None:
    """Shows AREA and the messages that wait in it; its owner may use it meanwhile.

    With --json it prints one object; with --tail --json, an object for each message. Messages that are saved and
    acknowledged between two looks of --tail are only counted; with --json their numbers are left out.

    \b
    Examples:
      ipcbus gmd show ~/.local/state/ipcbus/gmd/gateway/orders/source
      ipcbus gmd show ~/.local/state/ipcbus/gmd/gateway/orders/source --tail
      ipcbus gmd show AREA --json | jq '.messages | length'
    """
    from ipcbus.gmd.area_inspection import inspect, saved_messages, terms_of
    from ipcbus.storage.files import Disk
    from ipcbus_tools.render.gmd_output import AreaContent, AreaInfo, AreaMessage, show_area

    files, folder = Disk(), Path(area)
    if tail:
        _tail(folder, as_json=as_json)
        return
    found = inspect(files, folder)
    terms = terms_of(found)
    messages = (AreaMessage.of(message, terms) for message in saved_messages(files, found))
    info = AreaInfo.of(files, found)
    if as_json:
        print_json(AreaContent(info, tuple(messages)))
        return
    show_area(output(), info)
    for message in messages:
        _print(message)


@command.command("verify", short_help="Checks every checksum; exit code 1 when something is damaged.")
@_area
@json_option
@click.pass_context
def verify(context: click.Context, area: str, as_json: bool) -> None:
    """Checks every record of AREA and lists what is damaged; its owner may use it meanwhile.

    The exit code is 1 when anything is damaged.

    \b
    Examples:
      ipcbus gmd verify ~/.local/state/ipcbus/gmd/gateway/orders/source
      ipcbus gmd verify AREA --json | jq '.missing'
    """
    from ipcbus.storage.files import Disk
    from ipcbus_tools.render.gmd_output import AreaVerification, lost_text
    from ipcbus_tools.render.text_tables import show_table

    found = AreaVerification.of(Disk(), Path(area))
    if as_json:
        print_json(found)
    else:
        console = output()
        if found.findings:
            show_table(
                console,
                "findings",
                [
                    {"file": each.file, "at": number(each.offset), "bytes": number(each.length), "reason": each.reason}
                    for each in found.findings
                ],
            )
            repairs = "'ipcbus gmd repair' repairs what names no other cure"
            console.print(f"{plural(len(found.findings), 'finding')}; {repairs}", soft_wrap=True)
        else:
            console.print(safe(f"{found.path}: nothing is damaged"), soft_wrap=True)
        if found.missing:
            console.print(f"missing messages: {lost_text(found.missing)}", soft_wrap=True)
    context.exit(1 if found.findings else 0)


@command.command("repair", short_help="Keeps all good records, and names the messages that are missing.")
@_area
@click.option(
    "--owner",
    nargs=3,
    metavar="NAME TOPIC DOMAIN",
    help="Write the damaged or missing file 'area' again: the gmd_name, the topic and the domain of its owner.",
)
@json_option
def repair(area: str, owner: tuple[str, str, str] | None, as_json: bool) -> None:
    """Repairs AREA, which no process may use meanwhile.

    All good records stay. The sender reports each missing message as a failure when it starts again. In a receiver's
    area, messages whose acknowledgements are lost are delivered again.

    The file 'area' says whose area it is, and has the options with which 'ipcbus gmd agent' sends in the place of the
    owner. When --owner has written it again, an agent uses the default options until the owner has opened the area.

    \b
    Examples:
      ipcbus gmd repair ~/.local/state/ipcbus/gmd/gateway/orders/source
      ipcbus gmd repair ~/.local/state/ipcbus/gmd/gateway/orders/source --owner gateway orders default
      ipcbus gmd repair AREA --json | jq '.missing'
    """
    from ipcbus.gmd.area_identity import AreaIdentity
    from ipcbus.gmd.area_repair import repair_area
    from ipcbus.storage.files import Disk
    from ipcbus_tools.render.gmd_output import AreaRepair, NumberRange, lost_text

    done = repair_area(Disk(), Path(area), None if owner is None else AreaIdentity(*owner))
    found = AreaRepair(area, done.repaired, done.pending, tuple(NumberRange(*run) for run in done.missing))
    if as_json:
        print_json(found)
        return
    console = output()
    console.print(
        f"{plural(found.repaired, 'damaged part')} repaired, {plural(found.pending, 'pending message')} kept",
        soft_wrap=True,
    )
    if found.missing:
        console.print(f"missing messages: {lost_text(found.missing)}", soft_wrap=True)


@command.command("purge", short_help="Removes an area with everything that is pending in it.")
@_area
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_option
def purge(area: str, yes: bool, as_json: bool) -> None:
    """Removes all files of AREA after a question; no process may use it meanwhile.

    Pending messages are lost. The next source of this name and topic begins with number 1 and a new incarnation.

    \b
    Examples:
      ipcbus gmd purge ~/.local/state/ipcbus/gmd/gateway/orders/source
      ipcbus gmd purge AREA --yes
    """
    from ipcbus.gmd.area_inspection import inspect
    from ipcbus.gmd.area_repair import purge_area
    from ipcbus.storage.files import Disk
    from ipcbus_tools.render.gmd_output import AreaInfo

    files, folder = Disk(), Path(area)
    info = AreaInfo.of(files, inspect(files, folder))
    what = plural(info.pending, "pending message") if info.role == "source" else "its acknowledgements"
    if not yes and not click.confirm(f"Remove {area}, and {what}?", err=True):
        raise Failure(f"{area} was not removed")
    purge_area(files, folder)
    if as_json:
        print_json(info)
    else:
        output().print(safe(f"{area}: removed, with {what}"), soft_wrap=True)


def _tail(folder: Path, *, as_json: bool) -> None:
    """Prints the messages of an area, and those that are saved from now on, until a signal."""
    from ipcbus.gmd.area_inspection import inspect, saved_messages, terms_of
    from ipcbus.storage.files import Disk
    from ipcbus_tools.render.gmd_output import AreaMessage
    from ipcbus_tools.signals import SignalHandler

    files, known, is_first = Disk(), 0, True
    with SignalHandler() as signals, signals.interruptible():
        while True:
            found = inspect(files, folder)
            if found.recovery is None:
                raise Failure(f"{folder}: this is the area of a receiver; give the area of a source")
            newest, shown = found.recovery.last_number, 0
            if newest < known:  # its owner began afresh
                known, is_first = 0, True
            terms = terms_of(found)
            for message in saved_messages(files, found, after=known):
                shown += 1
                if as_json:
                    print_json(AreaMessage.of(message, terms))
                else:
                    _print(AreaMessage.of(message, terms))
            if newest - known > shown and not is_first and not as_json:
                click.echo(f"{'':>12} and {plural(newest - known - shown, 'message')}, acknowledged meanwhile")
            known, is_first = newest, False
            signals.wait(_TAIL_S)


_TAIL_S = 0.5


def _print(message: AreaMessage) -> None:
    from ipcbus_tools.render.gmd_output import message_line

    click.echo(message_line(message))
