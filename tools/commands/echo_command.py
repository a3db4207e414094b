"""`ipcbus echo`: prints the messages of a topic."""

from __future__ import annotations

import contextlib
import json
import sys
from typing import TYPE_CHECKING, NotRequired, TypedDict

import click

import ipcbus
from ipcbus import MessageType
from ipcbus_tools.common import Failure, Misuse, Seconds, bus_options, clock_time, json_option, safe, visible
from ipcbus_tools.completion import candidates
from ipcbus_tools.render.message_format import data_of_fields, headers, message_format, pretty
from ipcbus_tools.signals import SignalHandler

if TYPE_CHECKING:
    from collections.abc import Callable

    from ipcbus import Context, Message, Receiver
    from ipcbus_tools.render.message_format import ShowData

_MANY = 1024
_HEX_ROW = 16
SOON_S = 1.0
"""Seconds without a message, after which people may wonder whether they wait for the right topic."""
_WITH_DATA = (MessageType.DATA, MessageType.REQUEST)


class EchoHeader(TypedDict):
    """A header of a message.

    Attributes:
        key: the header's name.
        data: the header's value as text, if it is UTF-8 and --hex was not given.
        hex: the header's value in hexadecimal, if there is no `data`.
    """

    key: str
    data: NotRequired[str]
    hex: NotRequired[str]


class EchoLine(TypedDict):
    """A message or an event of a receiver.

    Attributes:
        type: `DATA` for a message, `REQUEST` for a request, else the name of the event.
        topic: the topic.
        source: source string of the session that the message came from.
        sequence_number: the number of the message on the topic; the last number of a loss; negative without a number.
        first_sequence_number: the first number of a loss or of a message in fragments.
        flags: as in `Message.flags`.
        send_time_ns: the time of sending, ns since the epoch.
        headers: the headers of a message in their order, if it has any.
        length: bytes of the payload; only for messages.
        data: the payload as text, if it is UTF-8 and --hex was not given.
        hex: the payload in hexadecimal, if there is no `data`.
    """

    type: str
    topic: str
    source: str
    sequence_number: int
    first_sequence_number: int
    flags: int
    send_time_ns: int
    headers: NotRequired[tuple[EchoHeader, ...]]
    length: NotRequired[int]
    data: NotRequired[str]
    hex: NotRequired[str]


@click.command("echo")
@click.argument("topic", shell_complete=candidates.topics)
@click.option("-n", "--count", metavar="N", type=click.IntRange(min=1), help="End after N messages (default: never).")
@click.option(
    "--last",
    is_flag=True,
    help="With -n: begin with the last N messages that the sources keep (option late_join).",
)
@click.option("--pattern", is_flag=True, help="TOPIC is a regular expression that has to match whole topics.")
@click.option("--hex", "as_hex", is_flag=True, help="Print payloads in hexadecimal.")
@click.option("--pretty", "as_pretty", is_flag=True, help="Print payloads of JSON with a line for each value.")
@click.option(
    "--fields",
    metavar="FIELDS",
    help="Print payloads as fields, such as 'price:d,count:I' (letters of Python's struct).",
)
@click.option(
    "--format",
    "form",
    metavar="FORMAT",
    help="Print each message as FORMAT says, such as '%t %s %d': %t topic, %s sequence number, %d data, %x data in "
    "hexadecimal, %l its length, %T time of sending, %N that in ns, %S source, %k type, %h headers, %%. No events.",
)
@click.option("--no-events", is_flag=True, help="Print messages only; lost messages are still logged on stderr.")
@click.option("--timeout", type=Seconds(), help="Give up after SECONDS without a message (default: never).")
@bus_options
@json_option
def command(
    topic: str,
    count: int | None,
    last: bool,
    pattern: bool,
    as_hex: bool,
    as_pretty: bool,
    fields: str | None,
    form: str | None,
    no_events: bool,
    timeout: float | None,
    domain: str,
    config: str | None,
    as_json: bool,
) -> None:
    """Prints the messages and events of TOPIC until Ctrl-C; its sources may start later.

    A message is a line: sequence number, time of sending, headers in brackets if there are any, payload; a request is
    marked. An event is a line with its name. With --json each is an object; the payload is in "data" if it is UTF-8,
    else (or with --hex) in "hex". With --pattern each line has the topic, too.

    \b
    Examples:
      ipcbus echo greetings
      ipcbus echo orders -n 1 --timeout 5       exit code 1 when no message came
      ipcbus echo ticks --json | jq .data
      ipcbus echo 'quotes\\..*' --pattern --format '%t %s %d'
      ipcbus echo ticks -n 10 --last            the last ten messages that were sent
      ipcbus echo ticks --fields price:d,count:I
    """
    if last and count is None:
        raise Misuse("--last begins with the last N messages, and -n says how many; give -n N, too")
    ways = {"--hex": as_hex, "--pretty": as_pretty, "--fields": fields, "--json": as_json and not as_hex}
    given = [name for name, value in ways.items() if value]
    given += ["--format"] if as_json and form is not None else []
    if len(given) > 1:
        raise Misuse(f"{', '.join(given)}: these options exclude each other; give one of them")
    data = data_of_fields(fields) if fields is not None else pretty if as_pretty else None
    if form is not None:
        show = message_format(form, bytes.hex if as_hex else data or visible)
    else:
        show = _as_json(as_hex) if as_json else _as_line(as_hex, data or visible, pattern)
    with SignalHandler() as signals, ipcbus.Context(config, domain=domain) as context:
        receiver = _receiver(context, topic, pattern, count if last else None, not no_events and form is None)
        with signals.interruptible():
            seen = _print_all(receiver, show, count, timeout, None if as_json else _say_that_nothing_comes(domain))
    if seen == 0 or (count is not None and seen < count):
        of_count = f" of {count}" if count else ""
        raise Failure(
            f"topic {topic!r}: {seen}{of_count} messages came, then no message for {timeout} s; check the name and the "
            "domain with 'ipcbus list', or wait longer"
        )


