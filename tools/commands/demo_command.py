"""`ipcbus demo`: shows the bus at work in a few seconds, without any file."""

from __future__ import annotations

import io
import secrets
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

import ipcbus
from ipcbus_tools.common import (
    Failure,
    Seconds,
    config_option,
    domain_option,
    json_option,
    notes,
    number,
    output,
    print_json,
)
from ipcbus_tools.demo import demo_balance, demo_report, market
from ipcbus_tools.demo.demo_receivers import DemoReceivers
from ipcbus_tools.render.text_tables import show_table
from ipcbus_tools.signals import SignalHandler

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console
    from rich.progress import Progress, TaskID

    from ipcbus.stats import Percentiles, SessionStats, SlotStats

    Latencies = dict[tuple[str, int], Percentiles | None]
    Rates = dict[tuple[str, int], float]

RECEIVERS: Final = 3
TRANSPORTS: Final = {"LBT-IPC": "lbtipc", "LBT-SMX": "lbtsmx"}
SESSION_ID: Final = 1
PACE: Final = 2000
"""Messages a second while latency is measured."""
PACED_SHARE: Final = 0.3
"""Share of the time at that pace; the rest is at full speed."""
MARKET_PACE: Final = 20_000
"""Messages a second while the market is recorded."""
MARKET_SHARE: Final = 0.5
"""Duration of the recording as a share of the time; it comes in addition."""
_MARKET_STEP_S: Final = 0.01

_PAYLOADS: Final = [b'{"symbol":"DEMO","bid":%07d,"ask":%07d,"n":%08d }' % (i, i + 5, i) for i in range(500)]
_TELEMETRY_S = 0.5
_START_S = 30.0
_STALL_S = 10.0
_POLL_S = 0.005


_PICTURE_WIDTH = 84


def _show_result(console: Console, entries: list[demo_balance.BalanceEntry]) -> None:
    for name in TRANSPORTS:
        show_table(console, name, demo_balance.rows([entry for entry in entries if entry.transport == name]))
    console.print(
        f"latency (p50, p99, p99.9) at {number(PACE)} msg/s, msg/s at full speed", style="dim", highlight=False
    )
    console.print(demo_balance.verdict(entries), style="bold", highlight=False, soft_wrap=True)


@click.command("demo")
@click.option("--seconds", type=Seconds(0.1, 3600), default=6, help="Send for this many seconds.")
@click.option(
    "--messages",
    type=click.IntRange(1),
    metavar="N",
    help="Send N messages at full speed on each transport, not for --seconds.",
)
@domain_option("Work in this domain (default: a new domain that no other process uses).")
@config_option
@click.option(
    "--report",
    "directory",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Record a made-up market too, and let Spark write a report on it into DIR.",
)
@click.option(
    "--svg", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="Draw the table into FILE."
)
@json_option
def command(
    seconds: float,
    messages: int | None,
    domain: str | None,
    config: str | None,
    directory: Path | None,
    svg: Path | None,
    as_json: bool,
) -> None:
    """Shows the bus at work, and accounts for every message.

    The demo sends telemetry of this host and a made-up feed over two transports to three receiving processes. On each
    transport it first sends at a steady pace, which shows the latency, and then at full speed, which shows the
    throughput. At the end sent = received + lost for every receiver, or the exit code is 1. With --report the demo also
    records a market, and Spark makes a report of the recording.

    \b
    Examples:
      ipcbus demo
      ipcbus demo --report demo
      ipcbus demo --seconds 60
      ipcbus demo --messages 1000000 --json
    """
    domain = domain or f"demo{secrets.token_hex(2)}"
    archive = directory / "archive" if directory else None
    if archive is not None and archive.exists():
        raise Failure(f"{archive} exists already, from an earlier run; remove it, or give another directory")
    with SignalHandler() as signals, ipcbus.Context(config, name="demo", domain=domain) as context:
        show = DemoSources(context, signals, config, archive)
        names = [f"receiver {i + 1}" for i in range(RECEIVERS)]
        with (
            DemoReceivers(names, show.topics, domain, config) as receivers,
            signals.interruptible(),
            _progress() as progress,
        ):
            entries, spent = show.run(receivers, seconds, messages, progress)
    if as_json:
        print_json(demo_balance.facts(entries, spent) | ({"recorded": show.recorded} if archive else {}))
    else:
        _show_result(output(), entries)
    if svg is not None:
        from rich.console import Console

        picture = Console(record=True, width=_PICTURE_WIDTH, file=io.StringIO())
        picture.print("[bold]$ ipcbus demo[/bold]")
        _show_result(picture, entries)
        picture.save_svg(str(svg), title="ipcbus demo", unique_id="ipcbus-demo")
    if not all(entry.balances for entry in entries):
        raise Failure(demo_balance.verdict(entries))
    if archive is not None and directory is not None:
        if reason := demo_report.no_spark():
            click.echo(f"no report of the recording in {archive}: {reason}", err=True)
        else:
            demo_report.report(archive, directory)


