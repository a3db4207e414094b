"""`ipcbus monitor`: writes snapshots with rates into a file, one line each."""

from __future__ import annotations

import sys

import click

from ipcbus_tools.common import json_option, print_json, size, statistics_options
from ipcbus_tools.polling import interval_option, watch
from ipcbus_tools.snapshot_log import SnapshotLog


@click.command("monitor")
@click.option(
    "--log",
    "path",
    metavar="FILE",
    required=True,
    type=click.Path(dir_okay=False, allow_dash=True),
    help="Append to FILE; - is stdout.",
)
@interval_option()
@click.option("-n", "--count", metavar="N", type=click.IntRange(min=1), help="End after N snapshots (default: never).")
@statistics_options
@json_option
def command(path: str, interval: float, count: int | None, domain: str, as_json: bool) -> None:
    """Appends a snapshot of the domain with its rates to FILE, one each --interval; it only reads shared memory.

    A snapshot is one line of JSON, as docs/reference/json.md describes it, written at once. When the disk is full, the
    unfinished line is cut off again; after a crash, the next start ends the unfinished line. The file holds command
    lines, so only its owner may read it.

    The command makes FILE again when it was moved away, so logrotate needs no postrotate; copytruncate works too.

    \b
    Examples:
      ipcbus monitor --log /var/log/ipcbus.jsonl --interval 10
      ipcbus monitor --log - -n 3 | jq -r '.contexts[].sessions[] | [.source, .per_second.lbm_msgs_sent] | @tsv'
      ipcbus monitor --log hour.jsonl --interval 1 -n 3600 --domain trading

    With --json its last line says what was written.
    """
    shown = path != "-" and not as_json and sys.stderr.isatty()
    with SnapshotLog(path) as log:
        try:
            for found in watch(domain, interval, count):
                log.append(found.to_dict())
                if shown:
                    click.echo(f"\r{log.records} snapshots, {size(log.written)} \x1b[K", nl=False, err=True)
        finally:
            if shown:
                click.echo(err=True)
    if as_json and path != "-":
        print_json({"file": path, "snapshots": log.records, "bytes": log.written})
