"""`ipcbus archive export`: an archive as files for Spark, DuckDB, Polars and pandas."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

import click
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from ipcbus.archive import Archive
from ipcbus.archive.choose import Choice
from ipcbus.archive.exported import Exported  # noqa: TC001 - the schema looks the type up
from ipcbus.stats.plain import to_plain
from ipcbus_tools.common import Failure, Misuse, json_option, notes, number, output, plural, print_json, safe, size
from ipcbus_tools.stopping import Stopper
from ipcbus_tools.tables import Row, show_table

if TYPE_CHECKING:
    from collections.abc import Callable

    from ipcbus.archive.export import Form


@dataclass(frozen=True, slots=True)
class Export:
    """What was exported.

    Attributes:
        archive: directory of the archive.
        id: 32 hexadecimal digits that no other archive has.
        files: what was written, by logs.
    """

    archive: str
    id: str
    files: tuple[Exported, ...]


@click.command("export", short_help="Writes Parquet or Arrow files for Spark, DuckDB, Polars and pandas.")
@click.argument("archive")
@click.option("--to", metavar="FILE|DIRECTORY", required=True, help="A new FILE.parquet or FILE.arrow, or a directory.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["parquet", "arrow"]),
    help="By default what the name of the file says, and in a directory parquet.",
)
@click.option("--topic", "topics", metavar="TOPIC", multiple=True, help="Only this topic; may be given several times.")
@click.option("--pattern", is_flag=True, help="Every TOPIC is a regular expression that the whole name has to match.")
@click.option("--events", is_flag=True, help="Also what is no message: losses, beginnings and ends of sessions.")
@json_option
def command(
    archive: str, to: str, form: str | None, topics: tuple[str, ...], pattern: bool, events: bool, as_json: bool
) -> None:
    """Writes what ARCHIVE holds now into files; recorders may write it meanwhile.

    The columns are those of the Spark source (docs/how-to/spark.md), headers included. Neither Spark nor Java is
    needed, only pyarrow.

    \b
    Examples:
      ipcbus archive export traffic --to traffic.parquet
      ipcbus archive export traffic --to quotes --topic 'quotes\\..*' --pattern
      duckdb -c "SELECT topic, count(*) FROM 'traffic.parquet' GROUP BY topic"
    """
    try:
        from ipcbus.archive.export import export
    except ImportError as error:
        raise Failure(str(error)) from error
    opened = Archive(archive)
    target = Path(to)
    chosen = cast("Form", form or (target.suffix[1:] if target.suffix in (".parquet", ".arrow") else "parquet"))
    choice = Choice(_wanted(topics, pattern), events=events)
    total = sum(end - first for first, end in (log.bounds() for log in opened.logs()))
    with Stopper() as stopper, stopper.allowed(), _progress() as progress:
        task = progress.add_task("", total=total)
        files = export(opened, target, form=chosen, choice=choice, told=lambda rows: progress.advance(task, rows))
    found = Export(str(opened.path), opened.id, tuple(files))
    if as_json:
        print_json(to_plain(found))
        return
    rows: list[Row] = [
        {"file": safe(each.path), "rows": number(each.rows), "size": size(each.bytes)} for each in found.files
    ]
    show_table(output(), "files", rows)
    output().print(plural(sum(each.rows for each in found.files), "row"), soft_wrap=True)


def _wanted(topics: tuple[str, ...], pattern: bool) -> Callable[[str], bool] | None:
    if not topics:
        return None
    if not pattern:
        return frozenset(topics).__contains__
    expressions = []
    for topic in topics:
        try:
            expressions.append(re.compile(topic))
        except (re.error, OverflowError, RecursionError) as error:
            raise Misuse(f"--topic {topic!r} is no regular expression: {error}") from error
    return lambda topic: any(expression.fullmatch(topic) for expression in expressions)


def _progress() -> Progress:
    columns = (BarColumn(None), MofNCompleteColumn(), TextColumn("{task.speed:.0f}/s", "dim"), TimeRemainingColumn())
    return Progress(*columns, console=notes(), transient=True, disable=not sys.stderr.isatty(), expand=True)