class DemoSources:
    """The sources of the demo, and what they send."""

    def __init__(
        self, context: ipcbus.Context, signals: SignalHandler, config: str | None, archive: Path | None
    ) -> None:
        """Makes the sources; those of one transport share one session.

        Args:
            context: the context that sends.
            signals: catches the signals that end the demo early.
            config: path of a file of options for the processes that the demo starts, or None.
            archive: directory for the recording of a market; None for no market.
        """
        from ipcbus_tools.demo import telemetry

        self._domain, self._config, self._archive = context.domain, config, archive
        self._signals = signals
        self.recorded: dict[str, Any] = {}
        self._feeds = {}
        self._telemetry: list[ipcbus.Source] = []
        self._market: dict[str, ipcbus.Source] = {}
        market_topics = market.TOPICS if archive else []
        for place, (name, option) in enumerate(TRANSPORTS.items()):
            # Ids of the default pools; without them each topic would get a session of its own.
            session: dict[str, Any] = {
                "transport": option,
                f"transport_{option}_id": 20001 if option == "lbtipc" else 30001,
            }
            self._feeds[name] = context.source(f"demo.{option}", **session)
            self._telemetry += [context.source(topic, **session) for topic in telemetry.TOPICS]
            share = market_topics[place * len(market_topics) // 2 : (place + 1) * len(market_topics) // 2]
            self._market |= {topic: context.source(topic, **session) for topic in share}
        self.topics = [f"demo.{option}" for option in TRANSPORTS.values()] + [*telemetry.TOPICS, *market_topics]
        self._next_telemetry = 0.0

    def run(
        self, receivers: DemoReceivers, seconds: float, messages: int | None, progress: Progress
    ) -> tuple[list[demo_balance.BalanceEntry], float]:
        """Sends everything, waits until it is read, and returns the account and the seconds that it took."""
        self._wait_for_receivers(receivers)
        begin = time.monotonic()
        each = seconds / len(TRANSPORTS)
        latencies: Latencies = {}
        rates: Rates = {}
        for name, source in self._feeds.items():
            bar = Bar(progress, name, each)
            self._paced(source, each * PACED_SHARE, receivers, bar)
            paced = self._wait_until_read(name, receivers)
            latencies |= {(name, pid): slot.latency.percentiles() for pid, (slot, _) in paced.items()}
            started = time.monotonic()
            self._full_speed(source, each * (1 - PACED_SHARE), messages, receivers, bar)
            for pid, (slot, ended) in self._wait_until_read(name, receivers).items():
                received = slot.counters["lbm_msgs_rcved"] - paced[pid][0].counters["lbm_msgs_rcved"]
                rates[name, pid] = received / (ended - started)
            bar.finish(source.sequence_number + 1)
        if self._archive is not None:
            self._record(self._archive, seconds * MARKET_SHARE, receivers, progress)
        for name in self._feeds:
            self._wait_until_read(name, receivers)  # telemetry was sent meanwhile
        return self._account(receivers, latencies, rates), time.monotonic() - begin

    def _account(self, receivers: DemoReceivers, latencies: Latencies, rates: Rates) -> list[demo_balance.BalanceEntry]:
        taken = {name: (self._session(name), self._slots(name)) for name in self._feeds}
        counts = receivers.counts()
        entries = []
        for name, (session, slots) in taken.items():
            for slot in slots:
                receiver = next((name for name, each in receivers.processes.items() if each.pid == slot.pid), None)
                if receiver is None or session is None:
                    continue  # another process that receives in this domain
                entries.append(
                    demo_balance.BalanceEntry(
                        receiver=receiver,
                        pid=slot.pid,
                        transport=name,
                        sent=session.counters["lbm_msgs_sent"],
                        received=counts[receiver].get(session.source, 0),
                        lost=slot.counters["lost"],
                        msgs_per_second=rates[name, slot.pid],
                        latency=latencies[name, slot.pid],
                    )
                )
        return sorted(entries, key=lambda entry: (entry.receiver, entry.transport))

    def _record(self, archive: Path, seconds: float, receivers: DemoReceivers, progress: Progress) -> None:
        """Sends the market while a recorder writes it."""
        from ipcbus_tools.demo import telemetry

        topics = [*self._market, *telemetry.TOPICS]
        with demo_report.Recording(archive, topics, self._domain, self._config) as recording:
            self._wait_until_joined([*self._market.values(), *self._telemetry], RECEIVERS + 1, recording)
            made, bar, sent = market.Market(), Bar(progress, "recorded", seconds), 0
            begin = time.monotonic()
            while (passed := time.monotonic() - begin) < seconds:
                while sent < passed * MARKET_PACE:
                    topic, message = made.next()
                    self._market[topic].send(message)
                    sent += 1
                self._send_telemetry(receivers)
                bar.show(sent)
                self._signals.wait(_MARKET_STEP_S)
            for source in self._market.values():
                source.flush()
            for name in self._feeds:
                self._wait_until_read(name, receivers, recording.pid)
            bar.finish(sent)
            self.recorded = recording.end()

    def _wait_for_receivers(self, receivers: DemoReceivers) -> None:
        self._wait_until_joined([*self._feeds.values(), *self._telemetry, *self._market.values()], RECEIVERS, receivers)

    def _wait_until_joined(
        self, sources: list[ipcbus.Source], receivers: int, others: DemoReceivers | demo_report.Recording
    ) -> None:
        deadline = time.monotonic() + _START_S
        for source in sources:
            while source.receivers < receivers:
                others.check()
                if time.monotonic() > deadline:
                    raise Failure(
                        f"the receiving processes have not joined after {_START_S:.0f} s; look with 'ipcbus list'"
                    )
                self._signals.wait(_POLL_S)

    def _paced(self, source: ipcbus.Source, seconds: float, receivers: DemoReceivers, bar: Bar) -> None:
        begin = time.monotonic()
        for index in range(int(seconds * PACE)):
            early = begin + index / PACE - time.monotonic()
            if early > 0:
                self._send_telemetry(receivers)
                self._signals.wait(early)
            source.send(_PAYLOADS[index % len(_PAYLOADS)], flush=True)
            bar.show(source.sequence_number + 1)

    def _full_speed(
        self, source: ipcbus.Source, seconds: float, messages: int | None, receivers: DemoReceivers, bar: Bar
    ) -> None:
        """Sends at full speed, for a time or a number of messages."""
        send = source.send
        for batch in _batches(seconds, messages):
            for payload in batch:
                send(payload)
            self._send_telemetry(receivers)
            bar.show(source.sequence_number + 1)
        source.flush()

    def _send_telemetry(self, receivers: DemoReceivers) -> None:
        """Sends the telemetry of the host when it is due; looks then whether all receivers still run."""
        now = time.monotonic()
        if now < self._next_telemetry:
            return
        from ipcbus_tools.demo import telemetry

        self._next_telemetry = now + _TELEMETRY_S
        receivers.check()
        messages = {topic: telemetry.message(topic) for topic in telemetry.TOPICS}
        for source in self._telemetry:
            source.send(messages[source.topic], flush=True)

    def _session(self, transport: str) -> SessionStats | None:
        from ipcbus import stats

        return stats.take_snapshot(self._domain).session(self._feeds[transport].source)

    def _slots(self, transport: str) -> tuple[SlotStats, ...]:
        session = self._session(transport)
        return session.receivers if session else ()

    def _wait_until_read(
        self, transport: str, receivers: DemoReceivers, *more: int
    ) -> dict[int, tuple[SlotStats, float]]:
        """Waits until every receiver has read all of a transport; returns each slot by pid, and when it was done.

        Args:
            transport: name of the transport, as in the source string.
            receivers: the receiving processes.
            more: pids of further processes to wait for.
        """
        pids = {*(process.pid for process in receivers.processes.values()), *more}
        ended: dict[int, tuple[SlotStats, float]] = {}
        best, patience = -1, time.monotonic() + _STALL_S
        while len(ended) < len(pids):
            now = time.monotonic()
            slots = [slot for slot in self._slots(transport) if slot.pid in pids]
            for slot in slots:
                if slot.lag == 0:
                    ended.setdefault(slot.pid, (slot, now))
            if (read := sum(slot.position for slot in slots)) > best:
                best, patience = read, now + _STALL_S
            receivers.check()
            if now > patience:
                raise Failure(f"a receiver has read nothing for {_STALL_S:.0f} s; is it stopped? Run the demo again")
            self._signals.wait(_POLL_S)
        return ended


def _batches(seconds: float, messages: int | None) -> Iterator[list[bytes]]:
    """Yields lists of payloads for this many seconds, or with this many messages in all."""
    if messages is None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            yield _PAYLOADS
        return
    for remaining in range(messages, 0, -len(_PAYLOADS)):
        yield _PAYLOADS[:remaining]


class Bar:
    """A line of progress: the bar shows the time, the text behind it the messages."""

    def __init__(self, progress: Progress, name: str, seconds: float) -> None:
        self._progress, self._seconds = progress, seconds
        self._begin = self._shown = time.monotonic()
        self._task: TaskID = progress.add_task(name, total=seconds, sent="")

    def show(self, sent: int) -> None:
        """Updates the line, ten times a second at most."""
        now = time.monotonic()
        if now - self._shown > 0.1:
            self._shown = now
            passed = min(now - self._begin, self._seconds)
            self._progress.update(self._task, completed=passed, sent=f"{number(sent)} messages")

    def finish(self, sent: int) -> None:
        """Fills the bar."""
        self._progress.update(self._task, completed=self._seconds, sent=f"{number(sent)} messages")


def _progress() -> Progress:
    from rich.progress import BarColumn, Progress, TextColumn

    columns = (TextColumn("{task.description}", "bold"), BarColumn(40), TextColumn("{task.fields[sent]}"))
    console = notes()
    if not console.is_terminal:
        click.echo("sending to three processes over two transports ...", err=True)
    return Progress(*columns, console=console, disable=not sys.stderr.isatty())
