"""What it costs to look: `python -m benchmarks.observe`.

The publisher sends 64-byte messages on a source-paced LBT-IPC session without receivers, pinned to one processor. The
observer is `ipcbus top` in a terminal of its own on another one. A round is four windows, the observer stopped
(SIGSTOP), running, running, stopped: a drift of the machine falls on both. The two windows with it stopped, compared
with each other, say how much of a difference is chance. Rounds in which others took the publisher's processor are left
out.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import io
import itertools
import json
import os
import pty
import secrets
import signal
import statistics
import struct
import subprocess
import sys
import termios
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from benchmarks.__main__ import machine
from benchmarks.observed import Own, Publisher, crowd
from ipcbus import stats
from ipcbus.stats import DomainSnapshot
from ipcbus_tools.top import host
from ipcbus_tools.top.live_view import LiveFrames
from ipcbus_tools.top.screen import Size, screen
from ipcbus_tools.top.view import View

if TYPE_CHECKING:
    from collections.abc import Iterator

Figures = dict[str, Any]

_SETTLE_S = 0.3
"""After the observer was stopped or continued this time is left out of the window."""

_DISTURBED = 0.002
"""A publisher that waited for its processor for a larger share of a window was disturbed by others, not observed."""

_SESSIONS, _CONTEXTS, _PROCESSES = 200, 64, 8
_WIDE = Size(200, 50)


def main() -> int:
    """Measures, prints, writes JSON if asked."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.observe", description=__doc__)
    parser.add_argument("--rounds", type=int, default=20, help="rounds of four windows (default 20)")
    parser.add_argument("--window", type=float, default=1.0, help="seconds of a window (default 1)")
    parser.add_argument("--interval", type=float, default=0.1, help="of the observer (default 0.1)")
    parser.add_argument("--only", default="", help="figures of which the name contains this text: cost, rate, size")
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    arguments = parser.parse_args()
    processors = sorted(os.sched_getaffinity(0))
    if len(processors) < 2:
        print("two processors are needed: one for the publisher, one for the observer", file=sys.stderr)
        return 2
    report: Figures = {"machine": machine("benchmarks.observe")}
    publisher, observer = processors[:2]
    if arguments.only in "cost":
        os.sched_setaffinity(0, {observer})
        report["cost"] = cost(arguments.rounds, arguments.window, arguments.interval, publisher, observer)
    if arguments.only in "rate":
        os.sched_setaffinity(0, {observer})
        report["rate"] = rate(publisher)
    if arguments.only in "size":
        os.sched_setaffinity(0, processors)
        report["size"] = size()
    _print(report)
    if arguments.json:
        arguments.json.write_text(json.dumps(report, indent=2) + "\n")
    return 0


# ---------------------------------------------------------------------- what it costs the publisher


@contextlib.contextmanager
def top(domain: str, interval: float) -> Iterator[int]:
    """`ipcbus top` in a terminal that somebody reads; its pid."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", _WIDE.height, _WIDE.width, 0, 0))
    command = [sys.executable, "-m", "ipcbus_tools", "top", "--domain", domain, "--interval", str(interval)]
    shown = threading.Event()
    with subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, env={**os.environ, "TERM": "xterm"}
    ) as it:
        os.close(theirs)

        def read() -> None:
            with contextlib.suppress(OSError):
                while data := os.read(ours, 1 << 16):
                    if b"speed" in data:
                        shown.set()

        reader = threading.Thread(target=read)
        reader.start()
        try:
            if not shown.wait(30):
                raise RuntimeError("ipcbus top did not show the topic of the publisher within 30 s")
            yield it.pid
        finally:
            it.send_signal(signal.SIGCONT)
            it.terminate()
            it.wait()
            reader.join()
            os.close(ours)


def cost(rounds: int, window: float, interval: float, publisher_cpu: int, observer_cpu: int) -> Figures:
    """What the publisher loses while it is looked at, in percent."""
    domain = f"b{secrets.token_hex(3)}"
    publisher = Publisher(domain, publisher_cpu)
    spent: list[float] = []
    windows: list[list[tuple[int, int]]] = []
    disturbed: list[bool] = []
    pause = threading.Event()
    with top(domain, interval) as pid:
        os.sched_setaffinity(pid, {observer_cpu})
        for _ in range(rounds + 1):
            windows.append([])
            disturbed.append(False)
            for runs in (False, True, True, False):
                os.kill(pid, signal.SIGCONT if runs else signal.SIGSTOP)
                pause.wait(_SETTLE_S)
                begin, used, waited = time.monotonic_ns(), _processor_s(pid), _waited_s(publisher.pid)
                pause.wait(window)
                windows[-1].append((begin, time.monotonic_ns()))
                disturbed[-1] |= _waited_s(publisher.pid) - waited > _DISTURBED * window
                if runs:
                    spent.append(100 * (_processor_s(pid) - used) * 1e9 / (windows[-1][-1][1] - begin))
    own = publisher.stop()
    # The first round warms up.
    pairs = list(zip(windows, disturbed, strict=True))[1:]
    rates = [[own.rate(*each) for each in four] for four, was in pairs if not was]
    if not rates:
        raise RuntimeError(f"others took the publisher's processor in all {rounds} rounds; measure on an idle machine")
    return {
        "loss_percent": [100 * (1 - (b + c) / (a + d)) for a, b, c, d in rates],
        "chance_percent": [100 * (1 - d / a) for a, _, _, d in rates],
        "messages_per_second": statistics.median(a for four in rates for a in (four[0], four[3])),
        "observer_processor_percent": statistics.median(spent),
        "interval": interval,
        "rounds_left_out": sum(disturbed[1:]),
    }


def _waited_s(pid: int) -> float:
    """Time that the first thread of a process could have run and had no processor."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9


