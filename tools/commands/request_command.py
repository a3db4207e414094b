"""`ipcbus request`: asks the receivers of a topic, and prints their responses."""

from __future__ import annotations

import contextlib
import queue
import sys
import time
from typing import TYPE_CHECKING

import click

import ipcbus
from ipcbus_tools.common import Failure, Seconds, bus_options, json_option, print_json, source_options, transport_option
from ipcbus_tools.completion import candidates
from ipcbus_tools.signals import SignalHandler

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ipcbus import Message, Source

_JOIN_S = 1.0
"""Longest time in seconds for which a request for several responses waits until the receivers have joined."""


@click.command("request")
@click.argument("topic", shell_complete=candidates.topics)
@click.argument("data")
@transport_option
@click.option(
    "-n",
    "--count",
    metavar="N",
    type=click.IntRange(min=0),
    default=1,
    show_default=True,
    help="End after N responses; 0 prints all that come within --timeout.",
)
@click.option(
    "--timeout", metavar="SECONDS", type=Seconds(), default=5, show_default=True, help="Wait SECONDS for responses."
)
@click.option("--hex", "as_hex", is_flag=True, help="Print responses in hexadecimal.")
@bus_options
@json_option
def command(
    topic: str,
    data: str,
    transport: str | None,
    count: int,
    timeout: float,
    as_hex: bool,
    domain: str,
    config: str | None,
    as_json: bool,
) -> None:
    """Sends DATA to the receivers of TOPIC as a request, and prints the response; DATA '-' stands for all of stdin.

    The response is printed as it is, and a line end behind it. With --json each response is an object; its bytes are in
    "data" if they are UTF-8, else (or with --hex) in "hex". Without enough responses the exit code is 1.

    \b
    Examples:
      ipcbus request clock now
      ipcbus request price AAPL --timeout 1 --json | jq .data
      ipcbus request inventory '' -n 0 --timeout 2     all responses of 2 s
    """
    asked = sys.stdin.buffer.read() if data == "-" else data.encode(errors="surrogateescape")
    printed = 0
    with SignalHandler() as signals, ipcbus.Context(config, domain=domain) as context:
        source = context.source(topic, **source_options(transport))
        with signals.interruptible():
            for message in _responses(source, asked, count, timeout, domain):
                _show(message, as_hex, as_json)
                printed += 1
    if printed < max(1, count):
        raise Failure(
            f"topic {topic!r}: {printed} of {max(1, count)} responses came within {timeout:g} s; wait longer, or look "
            "with 'ipcbus list' which receivers there are"
        )


def _responses(source: Source, data: bytes, count: int, timeout: float, domain: str) -> Iterator[Message]:
    """Yields the responses, `count` of them at most (0: all), until the time is over."""
    if count == 1:
        yield source.request(data, timeout)
        return
    _await_receivers(source, domain, timeout)
    responses: queue.SimpleQueue[Message | None] = queue.SimpleQueue()
    until = time.monotonic() + timeout
    with source.requests(data, responses.put, timeout=timeout, on_end=lambda _: responses.put(None)) as request:
        seen = 0
        while not count or seen < count:
            message = None
            with contextlib.suppress(queue.Empty):
                message = responses.get(timeout=max(0.0, until - time.monotonic()) + 1)
            if message is None:
                break
            seen += 1
            yield message
        if isinstance(request.error, ipcbus.NoResponder) and not seen:
            raise request.error


def _await_receivers(source: Source, domain: str, timeout: float) -> None:
    """Waits until all receivers of the topic on this host have joined: the request goes as soon as one has."""
    from ipcbus import stats  # here, because `ipcbus --help` must not load it

    there = [
        context
        for context in stats.take_snapshot(domain).contexts
        if context.alive and any(each.topic == source.topic and not each.wildcard for each in context.receivers)
    ]
    with contextlib.suppress(TimeoutError):
        source.wait_for_receivers(len(there), min(timeout, _JOIN_S))


def _show(message: Message, as_hex: bool, as_json: bool) -> None:
    data = message.data
    if as_json:
        found: dict[str, object] = {"topic": message.topic, "length": len(data)}
        try:
            found |= {"hex": data.hex()} if as_hex else {"data": data.decode()}
        except UnicodeDecodeError:
            found["hex"] = data.hex()
        print_json(found)
        return
    sys.stdout.buffer.write((data.hex().encode() if as_hex else data) + b"\n")
    sys.stdout.buffer.flush()
