"""`ipcbus monitor`: snapshots with rates into a file, one line each."""

from __future__ import annotations

import sys

import click

from ipcbus_tools.common import json_option, look_options, print_json, size
from ipcbus_tools.polling import interval_option, watch
from ipcbus_tools.snapshot_log import SnapshotLog


@click.command("monitor")
@click.option(
    "--log",
    "path",
    metavar="FILE",
    required=True,
    type=click.Path(dir_okay=False, allow_dash=True),
    help="Where to append; - is stdout.",
)
@interval_option()
@click.option("-n", "--count", metavar="N", type=click.IntRange(min=1), help="End after N snapshots.")
@look_options
@json_option
def command(path: str, interval: float, count: int | None, domain: str, as_json: bool) -> None:
    """Appends a snapshot of the domain with its rates to FILE every so often, for later; nobody is disturbed.

    A snapshot is one line of JSON in the form of docs/reference/json.md, written at once. What a full disk
    took of a line is cut off again, what a crash cut short is closed with a line end at the next start. The file holds
    command lines, so only its owner may read it.

    A file that was moved away is made anew, so logrotate needs no postrotate; copytruncate works too.

    \b
    Examples:
      ipcbus monitor --log /var/log/ipcbus.jsonl --interval 10
      ipcbus monitor --log - -n 3 | jq -r '.contexts[].sessions[] | [.source, .per_second.lbm_msgs_sent] | @tsv'
      ipcbus monitor --log hour.jsonl --interval 1 -n 3600 --domain trading

    With --json it ends with a line about what was written.
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
