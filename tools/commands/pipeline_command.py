"""`ipcbus pipeline`: recorded traffic through Spark."""

from __future__ import annotations

from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import click

from ipcbus.extras import how_to_install
from ipcbus_tools.common import Failure, Misuse, Seconds, json_option, notes, output, print_json
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
    """Returns a time as ms since the epoch; one without a zone is UTC."""
    if value is None:
        return None
    try:
        found = datetime.fromisoformat(value)
    except ValueError as error:
        raise click.BadParameter(
            f"{value!r} is no time; give one such as 2026-01-31T09:30:00Z", context, option
        ) from error
    at = found if found.tzinfo else found.replace(tzinfo=UTC)
    return max(0, round(at.timestamp() * 1000))


def _confs(context: click.Context, option: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    """Settings of Spark, each as NAME=VALUE."""
    found = {}
    for value in values:
        name, equals, text = value.partition("=")
        if not equals or not name.startswith("spark."):
            raise click.BadParameter(f"{value!r} is no setting; give spark.NAME=VALUE", context, option)
        found[name] = text
    return found


@click.command("pipeline")
@click.argument("name", type=click.Choice(NAMES))
@click.option(
    "--archive",
    metavar="DIR",
    required=True,
    shell_complete=candidates.directories,
    help="The archive, as 'ipcbus record --to' wrote it.",
)
@click.option("--out", metavar="DIR", type=click.Path(path_type=Path), help="Where results go, as Parquet.")
@click.option("--topic", "topics", metavar="TOPIC", multiple=True, help="Only this topic; may be repeated.")
@click.option("--pattern", is_flag=True, help="Each TOPIC is a regular expression for whole names.")
@click.option("--partition", metavar="N", type=click.IntRange(0), help="Only the log of this number.")
@click.option("--since", metavar="TIME", callback=_moment, help="Only what was received then or later; UTC if no zone.")
@click.option("--until", metavar="TIME", callback=_moment, help="Only what was received before.")
@click.option("--interval", metavar="TIME", help="Of throughput and rollup; 1s, and what fits in a report.")
@click.option("--order", is_flag=True, help="The audit looks at the order of all messages; slower.")
@click.option("--events", is_flag=True, help="Compact writes losses and begins too, not only messages.")
@click.option("--stream", is_flag=True, help="Go on where the checkpoint says; end when all there is has been read.")
@click.option("--checkpoint", metavar="DIR", type=click.Path(path_type=Path), help="Of the stream; belongs to --out.")
@click.option("--every", metavar="SECONDS", type=Seconds(0.001), help="Do not end; read what is new this often.")
@click.option("--master", metavar="URL", default="local[*]", show_default=True, help="Where Spark runs.")
@click.option("--conf", "confs", metavar="NAME=VALUE", multiple=True, callback=_confs, help="A setting of Spark.")
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
    stream: bool,
    checkpoint: Path | None,
    every: float | None,
    master: str,
    confs: dict[str, str],
    as_json: bool,
) -> None:
    """Computes throughput, latency, audit or rollup of an archive, compacts it to Parquet, or writes a report of all.

    It needs Java 17 and the extra 'spark': in a clone of ipcbus, pip install '.[spark]'. What each computes:
    docs/how-to/pipelines.md; on a cluster: docs/how-to/cluster.md.

    \b
    Examples:
      ipcbus pipeline report --archive traffic --out report
      ipcbus pipeline audit --archive traffic
      ipcbus pipeline throughput --archive traffic --topic 'quotes\\..*' --pattern --interval 100ms
      ipcbus pipeline compact --archive traffic --out parquet
      ipcbus pipeline audit --archive traffic --out live --stream --checkpoint cp --every 5
      ipcbus pipeline audit --archive /mnt/traffic --master spark://head:7077

    The audit ends with exit code 1 when messages are missing and nobody has reported them.
    """
    _check(name, out, until, stream, checkpoint, every)
    given = {"--interval": interval is not None, "--order": order, "--events": events}
    _check_used(name, [option for option in given if given[option]])
    if pattern and not topics:
        raise Misuse("--pattern says how to read --topic; name a topic, or leave it away")
    for module, package in _NEEDED.items():
        if find_spec(module) is None:
            raise Failure(f"ipcbus pipeline needs {package}; {how_to_install('spark')}")
    from ipcbus.spark.pipelines.reading import Selection  # only the extra brings what they need
    from ipcbus.spark.pipelines.row_columns import interval_ns
    from ipcbus.stats.serialization import to_plain
    from ipcbus_tools.pipeline.pipeline_output import show
    from ipcbus_tools.pipeline.pipeline_run import Request, run

    careful = name not in ("audit", "report")
    what = Selection(Path(archive), topics, pattern, since, until, partition, careful)
    length = None if interval is None else interval_ns(interval)
    request = Request(name, what, master, confs, out, length, order, events, checkpoint, every)
    with SignalHandler() as stopper:
        try:
            found, stopped = run(request, stopper, quiet=as_json)
        except Stopped as signal:
            notes().print(f"stopped by {signal}: {name} has no result; run it again")
            raise
    if as_json:
        print_json(to_plain(found))
    else:
        show(output(), found)
    if stopped is not None:
        raise stopped
    if name == "audit" and found.audit is not None and found.audit.missing:
        click.get_current_context().exit(1)


def _check_used(name: str, given: list[str]) -> None:
    """Looks for options that a pipeline passes over.

    Raises:
        Misuse: there is one.
    """
    for option in given:
        names = _ONLY_FOR[option]
        if name not in names:
            raise Misuse(f"{option} changes nothing in {name}, it is for {' and '.join(names)}; leave it away")


def _check(
    name: str, out: Path | None, until: int | None, stream: bool, checkpoint: Path | None, every: float | None
) -> None:
    """Looks for options that need or contradict each other.

    Raises:
        Misuse: some do.
    """
    if out is None and (stream or name in ("compact", "report")):
        raise Misuse(f"{name} needs a directory for its results here; give it with --out")
    if stream and name == "report":
        raise Misuse("a report is of what there is now; leave --stream away, or run its pipelines as streams")
    if stream and checkpoint is None:
        raise Misuse("--stream needs a directory for its checkpoint; give it with --checkpoint")
    if not stream and (checkpoint is not None or every is not None):
        raise Misuse("--checkpoint and --every are for --stream; add it, or leave them away")
    if stream and until is not None:
        raise Misuse("--until and --stream contradict each other; leave one away")
