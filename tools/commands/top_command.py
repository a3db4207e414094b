"""`ipcbus top`: shows every session live, from the statistics alone."""

from __future__ import annotations

from pathlib import Path

import click

from ipcbus_tools.common import Misuse, json_option, print_json, statistics_options
from ipcbus_tools.polling import interval_option, watch


@click.command("top")
@interval_option()
@click.option("--once", is_flag=True, help="Print one screen, from two snapshots --interval apart, and end.")
@click.option(
    "-n",
    "--count",
    metavar="N",
    type=click.IntRange(min=1),
    help="End after N snapshots (default: never), and clear the screen then; --once prints one that stays.",
)
@click.option(
    "--svg", metavar="FILE", type=click.Path(dir_okay=False), help="Draw the last of --count screens into FILE (SVG)."
)
@click.option(
    "--replay",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False, allow_dash=False),
    help="Show the snapshots that 'ipcbus monitor' has written to FILE, one each --interval.",
)
@statistics_options
@json_option
def command(
    interval: float,
    once: bool,
    count: int | None,
    svg: str | None,
    replay: str | None,
    domain: str,
    as_json: bool,
) -> None:
    """Shows sessions, topics and receivers live: rates, latency, losses, and receivers that hold up their source.

    It only reads shared memory: it subscribes to nothing, takes no slot, and live processes do not notice. The
    receivers and topics of the chosen session stand below the table; ? shows the keys.

    \b
    Examples:
      ipcbus top
      ipcbus top --interval 0.2 --domain trading
      ipcbus top --once | less
      ipcbus top --once --json | jq '.contexts[].sessions[] | {source, per_second}'
      ipcbus top --replay /var/log/ipcbus.jsonl --interval 0.2

    With --json each snapshot is one line; docs/reference/json.md describes it.
    """
    looks = 1 if once else count
    if as_json and svg is not None:
        raise Misuse("--json prints and --svg draws; choose one of them")
    if replay is not None and (once or as_json or svg):
        raise Misuse("--replay is for the screen; the file itself holds the snapshots as JSON, one a line")
    if as_json:
        for found in watch(domain, interval, looks):
            print_json(found.to_dict())
        return
    # These imports are slow, and output in JSON does not need them.
    from ipcbus_tools.top import live_view

    if svg is not None:
        if looks is None:
            raise Misuse("--svg needs --once or --count, to know when to draw")
        live_view.picture(domain, interval, looks, svg)
    elif once:
        live_view.once(domain, interval)
    else:
        live_view.run(
            live_view.RecordedFrames(Path(replay), interval) if replay else live_view.LiveFrames(domain, interval),
            interval,
            count,
        )
