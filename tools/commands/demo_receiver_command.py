"""`ipcbus demo-receiver`: a receiving process of `ipcbus demo`."""

from __future__ import annotations

import sys
from collections import defaultdict
from typing import TYPE_CHECKING, Final

import click

import ipcbus
from ipcbus_tools.common import bus_options, print_json

if TYPE_CHECKING:
    from ipcbus import Message
    from ipcbus.config.keywords import ConfigMapping

FINE_SAMPLES: Final[ConfigMapping] = {"context": {"latency_sampling_interval": 1}}
"""Options without --config: every datagram is timed, because the demo is short."""


@click.command("demo-receiver")
@click.argument("topics", nargs=-1, required=True)
@click.option("--name", default="")
@bus_options
def command(topics: tuple[str, ...], name: str, domain: str, config: str | None) -> None:
    """Counts the messages of TOPICS by session until stdin ends, and prints the counts."""
    counts: dict[str, int] = defaultdict(int)

    def count(message: Message) -> None:
        # The demo sends no empty messages, so a length tells messages from events at the least cost.
        if len(message):
            counts[message.source] += 1

    with ipcbus.Context(config or FINE_SAMPLES, name=name, domain=domain) as context:
        for topic in topics:
            context.receiver(topic, count)
        sys.stdin.buffer.read()
    print_json(counts)
