"""`ipcbus replay` of a feed: a text file of messages, with or without time stamps."""

from __future__ import annotations

import dataclasses
import time
from collections import Counter
from typing import TYPE_CHECKING, Final

from rich.progress import Progress

import ipcbus
from ipcbus.archive.player import fitting_options
from ipcbus.config import Config
from ipcbus_tools.common import Failure, Misuse, notes, number, output, print_json, progress_bar, source_options
from ipcbus_tools.replay.feed_file import FeedFile, Survey
from ipcbus_tools.replay.replay_options import MAX_SPEED, Sending
from ipcbus_tools.signals import SignalHandler

if TYPE_CHECKING:
    from pathlib import Path

_STEP: Final = 2048
"""Messages between two updates of the progress bar."""
_NEAR_S: Final = 0.0002
"""A message that is due within this time is sent now, because shorter waits are not exact."""


@dataclasses.dataclass(slots=True)
class Progressed:
    """Counts of what was sent, and the time that it took."""

    messages: int = 0
    bytes: int = 0
    seconds: float = 0.0
    topics: Counter[str] = dataclasses.field(default_factory=Counter)
    """Messages by topic."""


def replay(path: Path, sending: Sending, *, topic_from: str, topic: str) -> None:
    """Sends the messages of a file; the arguments are the options of `ipcbus replay`."""
    with SignalHandler() as signals:
        with signals.interruptible():
            feed = FeedFile(path, key=topic_from, topic=topic)
            survey = _survey(feed, sending.speed)
        settings = Config.load(sending.config)
        with ipcbus.Context(settings, domain=sending.domain) as context:
            sources = _open_sources(context, settings, sending.transport, survey)
            done = Progressed()
            sending.run(
                sources.values(),
                signals,
                lambda: _send(feed, survey, sources, ReplayPace(sending.speed, survey.first_ns, signals), done),
                lambda everything_read: _report(survey, sources, done, everything_read, sending.as_json),
            )


def _survey(feed: FeedFile, speed: float) -> Survey:
    with notes().status(f"reading {feed.path.name}"):
        survey = feed.survey()
    if survey.messages == 0:
        raise Failure(f"{feed.path} holds no messages; name a file with a line for each message")
    if speed != MAX_SPEED and not feed.is_capture:
        raise Misuse(f"{feed.path} has no time stamps; replay it with --speed max")
    return survey


def _open_sources(
    context: ipcbus.Context, settings: Config, transport: str | None, survey: Survey
) -> dict[str, ipcbus.Source]:
    """Returns a source for each topic, on sessions whose datagrams hold the longest message."""
    options = source_options(transport)
    options = fitting_options(settings.values("source", **options), options, lambda: survey.longest)
    return {topic: context.source(topic, **options) for topic in survey.topics}


class ReplayPace:
    """The time at which each message is due."""

    def __init__(self, speed: float, first_ns: int, signals: SignalHandler) -> None:
        """Starts the clock, at the time stamp of the first message."""
        self.as_fast_as_possible = speed == MAX_SPEED
        self._rate = speed * 1e9 or 1.0
        self._first_ns = first_ns
        self._begin = time.monotonic()
        self._signals = signals

    def early(self, at_ns: int) -> float:
        """Returns the seconds until a message with this time stamp is due; negative when it is late."""
        return self._begin + (at_ns - self._first_ns) / self._rate - time.monotonic()

    def wait(self, seconds: float) -> None:
        """Waits; a signal ends the wait."""
        self._signals.wait(seconds)


def _send(
    feed: FeedFile, survey: Survey, sources: dict[str, ipcbus.Source], pace: ReplayPace, done: Progressed
) -> None:
    """Sends everything; the counts in `done` are right also when a signal ends it."""
    begin = time.monotonic()
    # Sources share sessions; flushing one source of each session publishes all open batches.
    sessions = list({source.source: source for source in sources.values()}.values())
    with progress_bar(Progress) as bar:
        task = bar.add_task("", total=survey.messages)
        try:
            for at, topic, payload in feed.lines():
                if not pace.as_fast_as_possible and (early := pace.early(at)) > _NEAR_S:
                    for source in sessions:
                        source.flush()
                    bar.update(task, completed=done.messages)
                    pace.wait(early)
                sources[topic].send(payload)
                done.messages += 1
                done.bytes += len(payload)
                done.topics[topic] += 1
                if done.messages % _STEP == 0:
                    bar.update(task, completed=done.messages)
            for source in sessions:
                source.flush()
        finally:
            done.seconds = time.monotonic() - begin
            bar.update(task, completed=done.messages)


def _report(
    survey: Survey, sources: dict[str, ipcbus.Source], done: Progressed, everything_read: bool, as_json: bool
) -> None:
    rate = done.messages / done.seconds if done.seconds else 0.0
    if as_json:
        print_json(
            {
                "messages": done.messages,
                "bytes": done.bytes,
                "seconds": round(done.seconds, 6),
                "msgs_per_second": round(rate, 1),
                "complete": done.messages == survey.messages,
                "everything_read": everything_read,
                "topics": {topic: done.topics[topic] for topic in sources},
                "sessions": sorted({source.source for source in sources.values()}),
            }
        )
        return
    text = f"{number(done.messages)} messages, {number(done.bytes)} bytes in {done.seconds:.2f} s: {number(rate)} msg/s"
    if done.messages < survey.messages:
        text += f"; {number(survey.messages - done.messages)} messages were not sent"
    output().print(text, highlight=False)
