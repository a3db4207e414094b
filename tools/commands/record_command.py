"""`ipcbus record`: writes the messages of topics into an archive."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

import ipcbus
from ipcbus_tools.common import (
    Seconds,
    as_size,
    bus_options,
    duration,
    json_option,
    notes,
    number,
    output,
    plural,
    print_json,
    safe,
    size,
)
from ipcbus_tools.completion import candidates
from ipcbus_tools.signals import SignalHandler, Stopped

if TYPE_CHECKING:
    from ipcbus.archive import Limits
    from ipcbus.archive.recorder import Recorder, RecorderStats

_REPORTED: Final = (
    *("next_offset", "messages", "bytes", "losses", "lost", "dropped", "too_large", "missed", "unwritten"),
    *("errors", "error"),
)
_POLL_S: Final = 0.1
_MAX_H: Final = 24 * 366 * 100


@click.command("record")
@click.argument("topics", metavar="TOPIC...", nargs=-1, required=True, shell_complete=candidates.topics)
@click.option("--pattern", is_flag=True, help="Read every TOPIC as a regular expression; record later topics too.")
@click.option(
    "--to",
    "directory",
    metavar="DIR",
    required=True,
    type=click.Path(path_type=Path),
    help="Write into the archive DIR; make it if it does not exist.",
)
@click.option("--stream", metavar="NAME", help="Write the log NAME of the archive (default: this host's name).")
@click.option(
    "--buffer",
    metavar="SIZE",
    callback=as_size,
    default="64M",
    help="Memory for messages that wait for the disk, in bytes.",
)
@click.option("--lossless", is_flag=True, help="When the buffer is full, let sources wait instead of losing messages.")
@click.option(
    "--segment-bytes", metavar="SIZE", callback=as_size, help="Start a new segment at this size (default 256M)."
)
@click.option("--segment-seconds", type=Seconds(), help="Start a new segment at this age (default 3600 s).")
@click.option(
    "--retain-bytes",
    metavar="SIZE",
    callback=as_size,
    help="Remove the oldest segments above this size (default: never).",
)
@click.option(
    "--retain-hours", metavar="HOURS", type=Seconds(0, _MAX_H), help="Remove segments older than this (default: never)."
)
@click.option(
    "--sync",
    type=click.Choice(["interval", "always", "never"]),
    default="interval",
    help="When rows are forced to the disk: each second (interval), before readers see them (always), or when the "
    "system decides (never).",
)
@click.option("--seconds", type=Seconds(), help="End after SECONDS (default: never).")
@click.option(
    "--messages", metavar="N", type=click.IntRange(min=1), help="End after N messages or more (default: never)."
)
@bus_options
@json_option
def command(
    topics: tuple[str, ...],
    directory: Path,
    stream: str | None,
    pattern: bool,
    buffer: int,
    lossless: bool,
    seconds: float | None,
    messages: int | None,
    domain: str,
    config: str | None,
    as_json: bool,
    **limits: Any,  # noqa: ANN401 - as Limits takes them
) -> None:
    """Writes the messages of each TOPIC into an archive, until Ctrl-C.

    Without --lossless the recorder does not stop the bus: when its buffer is full, it does not record a message, but
    records the loss with the number of the message, as it does for losses that the bus reports. 'ipcbus top' shows a
    recorder that falls behind. A recorder that was killed continues its log when it starts again with the same --to and
    --stream.

    \b
    Examples:
      ipcbus record quotes.AAPL quotes.MSFT --to archive
      ipcbus record 'quotes\\..*' --pattern --to archive --retain-bytes 20G --retain-hours 48
      ipcbus record orders --to archive --lossless --sync always
      ipcbus record ticks --to archive --seconds 60 --json
    """
    from ipcbus.archive import Archive, Recorder

    with SignalHandler() as signals, ipcbus.Context(config, domain=domain, name="ipcbus record") as context:
        recorder = Recorder(
            context,
            Archive.create(directory),
            topics,
            pattern=pattern,
            stream=stream,
            buffer_bytes=buffer,
            when_full="wait" if lossless else "drop",
            limits=_limits(**limits),
        )
        run = Run(recorder, directory, seconds, messages)
        run.begin()
        try:
            with signals.interruptible():
                run.watch(signals)
        except Stopped:
            run.end(as_json)
            raise
        run.end(as_json)


def _limits(*, retain_hours: float | None, **limits: Any) -> Limits:  # noqa: ANN401 - as Limits takes them
    from ipcbus.archive import Limits

    limits["retain_seconds"] = None if retain_hours is None else retain_hours * 3600
    return Limits(**{name: value for name, value in limits.items() if value is not None})


class Run:
    """One run of a recorder, with its progress and its report."""

    def __init__(self, recorder: Recorder, directory: Path, seconds: float | None, messages: int | None) -> None:
        """Prepares a run that ends after these seconds or messages; None means no limit."""
        self._recorder, self._directory, self._limit_s, self._limit = recorder, directory, seconds, messages
        self._begin = time.monotonic()
        self._first_offset = 0

    def begin(self) -> None:
        """Starts the recorder."""
        self._recorder.start()
        self._begin = time.monotonic()
        self._first_offset = self._recorder.stats.next_offset
        where = f"into {self._directory}, stream {self._recorder.stream}, from offset {self._first_offset}"
        notes().print(safe(f"recording {where}; Ctrl-C ends it"), soft_wrap=True)

    def watch(self, signals: SignalHandler) -> None:
        """Shows the progress; returns when a limit is reached."""
        recorder, console = self._recorder, notes()
        with console.status("") as line:
            before, then = recorder.stats, self._begin
            while True:
                remaining = _POLL_S if self._limit_s is None else self._begin + self._limit_s - time.monotonic()
                signals.wait(min(remaining, _POLL_S))
                found, now = recorder.stats, time.monotonic()
                if console.is_terminal:
                    line.update(safe(progress_line(found, (found.messages - before.messages) / max(now - then, 1e-9))))
                before, then = found, now
                if remaining <= 0 or (self._limit is not None and found.messages >= self._limit):
                    return

    def end(self, as_json: bool) -> None:
        """Stops the recorder and prints what it has recorded."""
        seconds = time.monotonic() - self._begin
        try:
            self._recorder.stop()
        finally:
            self._report(self._recorder.stats, seconds, as_json)

    def _report(self, found: RecorderStats, seconds: float, as_json: bool) -> None:
        stream = self._recorder.stream
        if as_json:
            where = {"archive": str(self._directory), "stream": stream, "first_offset": self._first_offset}
            counts = {name: getattr(found, name) for name in _REPORTED}
            print_json({**where, **counts, "seconds": round(seconds, 6)})
            return
        console = output()
        rate = number(found.messages / seconds) if seconds else "0"
        text = (
            f"{plural(found.messages, 'message')}, {size(found.bytes)} in {seconds:.2f} s: {rate} msg/s; "
            f"{offsets(self._first_offset, found.next_offset)} of stream {stream} in {self._directory}"
        )
        console.print(safe(text), soft_wrap=True)
        for text in not_recorded(found):
            console.print(safe(text), highlight=False, soft_wrap=True)


def offsets(first: int, end: int) -> str:
    """Returns the offsets `first` up to `end`, which is left out, as 'ipcbus archive info' shows them."""
    return f"offsets {first}-{end - 1}" if end > first else "no offsets"


def progress_line(found: RecorderStats, rate: float) -> str:
    """Returns the state of a recorder in one line."""
    fill = found.buffered_bytes / found.buffer_bytes
    text = f"{number(found.messages)} messages  {size(found.bytes)}  {number(rate)} msg/s  buffer {fill:.0%}"
    if found.behind_ns > 1_000_000_000:
        text += f"  behind {duration(found.behind_ns)}"
    for count, what in ((found.lost, "lost"), (found.dropped, "dropped"), (found.missed, "missed")):
        text += f"  {what} {number(count)}" if count else ""
    return f"{text}  {found.error}" if found.error else text


def not_recorded(found: RecorderStats) -> list[str]:
    """Returns what is not in the archive, and why; except for unwritten rows, the archive has the numbers."""
    lines = [
        f"{plural(count, 'sequence number')} {what}"
        for count, what in (
            (found.lost, f"lost on the bus, in {plural(found.losses, 'event')}"),
            (found.dropped - found.too_large, "not recorded because the buffer was full: raise --buffer"),
            (found.too_large, "not recorded because their messages are longer than a segment"),
            (found.missed, "sent while the recorder did not run"),
            (found.unwritten, f"not written: {found.error}"),
        )
        if count
    ]
    if found.error and not found.unwritten:
        lines.append(f"the disk refuses: {found.error}")
    return lines or ["nothing lost"]
