"""`ipcbus bw`: how many bytes a second a topic has, read from the statistics alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ipcbus_tools.common import json_option, look_options, plural, size
from ipcbus_tools.name_lookup import looking_options
from ipcbus_tools.rates import topic_rate

if TYPE_CHECKING:
    from ipcbus_tools.rates.rate_meter import Flow


@click.command("bw")
@looking_options
@topic_rate.window_option()
@look_options
@json_option
def command(**how: Any) -> None:  # noqa: ANN401 - as `rate.show` takes them
    """Prints how many bytes of payload a second are sent on TOPIC, and how long messages are, until Ctrl-C.

    Nothing is received: the publishers' own counters are read. Headers are not counted; with them, and for all topics
    of a session together, 'ipcbus stats' tells the bytes. The first figure is of the time since the look before, the
    others are of --window.

    \b
    Examples:
      ipcbus bw camera.left
      ipcbus bw ticks --interval 0.2 -n 50
      ipcbus bw ticks -n 1 --json | jq '.flow | .bytes.mean, .message_bytes'
    """
    topic_rate.show(words, **how)


def words(flow: Flow) -> str:
    """Bytes a second, for people."""
    found = flow.bytes
    each = f"{size(flow.message_bytes)} a message  " if flow.message_bytes is not None else ""
    return (
        f"{size(found.now)}/s  mean {size(found.mean)}/s  min {size(found.min)}/s  max {size(found.max)}/s  "
        f"stddev {size(found.std)}/s  {each}{plural(flow.count, 'message')} in {flow.window_seconds:.3g} s"
    )
