"""`ipcbus bench-receiver`: the second process of `ipcbus bench`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

import ipcbus
from ipcbus_tools.commands.bench_command import END, WAIT_S
from ipcbus_tools.common import Failure, bus_options, source_options, transport_option
from ipcbus_tools.signals import SignalHandler

if TYPE_CHECKING:
    from ipcbus import Receiver

_MANY = 1024


@click.command("bench-receiver")
@click.argument("topic")
@click.option("--trips", type=int, required=True)
@transport_option
@bus_options
def command(topic: str, trips: int, transport: str | None, domain: str, config: str | None) -> None:
    """Counts the messages of TOPIC, sends back how many came, then sends back each message."""
    with SignalHandler() as signals, ipcbus.Context(config, domain=domain) as context:
        receiver = context.receiver(topic, events=False)
        source = context.source(f"{topic}.back", **source_options(transport))
        with signals.interruptible():
            source.wait_for_receivers(1, WAIT_S)
            source.send(json.dumps(_count(receiver)).encode(), flush=True)
            for _ in range(trips):
                message = receiver.receive(WAIT_S)
                if message is None:
                    break
                source.send(message.data, flush=True)


def _count(receiver: Receiver) -> dict[str, int]:
    """Returns how many messages came and were lost before the last one."""
    messages = 0
    while got := receiver.receive_many(_MANY, WAIT_S):
        messages += len(got)
        if got[-1].data == END:
            return {"messages": messages - 1, "lost": receiver.lost}
    raise Failure(f"no message came for {WAIT_S:g} s")
