"""Recorded feeds that `ipcbus replay` reads: captures with time stamps, and any other text.

A capture holds a line `<ns since the epoch> <JSON>` for each message, as received. Both kinds may be gzip files. A feed
is read twice, first to survey it and then to send it, and is never held in memory.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import re
import zlib
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING

from ipcbus_tools.common import Failure

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_GZIP_MAGIC = b"\x1f\x8b"
_STAMP_DIGITS = 19
"""The most digits of a stamp, in ns since the epoch."""
_CAPTURE = re.compile(rb"\d+ [{\[]")

Line = tuple[int, str, bytes]
"""A line of a feed: time stamp in ns (0 without one), topic, payload."""


@dataclass(slots=True)
class Survey:
    """The contents of a feed.

    Attributes:
        messages: number of messages.
        bytes: bytes of their payloads.
        longest: bytes of the longest payload.
        topics: number of messages by topic.
        first_ns: time stamp of the first line.
        last_ns: the latest time stamp.
    """

    messages: int = 0
    bytes: int = 0
    longest: int = 0
    topics: dict[str, int] = field(default_factory=dict)
    first_ns: int = 0
    last_ns: int = 0


class FeedFile:
    """A file of messages."""

    def __init__(self, path: Path, *, key: str = "stream", topic: str = "feed") -> None:
        """Reads the first line to learn which kind the file is.

        Args:
            path: the file; read again for each pass.
            key: JSON key on the outermost level whose value is the topic.
            topic: topic of lines without that key, and of all lines of a text file.

        Raises:
            Failure: the file cannot be read more than once.
            OSError: the file cannot be read.
        """
        if not path.is_file():
            raise Failure(f"{path} is not a regular file; replay reads it twice, so write the feed into a file first")
        self.path = path
        self._topic = topic
        self._key = key
        # If the key is the first one, as usual, the line need not be parsed.
        self._fast = re.compile(rb'\{"' + re.escape(json.dumps(key)[1:-1].encode()) + rb'":"([^"\\]+)"')
        with self._readable(), self._open() as lines:
            self.is_capture = bool(_CAPTURE.match(lines.readline()))

    def survey(self) -> Survey:
        """Reads the feed once and returns its survey."""
        found = Survey()
        topics = found.topics
        for at, topic, payload in self.lines():
            if found.messages == 0:
                found.first_ns = at
            found.messages += 1
            found.bytes += len(payload)
            found.longest = max(found.longest, len(payload))
            found.last_ns = max(found.last_ns, at)
            topics[topic] = topics.get(topic, 0) + 1
        return found

    def lines(self) -> Iterator[Line]:
        """Yields the messages in the order of the file.

        Raises:
            Failure: a line of a capture has no time stamp, or the gzip stream is damaged.
        """
        with self._readable(), self._open() as file:
            yield from self._captured(file) if self.is_capture else self._plain(file)

    @contextlib.contextmanager
    def _readable(self) -> Iterator[None]:
        try:
            yield
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise Failure(
                f"{self.path} is a damaged gzip file ({error}); replay what 'zcat {self.path.name}' still gives"
            ) from error

    def _plain(self, file: IO[bytes]) -> Iterator[Line]:
        for line in file:
            yield 0, self._topic, line.removesuffix(b"\n")

    def _captured(self, file: IO[bytes]) -> Iterator[Line]:
        fast = self._fast.match
        for number, line in enumerate(file, 1):
            stamp, _, payload = line.removesuffix(b"\n").partition(b" ")
            if not payload or not stamp.isdigit() or len(stamp) > _STAMP_DIGITS:
                if not line.strip():
                    continue
                raise Failure(
                    f"{self.path}, line {number}: no '<ns> <JSON>' as before ({line[:40]!r}...); correct the line, or "
                    "cut the file off before it"
                )
            found = fast(payload)
            topic = found[1].decode(errors="replace") if found else self._slow_topic(payload)
            yield int(stamp), topic, payload

    def _slow_topic(self, payload: bytes) -> str:
        try:
            content = json.loads(payload)
        except (ValueError, RecursionError):
            return self._topic
        value = content.get(self._key) if isinstance(content, dict) else None
        return str(value) if isinstance(value, str | int) and str(value) else self._topic

    def _open(self) -> IO[bytes]:
        with self.path.open("rb") as file:
            packed = file.read(2) == _GZIP_MAGIC
        # A buffer makes reading lines of a gzip file much faster.
        return io.BufferedReader(gzip.open(self.path, "rb")) if packed else self.path.open("rb")
