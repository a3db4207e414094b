"""`ipcbus pipeline`: computes reports on recorded traffic with Spark."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Final

import click

from ipcbus.extras import how_to_install
from ipcbus_tools.common import (
    EXAMPLE_TIME,
    ZONE_HELP,
    Failure,
    Misuse,
    Seconds,
    as_time,
    json_option,
    notes,
    output,
    print_json,
)
from ipcbus_tools.completion import candidates
from ipcbus_tools.signals import SignalHandler, Stopped

NAMES: Final = ("throughput", "latency", "audit", "rollup", "compact", "report")

_ONLY_FOR: Final = {
    "--interval": ("throughput", "rollup", "report"),
    "--order": ("audit", "report"),
    "--events": ("compact",),
}

_NEEDED: Final = {"pyspark": "pyspark", "pyarrow": "pyarrow", "matplotlib": "matplotlib"}


def _moment(context: click.Context, option: click.Parameter, value: str | None) -> int | None:
    """Converts a time into ms since the epoch."""
    at = None if value is None else as_time(value)
    if value is not None and at is None:
        raise click.BadParameter(f"{value!r} is not a time; give one such as {EXAMPLE_TIME}", context, option)
    return None if at is None else max(0, round(at.timestamp() * 1000))


def _confs(context: click.Context, option: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    """Converts NAME=VALUE texts into settings of Spark."""
    found = {}
    for value in values:
        name, equals, text = value.partition("=")
        if not equals or not name.startswith("spark."):
            raise click.BadParameter(f"{value!r} is not a setting of Spark; give spark.NAME=VALUE", context, option)
        found[name] = text
    return found


@click.command("pipeline")
@click.argument("name", type=click.Choice(NAMES))
@click.option(
    "--archive",
    metavar="DIR",
    required=True,
    shell_complete=candidates.directories,
    help="Read the archive that 'ipcbus record --to DIR' wrote.",
)
@click.option("--out", metavar="DIR", type=click.Path(path_type=Path), help="Write the results into DIR, as Parquet.")
@click.option("--topic", "topics", metavar="TOPIC", multiple=True, help="Read only this topic; may be repeated.")
@click.option("--pattern", is_flag=True, help="Read each TOPIC as a regular expression for whole names.")
@click.option("--partition", metavar="N", type=click.IntRange(0), help="Read only the log with this number.")
@click.option(
    "--since", metavar="TIME", callback=_moment, help=f"Read only messages received from TIME on; {ZONE_HELP}"
)
@click.option("--until", metavar="TIME", callback=_moment, help=f"Read only messages received before TIME; {ZONE_HELP}")
@click.option("--interval", metavar="TIME", help="Length of an interval (default 1s; a report chooses it).")
@click.option("--order", is_flag=True, help="Let the audit check the order of all messages too.")
@click.option("--events", is_flag=True, help="Let compact write losses and beginnings of streams too.")
@click.option("--incremental", is_flag=True, help="Continue at the checkpoint, and end when all rows have been read.")
@click.option("--stream", is_flag=True, hidden=True)  # the name of --incremental in earlier releases
@click.option(
    "--checkpoint", metavar="DIR", type=click.Path(path_type=Path), help="Keep the position of --incremental in DIR."
)
@click.option("--every", type=Seconds(0.001), help="With --incremental: read new rows every SECONDS, without end.")
@click.option("--master", metavar="URL", default="local[*]", help="Run on this Spark master.")
@click.option(
    "--conf", "confs", metavar="NAME=VALUE", multiple=True, callback=_confs, help="Set spark.NAME; may be repeated."
)
@json_option
def command(
    name: str,
    archive: str,
    out: Path | None,
    topics: tuple[str, ...],
    pattern: bool,
    partition: int | None,
    since: int | None,
    until: int | None,
    interval: str | None,
    order: bool,
    events: bool,
    incremental: bool,
    stream: bool,
    checkpoint: Path | None,
    every: float | None,
    master: str,
    confs: dict[str, str],
    as_json: bool,
) -> None:
    """Computes throughput, latency, audit or rollup of an archive, compacts it to Parquet, or writes a report of all.

    It needs Java 17 and the extra 'spark': in a clone of ipcbus, pip install '.[spark]'. docs/how-to/pipelines.md says
    what each pipeline computes, docs/how-to/cluster.md how to run it on a cluster.

    \b
    Examples:
      ipcbus pipeline report --archive traffic --out report
      ipcbus pipeline audit --archive traffic
      ipcbus pipeline throughput --archive traffic --topic 'quotes\\..*' --pattern --interval 100ms
      ipcbus pipeline compact --archive traffic --out parquet
      ipcbus pipeline audit --archive traffic --out live --incremental --checkpoint cp --every 5
      ipcbus pipeline audit --archive /mnt/traffic --master spark://head:7077

    The audit ends with exit code 1 when messages are missing without a report of their loss.
    """
    _check(name, out, until, incremental or stream, checkpoint, every)
    given = {"--interval": interval is not None, "--order": order, "--events": events}
    _check_used(name, [option for option in given if given[option]])
    if pattern and not topics:
        raise Misuse("--pattern says how to read --topic; name a topic, or leave --pattern out")
    for module, package in _NEEDED.items():
        if find_spec(module) is None:
            raise Failure(f"ipcbus pipeline needs {package}; {how_to_install('spark')}")
    from ipcbus.spark.pipelines.reading import Selection  # these import pyspark
    from ipcbus.spark.pipelines.row_columns import interval_ns
    from ipcbus_tools.pipeline.pipeline_output import show
    from ipcbus_tools.pipeline.pipeline_run import Request, run

    careful = name not in ("audit", "report")
    what = Selection(Path(archive), topics, pattern, since, until, partition, careful)
    length = None if interval is None else interval_ns(interval)
    request = Request(name, what, master, confs, out, length, order, events, checkpoint, every)
    with SignalHandler() as signals:
        try:
            found, stopped = run(request, signals, quiet=as_json)
        except Stopped as signal:
            notes().print(f"stopped by {signal}: {name} has no result; run it again")
            raise
    if as_json:
        print_json(found)
    else:
        show(output(), found)
    if stopped is not None:
        raise stopped
    if name == "audit" and found.audit is not None and found.audit.missing:
        click.get_current_context().exit(1)


def _check_used(name: str, given: list[str]) -> None:
    """Checks for options that the pipeline does not use.

    Raises:
        Misuse: there is such an option.
    """
    for option in given:
        names = _ONLY_FOR[option]
        if name not in names:
            raise Misuse(f"{option} changes nothing in {name}, it is for {' and '.join(names)}; leave it out")


def _check(
    name: str, out: Path | None, until: int | None, stream: bool, checkpoint: Path | None, every: float | None
) -> None:
    """Checks for options that need or contradict each other.

    Raises:
        Misuse: two options do.
    """
    if out is None and (stream or name in ("compact", "report")):
        raise Misuse(f"{name} needs a directory for its results; name one with --out")
    if stream and name == "report":
        raise Misuse(
            "a report cannot be incremental; leave --incremental out, or run the pipelines of the report one by one"
        )
    if stream and checkpoint is None:
        raise Misuse("--incremental needs a directory for its checkpoint; name one with --checkpoint")
    if not stream and (checkpoint is not None or every is not None):
        raise Misuse("--checkpoint and --every are for --incremental; add it, or leave them out")
    if stream and until is not None:
        raise Misuse("--until and --incremental contradict each other; leave one out")
