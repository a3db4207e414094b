"""How far a job of Spark is: a bar that moves on a terminal, else a line now and then."""

from __future__ import annotations

import contextlib
import sys
import time
from typing import TYPE_CHECKING, Final

from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from ipcbus_tools.common import notes, number, plural, safe

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from pyspark import SparkContext
    from rich.progress import TaskID

LINE_S: Final = 10.0
"""Seconds between two lines where standard error is no terminal, and before the first."""


class JobProgress:
    """Shows on standard error what a command computes and how far it is; a context manager."""

    def __init__(self, *, quiet: bool = False) -> None:
        """Shows nothing yet.

        Args:
            quiet: show nothing at all.
        """
        self._on_terminal = sys.stderr.isatty()
        self._quiet = quiet
        columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(None), TimeElapsedColumn())
        self._progress = Progress(
            *columns, console=notes(), transient=True, disable=quiet or not self._on_terminal, expand=True
        )
        self._task: TaskID | None = None
        self._name = ""
        self._began = self._last_line = time.monotonic()

    def __enter__(self) -> Self:
        """Begins to show."""
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Takes the bar away."""
        self._progress.stop()

    def begin(self, name: str) -> None:
        """Something begins, in place of what was shown before."""
        self.end()
        self._name = name
        self._task = self._progress.add_task(name, total=None)

    def describe(self, name: str) -> None:
        """A part of what was begun begins."""
        self._name = name

    def show(self, detail: str, done: int = 0, total: int | None = None) -> None:
        """How far it is.

        Args:
            detail: in words.
            done: parts that are done.
            total: of so many; None where that is not known.
        """
        text = f"{self._name}: {detail}" if detail else self._name
        if self._task is not None:
            self._progress.update(self._task, description=text, completed=done, total=total)
        now = time.monotonic()
        if not self._quiet and not self._on_terminal and now - self._last_line >= LINE_S:
            self._last_line = now
            notes().print(safe(f"{text}, after {now - self._began:.0f} s"), soft_wrap=True)

    def end(self) -> None:
        """What was begun is done."""
        if self._task is not None:
            self._progress.remove_task(self._task)
            self._task = None


class Stages:
    """Counts what Spark has done since it was made: stages, tasks, and rows that were read."""

    def __init__(self, context: SparkContext) -> None:
        """Of the jobs of a Spark context from now on."""
        self._tracker = context.statusTracker()
        self._context = context
        self._rows: dict[int, int] = {}  # by stage
        self._active: set[int] = set()

    def progress(self) -> tuple[str, int, int | None]:
        """Returns how far the jobs are, for `JobProgress.show`."""
        before, self._active = self._active, set(self._tracker.getActiveStageIds())
        for stage in before | self._active:
            self._rows[stage] = max(self._rows.get(stage, 0), self._read(stage))
        found = [info for stage in self._active if (info := self._tracker.getStageInfo(stage))]
        total, done = sum(info.numTasks for info in found), sum(info.numCompletedTasks for info in found)
        parts = [plural(len(self._rows), "stage")] if self._rows else []
        parts += [f"{done} of {plural(total, 'task')}"] if total else []
        parts += [f"{number(rows)} rows read"] if (rows := sum(self._rows.values())) else []
        return ", ".join(parts), done, total or None

    def _read(self, stage: int) -> int:
        """Rows that the tasks of a stage have read; Spark's own interface does not tell them, its store does."""
        with contextlib.suppress(Exception):  # no such stage (yet, or any more), or another release of Spark
            return int(self._context._jsc.sc().statusStore().lastStageAttempt(stage).inputRecords())
        return 0