def _receiver(context: Context, topic: str, pattern: bool, history: int | None, events: bool) -> Receiver:
    if pattern:
        return context.wildcard_receiver(topic, events=events, history=history)
    return context.receiver(topic, events=events, history=history)


def _say_that_nothing_comes(domain: str) -> Callable[[Receiver], None]:
    def say(receiver: Receiver) -> None:
        of = "topics that match" if isinstance(receiver, ipcbus.WildcardReceiver) else "topic"
        found = "its sources have sent no message yet" if receiver.sessions else "there is no source yet"
        click.echo(
            f"listening on {of} {receiver.topic!r} in domain {domain!r}: {found}; 'ipcbus list' shows what is there",
            err=True,
        )

    return say


def _print_all(
    receiver: Receiver,
    show: Callable[[Message], str],
    count: int | None,
    timeout: float | None,
    say: Callable[[Receiver], None] | None,
) -> int:
    """Prints until the count is reached or the time is over; returns the number of messages.

    Args:
        receiver: gets the messages.
        show: makes the text of a message.
        count: the number of messages; None without a limit.
        timeout: seconds to wait for the next message; None waits for ever.
        say: is called once if no message comes for a while at the beginning; None to say nothing.
    """
    seen = 0
    while count is None or seen < count:
        limit = _MANY if count is None else min(_MANY, count - seen)
        if say is None or (timeout is not None and timeout <= SOON_S):
            messages = receiver.receive_many(limit, timeout)
        elif not (messages := receiver.receive_many(limit, SOON_S)):
            say(receiver)
            messages = receiver.receive_many(limit, None if timeout is None else timeout - SOON_S)
        say = None
        if not messages:
            break
        seen += sum(message.type in _WITH_DATA for message in messages)
        sys.stdout.write("".join(show(message) + "\n" for message in messages))
        sys.stdout.flush()
    return seen


def _as_json(as_hex: bool) -> Callable[[Message], str]:
    def show(message: Message) -> str:
        found: EchoLine = {
            "type": message.type.name,
            "topic": message.topic,
            "source": message.source,
            "sequence_number": message.sequence_number,
            "first_sequence_number": message.first_sequence_number,
            "flags": message.flags,
            "send_time_ns": message.send_time_ns,
        }
        if message.type in _WITH_DATA:
            if message.headers:
                found["headers"] = tuple(
                    {"key": key, **_bytes(value, as_hex)}  # type: ignore[typeddict-item]
                    for key, value in message.headers
                )
            found["length"] = len(message)
            found |= _bytes(message.data, as_hex)  # type: ignore[typeddict-item]
        return json.dumps(found)

    return show


def _bytes(data: bytes, as_hex: bool) -> dict[str, str]:
    """Returns bytes as text if they are UTF-8 and --hex was not given, else in hexadecimal."""
    with contextlib.suppress(UnicodeDecodeError):
        if not as_hex:
            return {"data": data.decode()}
    return {"hex": data.hex()}


def _as_line(as_hex: bool, data: ShowData = visible, with_topic: bool = False) -> Callable[[Message], str]:
    def show(message: Message) -> str:
        if message.type not in _WITH_DATA:
            return _event(message)
        kind = "(request) " if message.type == MessageType.REQUEST else ""
        topic = f"{safe(message.topic).plain}  " if with_topic else ""
        head = f"{message.sequence_number:>8}  {clock_time(message.send_time_ns)}  {topic}{kind}{_headers(message)}"
        if not as_hex:
            return head + data(message.data)
        return head + f"{len(message)} bytes" + "".join(f"\n{row}" for row in _hex_rows(message.data))

    return show


def _headers(message: Message) -> str:
    return f"[{headers(message)}]  " if message.headers else ""


def _event(message: Message) -> str:
    first, last = message.first_sequence_number, message.sequence_number
    numbers = f"  {first} to {last}, {last - first + 1} lost" if last >= 0 else ""
    return safe(f"-- {message.type.name}  {message.topic}  {message.source}{numbers}").plain


def _hex_rows(data: bytes) -> list[str]:
    rows = (data[at : at + _HEX_ROW] for at in range(0, len(data), _HEX_ROW))
    return [
        f"    {index * _HEX_ROW:06x}  {row.hex(' '):<{3 * _HEX_ROW}} "
        + "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        for index, row in enumerate(rows)
    ]
