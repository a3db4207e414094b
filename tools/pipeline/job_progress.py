"""Progress of a Spark job: a bar on a terminal, else a line every ten seconds."""

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
"""Seconds between two lines, and before the first, if standard error is not a terminal."""


class JobProgress:
    """Shows on standard error what a command computes and its progress; a context manager."""

    def __init__(self, *, quiet: bool = False) -> None:
        """Prepares the bar.

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
        """Shows the bar."""
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Removes the bar."""
        self._progress.stop()

    def begin(self, name: str) -> None:
        """Begins a task in place of the one before."""
        self.end()
        self._name = name
        self._task = self._progress.add_task(name, total=None)

    def describe(self, name: str) -> None:
        """Names the part of the task that begins."""
        self._name = name

    def show(self, detail: str, done: int = 0, total: int | None = None) -> None:
        """Shows the progress of the task.

        Args:
            detail: the progress in words.
            done: finished parts.
            total: number of parts; None when it is not known.
        """
        text = f"{self._name}: {detail}" if detail else self._name
        if self._task is not None:
            self._progress.update(self._task, description=text, completed=done, total=total)
        now = time.monotonic()
        if not self._quiet and not self._on_terminal and now - self._last_line >= LINE_S:
            self._last_line = now
            notes().print(safe(f"{text}, after {now - self._began:.0f} s"), soft_wrap=True)

    def end(self) -> None:
        """Ends the task."""
        if self._task is not None:
            self._progress.remove_task(self._task)
            self._task = None


class Stages:
    """Counts the stages, tasks and rows that Spark has processed since the object was made."""

    def __init__(self, context: SparkContext) -> None:
        self._tracker = context.statusTracker()
        self._context = context
        self._rows: dict[int, int] = {}  # by stage
        self._active: set[int] = set()

    def progress(self) -> tuple[str, int, int | None]:
        """Returns the progress of the jobs, for `JobProgress.show`."""
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
        """Returns the rows that the tasks of a stage have read; only Spark's internal store has that number."""
        with contextlib.suppress(Exception):  # the stage does not exist, or Spark is another release
            return int(self._context._jsc.sc().statusStore().lastStageAttempt(stage).inputRecords())
        return 0
