"""`ipcbus hz`: measures the messages a second of a topic from the statistics alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ipcbus_tools.common import json_option, plural, statistics_options
from ipcbus_tools.name_lookup import topic_options
from ipcbus_tools.rates import topic_rate
from ipcbus_tools.rates.topic_rate import figure

if TYPE_CHECKING:
    from ipcbus_tools.rates.rate_meter import Flow


@click.command("hz")
@topic_options
@topic_rate.window_option()
@statistics_options
@json_option
def command(**options: Any) -> None:  # noqa: ANN401 - as `topic_rate.show` takes them
    """Prints the messages a second that are sent on TOPIC, until Ctrl-C.

    It reads the counters of the sources and receives no message, so that long messages and a busy machine make no
    difference. The first figure is over the last --interval, the others are over --window. When few messages come, both
    times grow until they hold some messages: one message every ten seconds is 0.1 a second.

    A topic with several sources has one line for all and one line for each. The command waits for a topic that has no
    source yet.

    \b
    Examples:
      ipcbus hz quotes.AAPL
      ipcbus hz heartbeat --window 60
      ipcbus hz ticks -n 1 --json | jq .flow.messages.now
    """
    topic_rate.show(describe, **options)


def describe(flow: Flow) -> str:
    """Returns the messages a second as a line for people."""
    found = flow.messages
    return (
        f"{figure(found.now)} msg/s  mean {figure(found.mean)}  min {figure(found.min)}  max {figure(found.max)}  "
        f"stddev {figure(found.std)}  {plural(flow.count, 'message')} in {flow.window_seconds:.3g} s"
    )
