"""Servers that keep messages until they are acknowledged: Redis Streams and NATS JetStream, where they are installed.

A pinned sender, a pinned receiver that acknowledges each message, and the server, which takes any processor. Both
clients speak the server's protocol themselves, with as few bytes and calls as they can, so that no client library slows
the server down.
"""

from __future__ import annotations

import contextlib
import functools
import json
import secrets
import shutil
import socket
import subprocess
import tempfile
import time
from typing import TYPE_CHECKING, Any, Final

from benchmarks.pairs import run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from io import BufferedRWPair

    from benchmarks.pairs import Figures, Station

REDIS: Final = shutil.which("redis-server")
NATS: Final = shutil.which("nats-server")
_WAIT_S: Final = 30.0
_BATCH: Final = 1_000
"""Messages that a receiver asks for, and acknowledges, at a time."""


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _connect(port: int) -> socket.socket:
    """Connects to a server that starts."""
    end = time.monotonic() + _WAIT_S
    while True:
        try:
            found = socket.create_connection(("127.0.0.1", port), _WAIT_S)
        except ConnectionRefusedError:
            if time.monotonic() > end:
                raise
            time.sleep(0.01)
        else:
            found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return found


@contextlib.contextmanager
def _server(command: list[str]) -> Iterator[None]:
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.terminate()
        process.wait(_WAIT_S)


# ---------------------------------------------------------------------------------------- Redis Streams


class RedisClient:
    """A connection to a Redis server."""

    def __init__(self, port: int) -> None:
        """Connects."""
        self._file: BufferedRWPair = _connect(port).makefile("rwb", 1 << 20)  # type: ignore[assignment]

    def put(self, *words: bytes) -> None:
        """Writes a command, without sending it."""
        parts = [b"$%d\r\n%b\r\n" % (len(word), word) for word in words]
        self._file.write(b"*%d\r\n" % len(words) + b"".join(parts))

    def flush(self) -> None:
        """Sends all commands."""
        self._file.flush()

    def answer(self) -> Any:  # noqa: ANN401
        """Returns the next answer."""
        line = self._file.readline()
        kind, text = line[:1], line[1:-2]
        if kind == b"-" or not kind:
            raise OSError(f"Redis answers {line!r}")
        if kind == b"$":
            return self._file.read(int(text) + 2)[:-2] if int(text) >= 0 else None
        if kind == b"*":
            return [self.answer() for _ in range(int(text))]
        return text

    def call(self, *words: bytes) -> Any:  # noqa: ANN401
        """Sends a command, and returns its answer."""
        self.put(*words)
        self.flush()
        return self.answer()


