"""`ipcbus bw`: measures the bytes a second of a topic from the statistics alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ipcbus_tools.common import json_option, plural, size, statistics_options
from ipcbus_tools.name_lookup import topic_options
from ipcbus_tools.rates import topic_rate

if TYPE_CHECKING:
    from ipcbus_tools.rates.rate_meter import Flow


@click.command("bw")
@topic_options
@topic_rate.window_option()
@statistics_options
@json_option
def command(**options: Any) -> None:  # noqa: ANN401 - as `topic_rate.show` takes them
    """Prints the bytes a second that are sent on TOPIC, and the mean size of a message, until Ctrl-C.

    It reads the counters of the sources and receives no message. The bytes are those of payloads and of the messages'
    own headers (--header of 'ipcbus pub'); what the bus adds to messages and datagrams is not counted, 'ipcbus stats'
    shows it for the whole session. The first figure is over the last --interval, the others are over --window.

    \b
    Examples:
      ipcbus bw camera.left
      ipcbus bw ticks --interval 0.2 -n 50
      ipcbus bw ticks -n 1 --json | jq '.flow | .bytes.mean, .message_bytes'
    """
    topic_rate.show(describe, **options)


def describe(flow: Flow) -> str:
    """Returns the bytes a second as a line for people."""
    found = flow.bytes
    each = f"{size(flow.message_bytes)} a message  " if flow.message_bytes is not None else ""
    return (
        f"{size(found.now)}/s  mean {size(found.mean)}/s  min {size(found.min)}/s  max {size(found.max)}/s  "
        f"stddev {size(found.std)}/s  {each}{plural(flow.count, 'message')} in {flow.window_seconds:.3g} s"
    )
