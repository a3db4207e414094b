"""How many instructions a message costs in each form, counted by valgrind: `python -m benchmarks.instructions`.

Times differ from machine to machine and from run to run; instructions do not. One process sends to itself, spins never
and waits never, and its clocks stand still, so that no timer is due: two runs give the same counts within a few per
mille. `tests/conformance/test_instructions.py` compares them with `instructions.json` beside this file.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import functools
import gc
import itertools
import json
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final
from unittest import mock

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from ipcbus import Context

CALLS: Final = 200
TABLE: Final = Path(__file__).with_name("instructions.json")
_CLOCK: Final = Path(__file__).with_name("native") / "preload" / "frozen_clock.c"
_FORMS: Final = (
    *("loop", "idle process_events(0)", "idle receive(0)", "send", "receive(0)", "receive_many", "for", "async for"),
    *("send + callback", "send + on_data", "send + EventQueue.dispatch", "send_many", "receive_into"),
)
"""In the order in which `main_counted` runs them; `loop` is the loop around each, and is taken off."""

_PER_CALL: Final = {"receive_many": 10, "send_many": 10, "receive_into": 10}
"""Messages that one call takes; all of a form fit into the ring."""


def toolchain() -> str:
    """What the counts depend on besides the code: the interpreter and the compiler."""
    compiler = shlex.split(os.environ.get("CC", "gcc"))
    found = subprocess.run([*compiler, "-dumpfullversion"], check=True, capture_output=True, text=True).stdout.strip()
    return f"CPython {platform.python_version()}, {Path(compiler[0]).name} {found}, {platform.machine()}"


def count() -> dict[str, float]:
    """Returns the instructions of a message, or of an idle call, by form.

    Raises:
        RuntimeError: valgrind or the compiler is missing, or the counted program failed; says what it wrote.
    """
    if shutil.which("valgrind") is None:
        raise RuntimeError("valgrind is not installed: install the package valgrind of the distribution")
    with tempfile.TemporaryDirectory() as folder:
        clock, counts = f"{folder}/clock.so", f"{folder}/counts"
        _run([*shlex.split(os.environ.get("CC", "gcc")), "-O2", "-shared", "-fPIC", "-o", clock, str(_CLOCK)])
        _run(
            [
                *("valgrind", "--tool=callgrind", "--dump-before=getloadavg", f"--callgrind-out-file={counts}"),
                *(sys.executable, "-m", "benchmarks.instructions", "--counted"),
            ],
            {"LD_PRELOAD": clock, "PYTHONHASHSEED": "0"},
        )
        # The first mark stops the clocks; the part that ends at the second mark of a form is that form's.
        found = [_total(Path(f"{counts}.{2 * number + 1}")) for number in range(1, len(_FORMS) + 1)]
    loop, *others = found
    named = zip(_FORMS[1:], others, strict=True)
    return {name: round((total - loop) / CALLS / _PER_CALL.get(name, 1), 1) for name, total in named}


def _run(command: list[str], environment: dict[str, str] | None = None) -> None:
    done = subprocess.run(
        command, env={**os.environ, **(environment or {})}, capture_output=True, text=True, check=False, timeout=900
    )
    if done.returncode:
        raise RuntimeError(f"{shlex.join(command)} ended with {done.returncode}: {done.stderr[-2000:]}")


def _total(path: Path) -> int:
    found = re.search(r"^(?:summary|totals): (\d+)", path.read_text(), re.MULTILINE)
    if found is None:
        raise RuntimeError(f"{path} holds no total: valgrind divides its counts at the calls of getloadavg")
    return int(found[1])


def main_counted() -> None:
    """What valgrind runs: each form between two marks."""
    # The counter of the processor cannot be stopped, so the library must find no stable one.
    with mock.patch.object(Path, "read_text", side_effect=OSError):
        from ringbuf import clock
    if clock.kind():
        raise RuntimeError("the clock was imported before: its counter cannot be stopped")

    import ipcbus
    from benchmarks.scenarios import SPIN

    def context() -> ipcbus.Context:
        return ipcbus.Context({"context": SPIN}, domain=f"count{os.getpid()}", operational_mode="sequential")

    # A task that waits adds to the turns of a context, so asyncio gets a context of its own.
    with context() as plain, context() as for_asyncio, contextlib.closing(asyncio.new_event_loop()) as loop:
        stand = _Stand(plain, for_asyncio, loop)
        forms = stand.forms()
        gc.disable()
        os.getloadavg()  # the clocks stop
        for name in _FORMS:  # warms up: caches of the interpreter, first pages
            before, run = forms[name]
            before()
            run()
            stand.empty()
        for name in _FORMS:
            before, run = forms[name]
            before()
            os.getloadavg()
            run()
            os.getloadavg()
            stand.empty()


def _each(call: Callable[[], object]) -> Callable[[], None]:
    calls = range(CALLS)

    def run() -> None:
        for _ in calls:
            call()

    return run


def _nothing() -> None:
    pass


class _Stand:
    """One source and one receiver for each way to receive."""

    def __init__(self, plain: Context, for_asyncio: Context, loop: asyncio.AbstractEventLoop) -> None:
        self._plain, self._loop = plain, loop
        from ipcbus import EventQueue

        self._queue = EventQueue()
        self._rows = np.zeros((10, 64), np.uint8)
        self._awaited, self._pulled = for_asyncio.receiver("awaited"), plain.receiver("pulled")
        receivers = (
            self._awaited,
            self._pulled,
            plain.receiver("called", lambda message: message.data),
            plain.receiver("data", on_data=lambda data: data),
            plain.receiver("queued", lambda message: message.data, event_queue=self._queue),
        )
        self._sources = {each.topic: plain.source(each.topic, transport="lbtsmx") for each in receivers}
        for receiver in receivers:
            receiver.wait_for_sources(1, 30)
        for source in self._sources.values():
            source.wait_for_receivers(1, 30)
        self.empty()

    def empty(self) -> None:
        """Takes what is left, events too."""
        while self._pulled.receive(0) is not None or self._awaited.receive(0) is not None or self._queue.dispatch(0):
            pass

    def forms(self) -> dict[str, tuple[Callable[[], object], Callable[[], object]]]:
        """Returns what runs before each form, and the form."""
        plain, pulled, queue, rows = self._plain, self._pulled, self._queue, self._rows
        payload = b"x" * 64
        sends = {topic: functools.partial(source.send, payload) for topic, source in self._sources.items()}
        send, send_many = self._sources["pulled"].send, self._sources["pulled"].send_many

        def called() -> None:
            sends["called"]()
            plain.process_events(0)

        def data_only() -> None:
            sends["data"]()
            plain.process_events(0)

        def queued() -> None:
            sends["queued"]()
            plain.process_events(0)
            queue.dispatch(0)

        def iterate() -> None:
            for message in itertools.islice(pulled, CALLS):
                _data = message.data

        many = _each(lambda: send_many(rows))
        return {
            "loop": (_nothing, _each(_nothing)),
            "idle process_events(0)": (_nothing, _each(lambda: plain.process_events(0))),
            "idle receive(0)": (_nothing, _each(lambda: pulled.receive(0))),
            "send": (_nothing, _each(lambda: send(payload))),
            "receive(0)": (_each(sends["pulled"]), _each(lambda: pulled.receive(0))),
            "receive_many": (many, _each(lambda: pulled.receive_many(10, 0))),
            "for": (_each(sends["pulled"]), iterate),
            "async for": (_each(sends["awaited"]), lambda: self._loop.run_until_complete(self._iterate())),
            "send + callback": (_nothing, _each(called)),
            "send + on_data": (_nothing, _each(data_only)),
            "send + EventQueue.dispatch": (_nothing, _each(queued)),
            "send_many": (_nothing, many),
            "receive_into": (many, _each(lambda: pulled.receive_into(rows))),
        }

    async def _iterate(self) -> None:
        left = CALLS
        async for message in self._awaited:
            _data = message.data
            left -= 1
            if not left:
                break


def main() -> int:
    """Prints the counts beside those of the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.instructions", description=__doc__)
    parser.add_argument("--write", action="store_true", help=f"write them to {TABLE.name}")
    parser.add_argument("--counted", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.counted:
        main_counted()
        return 0
    known = json.loads(TABLE.read_text()) if TABLE.exists() else {"instructions": {}}
    found = count()
    print(toolchain())
    for name, instructions in found.items():
        print(f"{name:28} {instructions:9.1f}  (in the table: {known['instructions'].get(name, '-')})")
    if arguments.write:
        TABLE.write_text(json.dumps({"toolchain": toolchain(), "instructions": found}, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
