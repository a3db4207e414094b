"""`ipcbus top`: every session live, read from the statistics alone."""

from __future__ import annotations

import click

from ipcbus.config import Config
from ipcbus_tools.common import Misuse, bus_options, json_option, print_json
from ipcbus_tools.watching import interval_option, watch


@click.command("top", short_help="Shows every session live.")
@interval_option()
@click.option("--once", is_flag=True, help="Print one look, of two snapshots --interval apart, and end.")
@click.option("-n", "--count", metavar="N", type=click.IntRange(min=1), help="End after N looks.")
@click.option("--svg", metavar="FILE", type=click.Path(dir_okay=False), help="Draw the last of --count looks to FILE.")
@bus_options
@json_option
def command(
    interval: float, once: bool, count: int | None, svg: str | None, domain: str, config: str | None, as_json: bool
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
      ipcbus top --json -n 60 > minute.jsonl

    With --json each look is one line; its form is in docs/reference/json.md.
    """
    Config.load(config)  # nothing of it matters here, but a wrong file should not pass in silence
    looks = 1 if once else count
    if as_json:
        for found in watch(domain, interval, looks):
            print_json(found.to_dict())
        return
    # Programs that only want numbers need not wait for what draws.
    from ipcbus_tools.top import live

    if svg is not None:
        if looks is None:
            raise Misuse("--svg needs --once or --count, to know when to draw")
        live.picture(domain, interval, looks, svg)
    elif once:
        live.once(domain, interval)
    else:
        live.run(domain, interval, count)
