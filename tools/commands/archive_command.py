"""`ipcbus archive`: shows what an archive holds, verifies, repairs and exports it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ipcbus_tools.commands.archive_export_command import command as export_command
from ipcbus_tools.common import json_option, number, output, plural, print_json, safe
from ipcbus_tools.completion import candidates

if TYPE_CHECKING:
    from ipcbus_tools.render.text_tables import Row


@click.group("archive")
def command() -> None:
    """Shows, verifies, repairs and exports archives of recorded traffic, as 'ipcbus record' writes them.

    \b
    Examples:
      ipcbus archive info traffic
      ipcbus archive verify traffic && echo whole
      ipcbus archive repair traffic
      ipcbus archive export traffic --to traffic.parquet

    The file format is in docs/reference/archive-format.md, its reasons are in docs/explanation/archive.md.
    """


command.add_command(export_command)


@command.command("info", short_help="Shows logs, segments, topics, losses, and the positions of consumers.")
@click.argument("archive", shell_complete=candidates.directories)
@click.option("--count", is_flag=True, help="Count the messages and bytes of each topic too; this reads all rows.")
@json_option
def info(archive: str, count: bool, as_json: bool) -> None:
    """Shows what ARCHIVE, a directory, holds; recorders may write it meanwhile.

    \b
    Examples:
      ipcbus archive info traffic
      ipcbus archive info traffic --count
      ipcbus archive info traffic --json | jq '.logs[] | {key, next_offset, lost}'
    """
    from ipcbus.archive import Archive
    from ipcbus_tools.render.archive_output import ArchiveInfo, show

    found = ArchiveInfo.of(Archive(archive), count=count)
    if as_json:
        print_json(found)
    else:
        show(output(), found)


@command.command("verify", short_help="Checks every checksum; exit code 1 when something is damaged.")
@click.argument("archive", shell_complete=candidates.directories)
@json_option
@click.pass_context
def verify_command(ctx: click.Context, archive: str, as_json: bool) -> None:
    """Checks every byte of ARCHIVE and lists what is damaged; recorders may write it meanwhile.

    The exit code is 1 when anything is damaged.

    \b
    Examples:
      ipcbus archive verify traffic
      ipcbus archive verify traffic --json | jq '.findings[].file'
    """
    from ipcbus.archive import Archive
    from ipcbus.archive.repair import refusal
    from ipcbus.archive.verify import verify
    from ipcbus_tools.render.archive_output import Findings
    from ipcbus_tools.render.text_tables import show_table

    opened = Archive(archive, lenient=True)
    found = Findings(str(opened.path), opened.id, tuple(verify(opened)))
    if as_json:
        print_json(found)
    else:
        console = output()
        rows: list[Row] = [
            {
                "file": each.file,
                "at": number(each.at),
                "offsets": "" if each.first is None else f"{each.first}-{(each.end or 0) - 1}",
                "reason": each.what,
            }
            for each in found.findings
        ]
        show_table(console, "findings", rows)
        if rows:
            refused = refusal(opened)
            what = f"cannot repair this archive: {refused}" if refused else "repairs them"
            if not refused and any(opened.writing(log.stream) is not None for log in opened.logs()):
                what += ", when no recorder writes the archive"
            console.print(safe(f"{plural(len(rows), 'finding')}; 'ipcbus archive repair' {what}"), soft_wrap=True)
        else:
            console.print(safe(f"{found.archive}: nothing is damaged"), soft_wrap=True)
    ctx.exit(1 if found.findings else 0)


@command.command("repair", short_help="Repairs what verify finds, and records what is lost.")
@click.argument("archive", shell_complete=candidates.directories)
@json_option
def repair_command(archive: str, as_json: bool) -> None:
    """Repairs ARCHIVE and says what it did; it refuses while a recorder writes any of its logs.

    Rows that cannot be read become losses that keep their offsets. Rows that a crash left unpublished are cut off, as
    the next recorder would do too. No offset is ever used a second time.

    \b
    Examples:
      ipcbus archive repair traffic
      ipcbus archive repair traffic --json | jq '[.repairs[].lost] | add'
    """
    from ipcbus.archive import Archive
    from ipcbus.archive.repair import repair
    from ipcbus_tools.render.archive_output import Repairs

    opened = Archive(archive, lenient=True)
    repaired = tuple(repair(opened))
    done = Repairs(str(opened.path), opened.id, repaired)
    if as_json:
        print_json(done)
        return
    console = output()
    for each in done.repairs:
        console.print(safe(f"{each.file}: {each.what}"), soft_wrap=True)
    lost = sum(each.lost for each in done.repairs)
    console.print(f"{plural(len(done.repairs), 'repair')}, {plural(lost, 'row')} lost", soft_wrap=True)