def send_to_redis(station: Station) -> Figures:
    """Sends groups of messages in one go, until all are acknowledged."""
    client, payload, group = RedisClient(station.options["port"]), b"x" * station.size, station.options["group"]
    station.ready()
    begin = time.perf_counter()
    for _ in range(station.messages // group):
        for _ in range(group):
            client.put(b"XADD", b"bench", b"*", b"d", payload)
        client.flush()
        for _ in range(group):
            client.answer()
    while client.call(b"GET", b"acknowledged") != b"%d" % station.messages:
        time.sleep(0.0005)
    return {"per_second": station.messages / (time.perf_counter() - begin)}


def receive_from_redis(station: Station) -> Figures:
    """Acknowledges each message."""
    client = RedisClient(station.options["port"])
    client.call(b"XGROUP", b"CREATE", b"bench", b"all", b"$", b"MKSTREAM")
    station.ready()
    count, wanted = 0, b"%d" % _BATCH
    read = (b"XREADGROUP", b"GROUP", b"all", b"one", b"COUNT", wanted, b"BLOCK", b"1000", b"STREAMS", b"bench", b">")
    while count < station.messages:
        found = client.call(*read)
        numbers = [number for number, _ in found[0][1]] if found else []
        if numbers:
            count += len(numbers)
            client.put(b"XACK", b"bench", b"all", *numbers)
            client.put(b"XDEL", b"bench", *numbers)
            client.put(b"INCRBY", b"acknowledged", b"%d" % len(numbers))
            client.flush()
            for _ in range(3):
                client.answer()
    return {}


def _redis(factor: float, messages: int, size: int, *, fsync: str, group: int) -> float:
    port = _free_port()
    with tempfile.TemporaryDirectory(prefix="ipcbus-bench-") as directory:
        options = {"port": port, "dir": directory, "appendonly": "yes", "appendfsync": fsync, "save": "''"}
        words = [word for key, value in options.items() for word in (f"--{key}", str(value).strip("'"))]
        with _server([str(REDIS), *words]):
            whole = max(1, int(messages * factor) // group) * group
            parts = [(send_to_redis, 0), (receive_from_redis, 1)]
            return run(parts, whole, size, port=port, group=group)[0]["per_second"]


def redis(messages: int, size: int, *, fsync: str, group: int) -> Callable[[float], float]:
    """Returns what measures Redis Streams; `fsync` is its option appendfsync."""
    return functools.partial(_redis, messages=messages, size=size, fsync=fsync, group=group)


# ---------------------------------------------------------------------------------------- NATS JetStream


class NatsClient:
    """A connection to a NATS server."""

    def __init__(self, port: int) -> None:
        """Connects."""
        self._file: BufferedRWPair = _connect(port).makefile("rwb", 1 << 20)  # type: ignore[assignment]
        self._file.readline()
        self._inbox = secrets.token_hex(8).encode()
        self._file.write(b'CONNECT {"verbose":false}\r\nSUB %b 1\r\n' % self._inbox)

    def put(self, subject: bytes, data: bytes, *, is_answered: bool = True) -> None:
        """Writes a message, without sending it."""
        reply = self._inbox if is_answered else b""
        self._file.write(b"PUB %b %b %d\r\n%b\r\n" % (subject, reply, len(data), data))

    def flush(self) -> None:
        """Sends all messages."""
        self._file.flush()

    def next(self) -> tuple[bytes, bytes]:
        """Returns where the next message is answered, and its data."""
        while True:
            words = self._file.readline().split()
            if words[0] in (b"MSG", b"HMSG"):
                data = self._file.read(int(words[-1]) + 2)[:-2]
                at = 4 if words[0] == b"MSG" else 5
                return words[3] if len(words) > at else b"", data
            if words[0] == b"PING":
                self._file.write(b"PONG\r\n")
                self._file.flush()
            elif words[0] == b"-ERR":
                raise OSError(f"NATS answers {words!r}")

    def call(self, subject: bytes, **options: object) -> Any:  # noqa: ANN401
        """Calls the server."""
        self.put(b"$JS.API." + subject, json.dumps(options).encode() if options else b"")
        self.flush()
        found = json.loads(self.next()[1])
        if "error" in found:
            raise OSError(f"NATS answers {found['error']}")
        return found


def send_to_nats(station: Station) -> Figures:
    """Sends groups of messages, whose saving the server confirms, until all are acknowledged."""
    client, payload, group = NatsClient(station.options["port"]), b"x" * station.size, station.options["group"]
    client.call(b"STREAM.CREATE.kept", name="kept", subjects=["bench"], retention="workqueue", storage="file")
    durable = {"durable_name": "one", "ack_policy": "explicit", "max_ack_pending": 1 << 20}
    client.call(b"CONSUMER.DURABLE.CREATE.kept.one", stream_name="kept", config=durable)
    station.ready()
    begin = time.perf_counter()
    for _ in range(station.messages // group):
        for _ in range(group):
            client.put(b"bench", payload)
        client.flush()
        for _ in range(group):
            client.next()
    while client.call(b"STREAM.INFO.kept")["state"]["messages"]:
        time.sleep(0.0005)
    return {"per_second": station.messages / (time.perf_counter() - begin)}


def receive_from_nats(station: Station) -> Figures:
    """Acknowledges each message."""
    client, count, asked = NatsClient(station.options["port"]), 0, 0
    station.ready()
    ask = json.dumps({"batch": _BATCH}).encode()
    while count < station.messages:
        if count == asked:
            asked += _BATCH
            client.put(b"$JS.API.CONSUMER.MSG.NEXT.kept.one", ask)
            client.flush()
        reply, _ = client.next()
        client.put(reply, b"+ACK", is_answered=False)
        count += 1
        if count % 100 == 0:
            client.flush()
    client.flush()
    return {}


def _nats(factor: float, messages: int, size: int, *, group: int) -> float:
    port = _free_port()
    with tempfile.TemporaryDirectory(prefix="ipcbus-bench-") as directory:
        command = [str(NATS), "-a", "127.0.0.1", "-p", str(port), "-js", "-sd", directory]
        with _server(command):
            whole = max(1, int(messages * factor) // group) * group
            parts = [(send_to_nats, 0), (receive_from_nats, 1)]
            return run(parts, whole, size, port=port, group=group)[0]["per_second"]


def nats(messages: int, size: int, *, group: int) -> Callable[[float], float]:
    """Returns what measures NATS JetStream, which syncs its files every two minutes."""
    return functools.partial(_nats, messages=messages, size=size, group=group)
