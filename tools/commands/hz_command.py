"""`ipcbus hz`: how many messages a second a topic has, read from the statistics alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ipcbus_tools.common import json_option, look_options, plural
from ipcbus_tools.name_lookup import looking_options
from ipcbus_tools.rates import topic_rate
from ipcbus_tools.rates.topic_rate import figure

if TYPE_CHECKING:
    from ipcbus_tools.rates.rate_meter import Flow


@click.command("hz")
@looking_options
@topic_rate.window_option()
@look_options
@json_option
def command(**how: Any) -> None:  # noqa: ANN401 - as `rate.show` takes them
    """Prints how many messages a second are sent on TOPIC, until Ctrl-C.

    Nothing is received: the publishers' own counters are read, so big messages and a busy machine make no difference.
    The first figure is of the time since the look before, the others are of --window. Where only few messages come,
    the time is taken so long that it holds some: a message every ten seconds is 0.1 a second.

    A topic that has several sources has a line for all and one for each. One that has none is waited for.

    \b
    Examples:
      ipcbus hz quotes.AAPL
      ipcbus hz heartbeat --window 60
      ipcbus hz ticks -n 1 --json | jq .flow.messages.now
    """
    topic_rate.show(words, **how)


def words(flow: Flow) -> str:
    """Messages a second, for people."""
    found = flow.messages
    return (
        f"{figure(found.now)} msg/s  mean {figure(found.mean)}  min {figure(found.min)}  max {figure(found.max)}  "
        f"stddev {figure(found.std)}  {plural(flow.count, 'message')} in {flow.window_seconds:.3g} s"
    )
