"""`ipcbus top` for people: live on the screen, once as text, and as a picture."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import time
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from ipcbus import stats
from ipcbus_tools.common import Failure, output
from ipcbus_tools.polling import watch
from ipcbus_tools.signals import SignalHandler
from ipcbus_tools.snapshot_log import Recording
from ipcbus_tools.top import host
from ipcbus_tools.top import view as views
from ipcbus_tools.top.message_view import INTERVAL_S, Messages, MessageWatcher
from ipcbus_tools.top.rows import RowList
from ipcbus_tools.top.screen import Frame, Size, clicked, page_rows, report, screen
from ipcbus_tools.top.session_history import SessionHistory
from ipcbus_tools.top.terminal import Terminal
from ipcbus_tools.top.view import View

if TYPE_CHECKING:
    from ipcbus.stats import DomainSnapshot

_PICTURE = (130, 32)


class LiveFrames:
    """The frames of a live domain."""

    follows = True
    """Whether time goes on between two frames."""
    title = ""
    """Origin of the frames; empty for the domain itself."""

    def __init__(self, domain: str, interval: float) -> None:
        """Prepares for the first frame; `interval` is in seconds."""
        self.domain = domain
        self._interval = interval
        self._processes, self._history, self._row_list = stats.Processes(), stats.History(), RowList()
        self._trends = SessionHistory()

    def next_frame(self) -> Frame | None:
        """Takes a snapshot and returns its frame, with rates since the previous one; None without a further frame."""
        return self.frame(self._history.add(stats.take_snapshot(self.domain, self._processes)), host.current())

    def frame(self, found: DomainSnapshot, machine: host.Host | None) -> Frame:
        """Returns the frame of a snapshot with rates."""
        rows = self._row_list.rows(found, round(self._interval * 1e9))
        trends = self._trends.add(found, self._history)
        others = () if found.contexts or machine is None else stats.domains()
        row_list = self._row_list
        return Frame(
            *(machine, found, rows, trends, self._interval, row_list.lost, row_list.hidden_dead, self.title, others),
            recorders=row_list.recorders,
        )


class RecordedFrames(LiveFrames):
    """The frames of a file that `ipcbus monitor` has written."""

    follows = False

    def __init__(self, path: Path, interval: float) -> None:
        """Begins at the first snapshot of the file."""
        super().__init__("", interval)
        self.recording = Recording(path)
        self._rest = iter(self.recording)
        self._before: DomainSnapshot | None = None
        self._name, self._number = path.name, 0

    def next_frame(self) -> Frame | None:
        """Returns the next frame; None at the end of the file."""
        found = next(self._rest, None)
        if found is None:
            return None
        if self._before is not None and found.read_ns > self._before.read_ns:
            self._interval = (found.read_ns - self._before.read_ns) / 1e9
        self._before = found
        self._number += 1
        self.title = f"replay of {self._name}, snapshot {self._number}"
        return self.frame(self._history.add(found), None)


class FrameHistory:
    """The latest frames, the last one last, and which of them is shown."""

    def __init__(self, first: Frame) -> None:
        """Begins with one frame."""
        self._frames = deque([(first, _weight(first))])
        self._total = self._frames[0][1]
        self._frozen: list[Frame] = []

    def add(self, frame: Frame) -> None:
        """Adds a frame; removes the oldest when there are too many, or when they hold too much memory."""
        weight = _weight(frame)
        self._frames.append((frame, weight))
        self._total += weight
        while len(self._frames) > 1 and (self._total > _WEIGHT_MAX or len(self._frames) > _FRAMES_MAX):
            self._total -= self._frames.popleft()[1]

    def shown(self, view: View) -> tuple[Frame, View]:
        """Returns the frame that a view shows; a paused view counts back from the frame at which it was paused.

        Returns:
            The frame, and the view, whose `back` is limited to the number of frames.
        """
        if not view.paused:
            self._frozen = []
            return self._frames[-1][0], view
        self._frozen = self._frozen or [frame for frame, _ in self._frames]
        back = min(view.back, len(self._frozen) - 1)
        return self._frozen[-1 - back], dataclasses.replace(view, back=back)

    def follow_latest(self) -> None:
        """Makes a paused view count back from the latest frame."""
        self._frozen = []


_FRAMES_MAX = 600
_WEIGHT_MAX = 60_000
"""Most weight of all frames: about 60 MiB, 1 KiB each."""


def _weight(frame: Frame) -> int:
    # The two histograms of a receiver take as much memory as ten topics.
    return 1 + sum(3 + len(session.sources) + 10 * len(session.receivers) for session in frame.found.sessions)


def run(frames: LiveFrames, interval: float, count: int | None) -> None:
    """Shows frames live until `q`, or until `count` of them were shown.

    Raises:
        Failure: there is no frame, as in an empty recording.
    """
    first = frames.next_frame()
    if first is None:
        raise Failure("the recording has no snapshot; is it a file that 'ipcbus monitor --log' wrote?")
    with (
        SignalHandler() as signals,
        Terminal() as terminal,
        signals.interruptible(),
        contextlib.closing(PageData(frames)) as page_data,
    ):
        history = FrameHistory(first)
        # The first rates come soon, whatever the interval, since a screen without rates is of little use.
        due = time.monotonic() + min(interval, 0.5)
        view, seen = View(), 0
        while not view.ended:
            size = Size.of(terminal.console)
            shown, view = history.shown(view)
            shown = page_data.add_to(shown, view)
            terminal.use_mouse(view.mouse)
            terminal.show(screen(shown, view, size))
            keys = terminal.keys(min(due - time.monotonic(), page_data.poll_seconds))
            if keys is None:
                return
            for key in keys:
                at_last = view.paused and view.back == 0
                view = _pressed(shown, view, key, size)
                if key == "]" and at_last and not frames.follows:
                    _next(frames, history)
            if view.switch:
                frames, view = LiveFrames(view.switch, interval), View(mouse=view.mouse, sort=view.sort)
                history, due = FrameHistory(frames.next_frame() or shown), time.monotonic() + min(interval, 0.5)
                page_data.change_domain(frames)
            if time.monotonic() >= due:
                due = max(due + interval, time.monotonic())
                seen += 1
                if seen == count:
                    return
                if (frames.follows or not view.paused) and not _next(frames, history):
                    view = dataclasses.replace(view, paused=True)


def _pressed(shown: Frame, view: View, key: str, size: Size) -> View:
    """Returns the view after a key or a click."""
    if key.startswith("click "):
        _, x, y = key.split()
        return clicked(shown, view, size, int(x), int(y))
    return views.press(view, key, views.shown(shown.rows, view), page_rows(size), shown.domains)


class PageData:
    """Data of pages that is not in snapshots: other domains, and messages."""

    def __init__(self, frames: LiveFrames) -> None:
        """Reads nothing before a page needs it."""
        self._frames_of_domain = frames
        self._watcher: MessageWatcher | None = None
        self._messages: Messages | None = None
        self._domains: tuple[str, ...] = ()
        self._page = ""

    @property
    def poll_seconds(self) -> float:
        """Seconds until there may be new data."""
        return INTERVAL_S if self._watcher is not None else math.inf

    def add_to(self, frame: Frame, view: View) -> Frame:
        """Returns a frame with the data that the page of the view needs."""
        if view.page == views.DOMAINS and self._page != views.DOMAINS:
            self._domains = stats.domains() if self._frames_of_domain.follows else ()
        self._page = view.page
        wanted = view.message_topic if view.page == views.MESSAGES else None
        if self._watcher is not None and self._watcher.topic != wanted:
            self.close()
        if wanted is None:
            return dataclasses.replace(frame, domains=self._domains)
        if not self._frames_of_domain.follows:
            return dataclasses.replace(
                frame, messages=Messages(wanted, reason="a recording of numbers has no messages")
            )
        if self._watcher is None:
            self._watcher = MessageWatcher(self._frames_of_domain.domain, wanted)
        if not view.paused or self._messages is None:
            self._messages = self._watcher.poll()
        return dataclasses.replace(frame, messages=self._messages)

    def change_domain(self, frames: LiveFrames) -> None:
        """Drops the data of the previous domain."""
        self.close()
        self._frames_of_domain, self._page = frames, ""

    def close(self) -> None:
        """Stops reading messages."""
        if self._watcher is not None:
            self._watcher.close()
        self._watcher = self._messages = None


def _next(frames: LiveFrames, history: FrameHistory) -> bool:
    """Adds the next frame; returns whether there was one."""
    frame = frames.next_frame()
    if frame is not None:
        history.add(frame)
        if not frames.follows:
            history.follow_latest()
    return frame is not None


def once(domain: str, interval: float) -> None:
    """Prints one frame in full length."""
    frames = LiveFrames(domain, interval)
    console = output()
    for found in watch(domain, interval, 1):
        console.print(report(frames.frame(found, host.current()), Size.of(console)), no_wrap=True)


def picture(domain: str, interval: float, count: int, svg: str) -> None:
    """Draws the last of `count` frames into a file."""
    frames = LiveFrames(domain, interval)
    frames.next_frame()
    with SignalHandler() as signals, signals.interruptible():
        for _ in range(count):
            signals.wait(interval)
            frame = frames.next_frame()
    if frame is None:
        return
    width, height = _PICTURE
    with Path("/dev/null").open("w") as nowhere:
        console = Console(file=nowhere, record=True, width=width, height=height, force_terminal=True, highlight=False)
        rows = views.shown(frame.rows, View())
        # The picture shows the session with the most receivers in detail.
        best = max(rows, key=lambda row: len(row.session.receivers) if row.session else 0, default=None)
        console.print(screen(frame, View(chosen=best.key if best else None), Size(width, height)))
        console.save_svg(svg, title="ipcbus top")
