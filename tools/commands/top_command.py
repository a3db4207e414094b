"""`ipcbus top`: every session live, read from the statistics alone."""

from __future__ import annotations

from pathlib import Path

import click

from ipcbus_tools.common import Misuse, json_option, look_options, print_json
from ipcbus_tools.polling import interval_option, watch


@click.command("top")
@interval_option()
@click.option("--once", is_flag=True, help="Print one look, of two snapshots --interval apart, and end.")
@click.option("-n", "--count", metavar="N", type=click.IntRange(min=1), help="End after N looks.")
@click.option("--svg", metavar="FILE", type=click.Path(dir_okay=False), help="Draw the last of --count looks to FILE.")
@click.option(
    "--replay",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False, allow_dash=False),
    help="Show what 'ipcbus monitor' has written to FILE, a look each --interval.",
)
@look_options
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
    """Shows who sends what to whom, how fast, how late, what was lost, and who holds the others up.

    Only shared memory is read: nothing is subscribed, no slot is taken, no live process notices. The chosen session's
    receivers and topics stand below it; ? shows the keys.

    \b
    Examples:
      ipcbus top
      ipcbus top --interval 0.2 --domain trading
      ipcbus top --once | less
      ipcbus top --once --json | jq '.contexts[].sessions[] | {source, per_second}'
      ipcbus top --replay /var/log/ipcbus.jsonl --interval 0.2

    With --json each look is one line; its form is in docs/reference/json.md.
    """
    looks = 1 if once else count
    if as_json and svg is not None:
        raise Misuse("--json prints and --svg draws: choose one of them")
    if replay is not None and (once or as_json or svg):
        raise Misuse("--replay is for the screen: the file itself holds the looks as JSON, one a line")
    if as_json:
        for found in watch(domain, interval, looks):
            print_json(found.to_dict())
        return
    # Programs that only want numbers need not wait for what draws.
    from ipcbus_tools.top import live_view

    if svg is not None:
        if looks is None:
            raise Misuse("--svg needs --once or --count, to know when to draw")
        live_view.picture(domain, interval, looks, svg)
    elif once:
        live_view.once(domain, interval)
    else:
        live_view.run(
            live_view.Recorded(Path(replay), interval) if replay else live_view.Looks(domain, interval), interval, count
        )