def _processor_s(pid: int) -> float:
    """Processor time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


# ---------------------------------------------------------------------- whether what it shows is true


def rate(publisher_cpu: int) -> Figures:
    """By how much messages a second as shown differ from the publisher's own count, in percent."""
    found = {}
    for interval, looks in ((0.1, 50), (1.0, 8)):
        domain = f"b{secrets.token_hex(3)}"
        publisher = Publisher(domain, publisher_cpu)
        command = [sys.executable, "-m", "ipcbus_tools", "top", "--json", "-n", str(looks)]
        done = subprocess.run(
            [*command, "--interval", str(interval), "--domain", domain], capture_output=True, text=True, check=True
        )
        own = publisher.stop()
        taken = [DomainSnapshot.from_dict(json.loads(line)) for line in done.stdout.splitlines()]
        found[str(interval)] = _differences(taken, publisher.source, own)
    return found


def _differences(taken: list[DomainSnapshot], source: str, own: Own) -> list[float]:
    sessions = [session for each in taken if (session := each.session(source))]
    return [
        100 * (after.per_second["lbm_msgs_sent"] / own.rate(before.read_ns, after.read_ns) - 1)
        for before, after in itertools.pairwise(sessions)
    ]


# ---------------------------------------------------------------------- how it grows


def size() -> Figures:
    """Times on a large domain: the whole command beyond its interval, and one refresh by its parts, in ms."""
    domain = f"b{secrets.token_hex(3)}"
    with crowd(domain, _SESSIONS, _CONTEXTS, _PROCESSES):
        found = _refreshes(domain, 20)
        found["once_beyond_interval_ms"] = [_once(domain) for _ in range(5)]
    return found


def _once(domain: str) -> float:
    command = [sys.executable, "-m", "ipcbus_tools", "top", "--once", "--json", "--interval", "1", "--domain", domain]
    begin = time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    return 1e3 * (time.perf_counter() - begin - 1)


def _refreshes(domain: str, count: int) -> Figures:
    processes, history = stats.Processes(), stats.History()
    looks = LiveFrames(domain, 1.0)
    console = Console(file=io.StringIO(), width=_WIDE.width, height=_WIDE.height, force_terminal=True)
    times: dict[str, list[float]] = {"snapshot": [], "rates": [], "lines": [], "drawing": [], "refresh": []}
    for number in range(count + 1):
        at = [time.perf_counter()]
        taken = stats.take_snapshot(domain, processes)
        at.append(time.perf_counter())
        found = history.add(taken)
        at.append(time.perf_counter())
        frame = looks.frame(found, host.current())
        at.append(time.perf_counter())
        console.print(screen(frame, View(), _WIDE))
        at.append(time.perf_counter())
        if number:  # the first one looks every command line up
            steps = [1e3 * (end - begin) for begin, end in itertools.pairwise(at)]
            for name, value in zip(times, [*steps, sum(steps)], strict=True):
                times[name].append(value)
    return {
        "sessions": sum(1 for _ in found.sessions),
        "topics": sum(len(session.sources) for session in found.sessions),
        "receiving_contexts": sum(1 for context in found.contexts if context.receivers),
        "joined": sum(len(session.receivers) for session in found.sessions),
        "refresh_ms": times,
    }


# ---------------------------------------------------------------------- the report


def _print(report: Figures) -> None:
    console = Console()
    for key, text in report["machine"].items():
        console.print(f"{key:9} {text}", highlight=False)
    table = Table()
    for column in ("figure", "median", "range", "of", "budget", ""):
        table.add_column(column, justify="left" if column in ("figure", "") else "right")
    if "cost" in report:
        each = report["cost"]
        rate_ = f"{each['messages_per_second'] / 1e6:.1f} M msg/s, top every {each['interval']} s"
        if each["rounds_left_out"]:
            console.print(f"rounds    {each['rounds_left_out']} left out: others used the processor", highlight=False)
        _row(table, f"publisher loses, {rate_}", each["loss_percent"], "%", 1)
        _row(table, "the same by chance", each["chance_percent"], "%")
        _row(table, "processor time of top", [each["observer_processor_percent"]], "%")
    for interval, differences in report.get("rate", {}).items():
        _row(table, f"msg/s shown against own count, every {interval} s", differences, "%", 1, farthest=True)
    if "size" in report:
        each = report["size"]
        what = f"{each['sessions']} sessions, {each['topics']} topics, {each['receiving_contexts']} receiving contexts"
        console.print(f"{'size':9} {what}, {each['joined']} times joined", highlight=False)
        _row(table, "top --once --json beyond its interval", each["once_beyond_interval_ms"], "ms", 500, farthest=True)
        for name, values in each["refresh_ms"].items():
            goal = 100 if name == "refresh" else None
            _row(table, f"a refresh: {name}" if goal is None else "a refresh", values, "ms", goal, farthest=True)
    console.print(table)


def _row(
    table: Table, name: str, values: list[float], unit: str, budget: float | None = None, *, farthest: bool = False
) -> None:
    """A line; the median is judged, or the value farthest from 0."""
    judged = max(map(abs, values)) if farthest else statistics.median(values)
    verdict = "" if budget is None else "budget" if judged < budget else "MISSED"
    spread = f"{min(values):.3g} .. {max(values):.3g}" if len(values) > 1 else ""
    goal = "" if budget is None else f"{budget} {unit}"
    table.add_row(name, f"{statistics.median(values):.3g} {unit}", spread, str(len(values)), goal, verdict)


if __name__ == "__main__":
    sys.exit(main())
