"""`ipcbus archive export`: writes an archive into files for Spark, DuckDB, Polars and pandas."""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

import click

from ipcbus.errors import ArchiveDamaged
from ipcbus_tools.common import (
    Failure,
    Misuse,
    json_option,
    notes,
    number,
    output,
    plural,
    print_json,
    progress_bar,
    safe,
    size,
)
from ipcbus_tools.completion import candidates
from ipcbus_tools.render.text_tables import Row, show_table
from ipcbus_tools.signals import SignalHandler

if TYPE_CHECKING:
    from collections.abc import Callable

    from ipcbus.archive import Archive
    from ipcbus.archive.export import Form
    from ipcbus.archive.export_result import Exported, Missing


@dataclass(frozen=True, slots=True)
class Export:
    """What was exported.

    Attributes:
        archive: directory of the archive.
        id: 32 hexadecimal digits that no other archive has.
        files: the files that were written, by logs.
        missing: rows that the archive once had and that none of the files holds.
    """

    archive: str
    id: str
    files: tuple[Exported, ...]
    missing: tuple[Missing, ...]


@click.command("export", short_help="Writes Parquet or Arrow files for Spark, DuckDB, Polars and pandas.")
@click.argument("archive", shell_complete=candidates.directories)
@click.option(
    "--to",
    metavar="FILE|DIRECTORY",
    required=True,
    shell_complete=candidates.files,
    help="Write to this new FILE.parquet or FILE.arrow, or into this directory.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["parquet", "arrow"]),
    help="Write files of this format (default: what the name of the file says; parquet in a directory).",
)
@click.option("--topic", "topics", metavar="TOPIC", multiple=True, help="Export only this topic; may be repeated.")
@click.option("--pattern", is_flag=True, help="Read every TOPIC as a regular expression for whole names.")
@click.option("--events", is_flag=True, help="Export events too: losses, beginnings and ends of sessions.")
@click.option("--skip-damaged", is_flag=True, help="Leave out damaged rows, and list them; exit code 1.")
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    archive: str,
    to: str,
    form: str | None,
    topics: tuple[str, ...],
    pattern: bool,
    events: bool,
    skip_damaged: bool,
    as_json: bool,
) -> None:
    """Writes what ARCHIVE holds now into files; recorders may write it meanwhile.

    When ARCHIVE is damaged, the export ends with exit code 1 and leaves no file. With --skip-damaged it writes all
    other rows, lists the offsets of the missing rows, and ends with exit code 1 too.

    The columns are those of the Spark source (docs/how-to/spark.md), headers included. The export needs pyarrow, but
    neither Spark nor Java.

    \b
    Examples:
      ipcbus archive export traffic --to traffic.parquet
      ipcbus archive export traffic --to quotes --topic 'quotes\\..*' --pattern
      duckdb -c "SELECT topic, count(*) FROM 'traffic.parquet' GROUP BY topic"
    """
    from rich.progress import Progress

    from ipcbus.archive import Archive
    from ipcbus.archive.row_filter import RowSelection

    try:
        from ipcbus.archive.export import export
    except ImportError as error:
        raise Failure(str(error)) from error
    if pattern and not topics:
        raise Misuse("--pattern needs --topic: it says how to read each TOPIC")
    opened = Archive(archive)
    target = Path(to)
    chosen = cast("Form", form or (target.suffix[1:] if target.suffix in (".parquet", ".arrow") else "parquet"))
    selection = RowSelection(_topic_predicate(topics, pattern), events=events)
    missing: list[Missing] = []
    try:
        total = _count_rows(opened, topics, pattern, skip_damaged)
        with SignalHandler() as signals, signals.interruptible(), progress_bar(Progress) as progress:
            task = progress.add_task("", total=total)
            files = export(
                opened,
                target,
                form=chosen,
                selection=selection,
                on_progress=lambda rows: progress.advance(task, rows),
                skip_damaged=skip_damaged,
                on_missing=missing.append,
            )
    except ArchiveDamaged as error:
        if skip_damaged:
            raise
        raise Failure(f"{error}; --skip-damaged exports all other rows") from error
    found = Export(str(opened.path), opened.id, tuple(files), tuple(missing))
    if as_json:
        print_json(found)
    else:
        _show(found)
    ctx.exit(1 if any(each.damaged for each in missing) else 0)


def _count_rows(archive: Archive, topics: tuple[str, ...], pattern: bool, skip_damaged: bool) -> int:
    """Returns the number of rows of the archive; prints a note for each topic that the archive does not have.

    Raises:
        ArchiveDamaged: a log cannot be read.
    """
    from ipcbus.archive.row_filter import suggestion

    total, known = 0, set[str]()
    for log in archive.logs():
        with contextlib.suppress(*([ArchiveDamaged] if skip_damaged else [])):
            first, end = log.bounds()
            total += end - first
            known |= set(log.topics().values())
    for topic in topics:
        if not any(re.fullmatch(topic, each) for each in known) if pattern else topic not in known:
            what = "matches no topic of the archive" if pattern else "is not a topic of the archive"
            notes().print(safe(f"note: {topic} {what}{suggestion(topic, known)}"), soft_wrap=True)
    return total


def _show(found: Export) -> None:
    rows: list[Row] = [
        {"file": safe(each.path), "rows": number(each.rows), "size": size(each.bytes)} for each in found.files
    ]
    show_table(output(), "files", rows)
    left_out: list[Row] = [
        {
            "log": each.log,
            "offsets": "all" if each.first is None else f"{each.first}-{(each.end or 0) - 1}",
            "rows": "" if each.first is None else number((each.end or 0) - each.first),
            "reason": each.reason,
        }
        for each in found.missing
    ]
    show_table(output(), "missing", left_out)
    output().print(plural(sum(each.rows for each in found.files), "row"), soft_wrap=True)


def _topic_predicate(topics: tuple[str, ...], pattern: bool) -> Callable[[str], bool] | None:
    if not topics:
        return None
    if not pattern:
        return frozenset(topics).__contains__
    expressions = []
    for topic in topics:
        try:
            expressions.append(re.compile(topic))
        except (re.error, OverflowError, RecursionError) as error:
            raise Misuse(f"--topic {topic!r} is not a regular expression: {error}") from error
    return lambda topic: any(expression.fullmatch(topic) for expression in expressions)
