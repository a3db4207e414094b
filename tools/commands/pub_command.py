"""`ipcbus pub`: sends messages from the command line or from stdin."""

from __future__ import annotations

import itertools
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

import ipcbus
from ipcbus.wire.properties import pack
from ipcbus_tools.common import (
    Misuse,
    Seconds,
    bus_options,
    json_option,
    notes,
    number,
    print_json,
    sending_options,
    source_options,
)
from ipcbus_tools.completion import candidates
from ipcbus_tools.receiver_wait import wait_for_receivers
from ipcbus_tools.signals import SignalHandler, Stopped

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

MAX_RATE = 10_000_000
"""Most messages a second of --rate; more than a source sends."""


@click.command("pub")
@click.argument("topic", shell_complete=candidates.topics)
@click.argument("texts", metavar="[TEXT]...", nargs=-1)
@sending_options(timeout=10)
@click.option(
    "--repeat",
    metavar="N",
    type=click.IntRange(min=0),
    help="Send all TEXTs and FILEs N times; 0 goes on until Ctrl-C.  [default: 1, or as often as --count needs]",
)
@click.option("--count", metavar="N", type=click.IntRange(min=1), help="End after N messages.")
@click.option("--interval", type=Seconds(), default=0, help="Wait SECONDS between two messages.")
@click.option(
    "--rate",
    metavar="N",
    type=click.IntRange(1, MAX_RATE),
    help="Send N messages a second on average; after a late one the next waits are shorter.",
)
@click.option(
    "--file",
    "files",
    metavar="FILE",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, allow_dash=True),
    shell_complete=candidates.files,
    help="Send the content of FILE as a message, behind the TEXTs; - is stdin; may be repeated.",
)
@click.option("--stdin-lines", is_flag=True, help="Send each line of stdin, behind the TEXTs and FILEs.")
@click.option(
    "--header", "given", metavar="NAME=VALUE", multiple=True, help="Add a header to each message; may be repeated."
)
@bus_options
@json_option
def command(
    topic: str,
    texts: tuple[str, ...],
    transport: str | None,
    wait_receivers: int,
    timeout: float,
    repeat: int | None,
    count: int | None,
    interval: float,
    rate: int | None,
    files: tuple[str, ...],
    stdin_lines: bool,
    given: tuple[str, ...],
    domain: str,
    config: str | None,
    as_json: bool,
) -> None:
    """Sends each TEXT as a message of TOPIC; without TEXT and --file, sends each line of stdin.

    It waits for a receiver first; --wait-receivers 0 starts at once.

    \b
    Examples:
      ipcbus pub greetings "good morning" "good night"
      tail -F access.log | ipcbus pub access
      ipcbus pub beat tick --repeat 0 --interval 1
      ipcbus pub load x --rate 1000 --count 60000
      ipcbus pub images --file cat.jpg --file dog.jpg
      ipcbus pub alarms fire --wait-receivers 3 --timeout 60
      ipcbus pub orders buy --header key=AAPL
    """
    if rate is not None and interval:
        raise Misuse("--rate and --interval both say when the next message is sent; give one of them")
    if stdin_lines and "-" in files:
        raise Misuse("--stdin-lines and --file - both read stdin; give one of them")
    sent = Sent(_headers(given))
    wanted = itertools.islice(_messages(texts, files, stdin_lines, repeat, count), count)
    pace = 1 / rate if rate else interval
    with SignalHandler() as signals, ipcbus.Context(config, domain=domain) as context:
        source = context.source(topic, **source_options(transport))
        try:
            with signals.interruptible():
                wait_for_receivers([source], wait_receivers, timeout, domain=domain, quiet=as_json)
                sent.send_all(source, wanted, pace, signals, evenly=rate is not None)
                source.close()  # here a signal may end its wait for receivers that are joining
        except Stopped:
            _report(source, sent, as_json)
            raise
        _report(source, sent, as_json)


class Sent:
    """Counts of what was sent so far; they are right also when a signal interrupts the sending."""

    def __init__(self, headers: list[tuple[str, bytes]]) -> None:
        self._headers = headers
        self.messages = self.bytes = 0
        self._begin = time.monotonic()

    @property
    def seconds(self) -> float:
        """Seconds since the sending began."""
        return time.monotonic() - self._begin

    def send_all(
        self,
        source: ipcbus.Source,
        messages: Iterable[bytes],
        interval: float,
        signals: SignalHandler,
        *,
        evenly: bool = False,
    ) -> None:
        """Sends messages, one each interval; with interval 0 as fast as possible.

        With `evenly`, a message that is late shortens the waits that follow.
        """
        self._begin = time.monotonic()
        for message in messages:
            if interval and self.messages:
                signals.wait(self.messages * interval - self.seconds if evenly else interval)
            source.send(message, headers=self._headers, flush=bool(interval))
            self.messages += 1
            self.bytes += len(message)


def _headers(given: tuple[str, ...]) -> list[tuple[str, bytes]]:
    """Converts the values of --header.

    Raises:
        Misuse: a value is not a header, or all headers together are too long.
    """
    found = []
    for text in given:
        name, is_one, value = text.partition("=")
        if not is_one:
            raise Misuse(f"--header {text!r} has no '='; write NAME=VALUE")
        found.append((name, value.encode(errors="surrogateescape")))
    try:
        pack(found)
    except (ValueError, ipcbus.MessageTooLarge) as error:
        raise Misuse(f"--header: {error}") from error
    return found


def _messages(
    texts: tuple[str, ...], files: tuple[str, ...], stdin_lines: bool, repeat: int | None, count: int | None
) -> Iterator[bytes]:
    given = [text.encode(errors="surrogateescape") for text in texts] + [_content(name) for name in files]
    if repeat is None:
        repeat = 1 if count is None or stdin_lines else 0
    rounds = itertools.repeat(given, repeat) if repeat else itertools.repeat(given)
    if given:
        yield from itertools.chain.from_iterable(rounds)
    if stdin_lines or not given:
        # Lines that are not UTF-8 are sent unchanged, so the command reads bytes, not text.
        yield from (line.removesuffix(b"\n") for line in sys.stdin.buffer)


def _content(name: str) -> bytes:
    return sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()


def _report(source: ipcbus.Source, sent: Sent, as_json: bool) -> None:
    if as_json:
        print_json(
            {
                "topic": source.topic,
                "source": source.source,
                "messages": sent.messages,
                "bytes": sent.bytes,
                "unheard": source.unheard,
                "seconds": round(sent.seconds, 6),
            }
        )
    elif sys.stderr.isatty():
        notes().print(f"{number(sent.messages)} messages, {number(sent.bytes)} bytes, on {source.source}", style="dim")
