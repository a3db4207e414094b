"""`ipcbus bench`: measures throughput and round trips between two processes of this host."""

from __future__ import annotations

import json
import os
import subprocess
import time
from typing import TYPE_CHECKING, Any

import click

import ipcbus
from ipcbus.config import Config
from ipcbus_tools.common import (
    Failure,
    bus_options,
    duration,
    json_option,
    number,
    print_json,
    size,
    source_options,
    transport_option,
)
from ipcbus_tools.demo.demo_receivers import start
from ipcbus_tools.signals import SignalHandler

if TYPE_CHECKING:
    from ipcbus import Receiver, Source

END = b"the end of the messages"
"""The message behind the last one of the throughput."""
LONGEST = (1 << 31) - 1
"""The longest message in bytes."""
WAIT_S = 30.0
"""Seconds that each process waits for the other one at most."""


@click.command("bench")
@transport_option
@click.option(
    "--size", "length", metavar="BYTES", type=click.IntRange(1, LONGEST), default=64, help="Send BYTES a message."
)
@click.option("--count", metavar="N", type=click.IntRange(1), default=200_000, help="Send N messages.")
@click.option("--trips", metavar="N", type=click.IntRange(1), default=1000, help="Make N round trips.")
@bus_options
@json_option
def command(
    transport: str | None, length: int, count: int, trips: int, domain: str, config: str | None, as_json: bool
) -> None:
    """Measures this host: sends messages to a second process, then single messages there and back.

    The result is one line. Both processes use the options of --config, and sleep where nothing is there, as most
    programs do. Run it a few times, and on a host that does nothing else.

    \b
    Examples:
      ipcbus bench
      ipcbus bench --transport lbtru --size 1024
      ipcbus bench --json | jq .messages_per_second
    """
    topic = f"ipcbus.bench.{os.getpid()}"
    # Here, so that two processes do not print the same error.
    Config.load(config).values("source", topic, **source_options(transport))
    called = ("bench-receiver", topic, "--trips", str(trips), "--domain", domain)
    process = start(*called, *(("--transport", transport) if transport else ()), config=config)
    try:
        with SignalHandler() as signals, ipcbus.Context(config, domain=domain) as context:
            answers = context.receiver(f"{topic}.back", events=False)
            source = context.source(topic, **source_options(transport))
            with signals.interruptible():
                source.wait_for_receivers(1, WAIT_S)
                answers.wait_for_sources(1, WAIT_S)
                found: dict[str, Any] = {"source": source.source, "size": length}
                found |= _throughput(source, answers, length, count)
                found |= _trips(source, answers, length, trips)
    except BaseException:
        process.terminate()
        raise
    finally:
        _await_end(process)
    if as_json:
        print_json(found)
        return
    click.echo(
        f"{found['source']}, {length} bytes: {number(found['messages_per_second'])} messages/s, "
        f"{size(found['messages_per_second'] * length)}/s, {number(found['lost'])} lost; round trip "
        f"{duration(found['round_trip_p50_ns'])}, p99 {duration(found['round_trip_p99_ns'])}"
    )


def _await_end(process: subprocess.Popen[bytes]) -> None:
    """Waits until the second process has closed its context."""
    try:
        process.communicate(timeout=WAIT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()


def _throughput(source: Source, answers: Receiver, length: int, count: int) -> dict[str, float]:
    payload = b"x" * length
    send = source.send
    begin = time.perf_counter()
    for _ in range(count):
        send(payload)
    send(END, flush=True)
    found: dict[str, float] = json.loads(_answer(answers))
    seconds = time.perf_counter() - begin
    return {**found, "seconds": seconds, "messages_per_second": found["messages"] / seconds}


def _trips(source: Source, answers: Receiver, length: int, trips: int) -> dict[str, float]:
    payload, times = b"x" * length, []
    for _ in range(trips):
        begin = time.perf_counter_ns()
        source.send(payload, flush=True)
        _answer(answers)
        times.append(time.perf_counter_ns() - begin)
    times.sort()
    return {"round_trip_p50_ns": times[trips // 2], "round_trip_p99_ns": times[trips * 99 // 100]}


def _answer(answers: Receiver) -> bytes:
    message = answers.receive(WAIT_S)
    if message is None:
        raise Failure(f"the second process has not answered for {WAIT_S:g} s; see its output above")
    return message.data
