"""`ipcbus pub`: sends messages from the command line or from stdin."""

from __future__ import annotations

import itertools
import sys
import time
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
    source_options,
    transport_option,
)
from ipcbus_tools.completion import candidates
from ipcbus_tools.signals import SignalHandler, Stopped

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


@click.command("pub")
@click.argument("topic", shell_complete=candidates.topics)
@click.argument("texts", metavar="[TEXT]...", nargs=-1)
@transport_option
@click.option(
    "--wait-receivers",
    metavar="N",
    type=click.IntRange(min=0),
    default=1,
    show_default=True,
    help="Start when N contexts receive the topic; they miss nothing. 0 starts at once.",
)
@click.option(
    "--timeout", metavar="SECONDS", type=Seconds(), default=10, show_default=True, help="Wait at most this long."
)
@click.option(
    "--repeat",
    metavar="N",
    type=click.IntRange(min=0),
    default=1,
    show_default=True,
    help="Send the TEXTs N times; 0 goes on until Ctrl-C.",
)
@click.option("--interval", metavar="SECONDS", type=Seconds(), default=0, help="Time between two messages.")
@click.option("--header", "given", metavar="NAME=VALUE", multiple=True, help="Of each message; may be given again.")
@bus_options
@json_option
def command(
    topic: str,
    texts: tuple[str, ...],
    transport: str | None,
    wait_receivers: int,
    timeout: float,
    repeat: int,
    interval: float,
    given: tuple[str, ...],
    domain: str,
    config: str | None,
    as_json: bool,
) -> None:
    """Sends each TEXT as a message of TOPIC; without TEXT, each line of stdin.

    \b
    Examples:
      ipcbus pub greetings "good morning" "good night"
      tail -F access.log | ipcbus pub access
      ipcbus pub beat tick --repeat 0 --interval 1
      ipcbus pub alarms fire --wait-receivers 3 --timeout 60
      ipcbus pub orders buy --header key=AAPL
    """
    sent = Sent(_headers(given))
    with SignalHandler() as stopper, ipcbus.Context(config, domain=domain) as context:
        source = context.source(topic, **source_options(transport))
        try:
            with stopper.allowed():
                source.wait_for_receivers(wait_receivers, timeout)
                sent.send_all(source, _messages(texts, repeat), interval, stopper)
                source.close()  # here, where a signal may end its wait for receivers that are about to join
        except Stopped:
            _report(source, sent, as_json)
            raise
        _report(source, sent, as_json)


class Sent:
    """What was sent so far; stays right when a signal cuts the sending short."""

    def __init__(self, headers: list[tuple[str, bytes]]) -> None:
        """Nothing yet; each message will have these headers."""
        self._headers = headers
        self.messages = self.bytes = 0
        self._begin = time.monotonic()

    @property
    def seconds(self) -> float:
        """Time since the sending began."""
        return time.monotonic() - self._begin

    def send_all(
        self, source: ipcbus.Source, messages: Iterable[bytes], interval: float, stopper: SignalHandler
    ) -> None:
        """Sends messages, one each interval; without one as fast as they come."""
        self._begin = time.monotonic()
        for message in messages:
            if interval and self.messages:
                stopper.wait(interval)
            source.send(message, headers=self._headers, flush=bool(interval))
            self.messages += 1
            self.bytes += len(message)


def _headers(given: tuple[str, ...]) -> list[tuple[str, bytes]]:
    """What --header says.

    Raises:
        Misuse: one is no header, or all are too long.
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


def _messages(texts: tuple[str, ...], repeat: int) -> Iterator[bytes]:
    if not texts:
        # What is no UTF-8 goes through unchanged, so the bytes are read, not the text.
        yield from (line.removesuffix(b"\n") for line in sys.stdin.buffer)
        return
    rounds = itertools.repeat(texts, repeat) if repeat else itertools.repeat(texts)
    for text in itertools.chain.from_iterable(rounds):
        yield text.encode(errors="surrogateescape")


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
