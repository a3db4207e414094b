"""A process of a test: does what its parent writes to its standard input, one JSON line a command.

Every command is a method of `Peer`; the answer is one JSON line on standard output.
Where the application delivers, the context's descriptor is watched beside the standard input.
"""

from __future__ import annotations

import dataclasses
import gc
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
import zlib
from typing import TYPE_CHECKING, Any

import psutil

import ipcbus
import ipcbus.context  # now: a peer that becomes another user may not be able to read it any more
from ipcbus import MessageFlag, MessageType
from ipcbus.archive import Archive
from ipcbus.archive.recorder import Recorder
from ipcbus.resolution.local.stale_cleanup import sweep
from tests.kit import forking, killing
from tests.kit.bus import GIVE_UP_S, mode_options
from tests.kit.killing import Steps
from tests.kit.look import objects
from tests.kit.payload import LOSSES, Books, body

if TYPE_CHECKING:
    from collections.abc import Callable

    from ipcbus import Context, Message, Receiver, Source

_STREAM_BURST = 50


class Peer:
    """The commands."""

    def __init__(self) -> None:
        self.context: Context | None = None
        self.sequential = False
        self.receivers: dict[str, Receiver] = {}
        self.books: dict[str, Books] = {}
        self.slow: dict[str, tuple[int, float]] = {}
        self.sources: dict[str, Source] = {}
        self.events: dict[str, list[list[Any]]] = {}
        self.recorder: Recorder | None = None
        self._stop_streams = threading.Event()
        self._streams: list[threading.Thread] = []
        self._flowing: dict[str, int] = {}
        self._pause = 0.0
        self.noted: dict[str, int] = {}
        self._step: Callable[[str], None] = lambda name: None
        self._never = threading.Event()

    def open(self, domain: str, mode: str = "embedded", name: str = "", **options: object) -> int:
        """Opens the context; `options` are of scope context."""
        self.context = ipcbus.Context({"context": {**mode_options(mode), **options}}, name=name, domain=domain)
        self.sequential = mode != "embedded"
        return os.getpid()

    def lose(self, percent: int) -> None:
        """Has the sockets of contexts that are opened from now on lose so many of the datagrams that come."""
        for name in ("LBTRU", "LBTRM"):
            os.environ[f"{name}_LOSS_RATE"] = os.environ[f"{name}_SRC_LOSS_RATE"] = str(percent)

    def close(self) -> None:
        """Closes the context; what its receivers have entered stays."""
        self.halt()
        if self.context is not None:
            self.context.close()
        self.context = None
        self.sources.clear()

    def receiver(self, topic: str, every: int = 0, pause: float = 0.0, **options: object) -> None:
        """Makes a receiver with a ledger; with `every` it pauses after so many messages."""
        self.books[topic] = Books()
        self.slow[topic] = (every, pause)
        self.receivers[topic] = self._opened().receiver(topic, self._callback(topic), **options)

    def _callback(self, topic: str) -> Callable[[Message], None]:
        books = self.books[topic]

        def on_message(message: Message) -> None:
            books.enter(message)
            every, pause = self.slow[topic]
            if every and message.type is MessageType.DATA and message.sequence_number % every == every - 1:
                self._never.wait(pause)

        return on_message

    def record(self, directory: str, topics: list[str], **options: Any) -> None:  # noqa: ANN401 - as Recorder has them
        """Records into an archive; the stream is always the same one."""
        archive = Archive.create(directory)
        self.recorder = Recorder(self._opened(), archive, topics, stream="s", **options)
        self.recorder.start()

    def stop_recording(self) -> dict[str, Any]:
        """Ends the recorder; returns its statistics."""
        if self.recorder is None:
            raise RuntimeError("nothing is recorded")
        return dataclasses.asdict(self.recorder.stop())

    def note_guaranteed(self, topic: str, log: str, **options: object) -> None:
        """Makes a receiver that appends a line for each guaranteed message to a file: number, checksum, sent again."""
        fd = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

        def on_message(message: Message) -> None:
            number = message.gmd_sequence_number
            if message.type is MessageType.DATA:
                again = int(bool(message.flags & MessageFlag.GMD_RESEND))
                self._step("deliver")
                os.write(fd, b"%d %d %d\n" % (number, zlib.crc32(message.data), again))
                self._step("delivered")
                self.noted[topic] = number
            elif message.type in LOSSES:
                os.write(fd, b"-1 0 0\n")

        self.receivers[topic] = self._opened().receiver(topic, on_message, **options)

    def work(self, topic: str, log: str, **options: object) -> None:
        """Makes a member of a share that appends a line for each message to a file: its data, assigned before.

        The message -1 kills it.
        """
        fd = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

        def on_message(message: Message) -> None:
            if message.type is MessageType.DATA:
                again = int(bool(message.flags & MessageFlag.UMQ_REASSIGNED))
                if message.data == b"-1":
                    os.kill(os.getpid(), signal.SIGKILL)
                os.write(fd, b"%d %d\n" % (int(message.data), again))

        self.receivers[topic] = self._opened().receiver(topic, on_message, **options)

    def die_at(self, step: int, log: str) -> None:
        """Notes in a file each step of the receivers made from now on with their GMD areas, and is killed at one."""
        fd = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        steps = Steps(step, lambda _, name: os.write(fd, f"{name}\n".encode()))
        killing.in_receivers(steps)
        self._step = steps.take

    def await_noted(self, topic: str, number: int) -> None:
        """Waits until a guaranteed message of this number or a higher one is noted."""
        self._until(lambda: self.noted.get(topic, 0) >= number)

    def send_guaranteed(self, topic: str, log: str, **options: object) -> None:
        """Sends guaranteed messages in a thread until `halt`, and notes in a file each send that returned."""
        source = self.sources[topic] = self._opened().source(topic, **options)

        def run() -> None:
            fd = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            while not self._stop_streams.is_set():
                number = source.gmd_sequence_number + 1
                source.send(body(number), flush=number % 8 == 0)
                os.write(fd, b"%d\n" % number)
                if number % 8 == 0:
                    self._stop_streams.wait(0.002)
            source.flush()
            os.close(fd)

        self._streams.append(threading.Thread(target=run, daemon=True))
        self._streams[-1].start()

    def await_acknowledged(self, topic: str) -> int:
        """Waits until nothing is pending; returns the number of the last message."""
        source = self.sources[topic]
        self._until(lambda: not source.gmd_num_pending)
        return source.gmd_sequence_number

    def hurry(self, topic: str) -> None:
        """Makes a slow receiver fast."""
        self.slow[topic] = (0, 0.0)

    def leave(self, topic: str) -> None:
        """Closes a receiver."""
        self.receivers.pop(topic).close()

    def source(self, topic: str, **options: object) -> str:
        """Makes a source; returns its source string."""
        told = self.events[topic] = []
        self.sources[topic] = self._opened().source(
            topic, on_event=lambda event: told.append([event.type.name, event.pid, event.context_name]), **options
        )
        return self.sources[topic].source

    def source_string(self, topic: str) -> str:
        """Returns the source string of a source."""
        return self.sources[topic].source

    def joined(self, topic: str, receivers: int = 1) -> None:
        """Waits until so many contexts receive the topic."""
        self.sources[topic].wait_for_receivers(receivers, GIVE_UP_S)

    def send(self, topic: str, count: int, size: int = 64) -> int:
        """Sends so many messages and publishes them; returns how many numbers the source has used in all."""
        source = self.sources[topic]
        for _ in range(count):
            source.send(body(source.sequence_number + 1, size))  # one in pieces takes several numbers
        source.flush()
        return source.sequence_number + 1

    def fill(self, topic: str, size: int) -> int:
        """Sends until no receiver makes room any more; returns how many numbers the source has used in all."""
        source, refused = self.sources[topic], 0
        while refused < 50:
            try:
                source.send(body(source.sequence_number + 1, size), block=False)
                refused = 0
            except ipcbus.WouldBlock:
                refused += 1
                threading.Event().wait(0.01)
        return source.sequence_number + 1

    def send_numbered(self, topic: str, count: int, size: int = 64) -> int:
        """Sends so many guaranteed messages, each with its GMD number; returns the last number."""
        source = self.sources[topic]
        for _ in range(count):
            source.send(body(source.gmd_sequence_number + 1, size))
        source.flush()
        return source.gmd_sequence_number

    def send_mixed(self, topic: str, count: int) -> list[int]:
        """Sends so many guaranteed messages, and one without a guarantee behind each; returns the numbers of these."""
        source, plain = self.sources[topic], []
        for _ in range(count):
            source.send(body(source.gmd_sequence_number + 1))
            source.send(b"plain", delivery_mode="best_effort")
            plain.append(source.sequence_number)
        source.flush()
        return plain

    def pending(self, topic: str, count: int = 0) -> int:
        """Waits until at most so many guaranteed messages are pending; returns how many are."""
        self._until(lambda: self.sources[topic].gmd_num_pending <= count)
        return self.sources[topic].gmd_num_pending

    def expected(self, topic: str, name: str) -> None:
        """Waits until a named receiver is registered."""
        self._until(lambda: name in self.sources[topic].gmd_receivers)

    def used(self, topic: str) -> int:
        """Returns how many numbers a source has used."""
        return self.sources[topic].sequence_number + 1

    def kept_from(self, topic: str) -> int:
        """Returns the lowest number that a source keeps."""
        retentions = self._opened()._sending_sessions.retentions._retentions
        (low,) = [each.low for source, each in retentions.items() if source.topic == topic]
        return low

    def put(self, topic: str, count: int) -> None:
        """Sends so many messages and leaves them in the open batch."""
        source = self.sources[topic]
        for number in range(source.sequence_number + 1, source.sequence_number + 1 + count):
            source.send(body(number))

    def stream(self, topic: str, size: int = 64, pause: float = 0.0) -> None:
        """Sends on and on: in a thread of its own, or between commands where one thread has to do it all.

        Args:
            topic: of the source.
            size: bytes of a message.
            pause: seconds between bursts.
        """
        if self.sequential:
            self._flowing[topic], self._pause = size, pause
            return

        def run() -> None:
            while not self._stop_streams.is_set():
                self._burst(topic, size)
                self._stop_streams.wait(pause)

        self._streams.append(threading.Thread(target=run))
        self._streams[-1].start()

    def _burst(self, topic: str, size: int) -> None:
        source = self.sources[topic]
        for _ in range(_STREAM_BURST):
            source.send(body(source.sequence_number + 1, size))

    def halt(self) -> dict[str, int]:
        """Ends the streams; returns how many messages each source has sent, all of them published."""
        self._stop_streams.set()
        for thread in self._streams:
            thread.join(GIVE_UP_S)
        self._streams.clear()
        self._flowing.clear()
        self._stop_streams.clear()
        for source in self.sources.values():
            source.flush()
        return self.sent()

    def sent(self) -> dict[str, int]:
        """How many messages each source has sent."""
        return {topic: source.sequence_number + 1 for topic, source in self.sources.items()}

    def end(self, topic: str) -> int:
        """Closes a source; returns how many messages it has sent."""
        source = self.sources.pop(topic)
        source.close()
        return source.sequence_number + 1

    def told(self, topic: str, kind: str, count: int = 1) -> list[list[Any]]:
        """Waits for so many events of a kind; returns the source's events as kind, pid and context name."""
        self._until(lambda: sum(event[0] == kind for event in self.events[topic]) >= count)
        return self.events[topic]

    def await_messages(self, topic: str, count: int) -> dict[str, Any]:
        """Waits until so many messages came or were reported lost; returns the ledgers."""
        self._until(lambda: self.books[topic].accounted >= count)
        return self.report(topic)

    def await_end(self, topic: str, count: int = 1) -> dict[str, Any]:
        """Waits for so many EOS events; returns the ledgers."""
        self._until(lambda: self.books[topic].ended >= count)
        return self.report(topic)

    def await_number(self, topic: str, source: str, number: int) -> dict[str, Any]:
        """Waits until a source's messages below a number came or were reported lost, if any; returns its ledger."""
        ledgers = self.books[topic].ledgers
        self._until(lambda: source not in ledgers or ledgers[source].first < 0 or ledgers[source].next >= number)
        return ledgers[source].as_dict() if source in ledgers else {}

    def sleep(self, seconds: float) -> None:
        """Does nothing for a time: an application that drives its context pauses."""
        self._never.wait(seconds)

    def await_sessions(self, topic: str, count: int, state: str = "joined") -> list[dict[str, Any]]:
        """Waits until the receiver knows so many sessions in a state; returns them."""

        def found() -> list[dict[str, Any]]:
            return [
                {
                    "source": each.source,
                    "pid": each.owner_pid,
                    "reason": each.reason,
                    "layer": each.layer,
                    "counters": each.counters,
                }
                for each in self.receivers[topic].sessions
                if each.state == state
            ]

        self._until(lambda: len(found()) == count)
        return found()

    def await_layer(self, topic: str, layer: str, reason: str = "") -> list[dict[str, Any]]:
        """Waits until all that a receiver has joined comes by this layer, for this reason; returns its sessions.

        Args:
            topic: of the receiver.
            layer: as in `SessionInfo.layer`.
            reason: a part of it.
        """

        def there() -> bool:
            joined = [each for each in self.receivers[topic].sessions if each.state == "joined"]
            return bool(joined) and all(each.layer == layer and reason in each.reason for each in joined)

        self._until(there)
        return self.await_sessions(topic, sum(each.state == "joined" for each in self.receivers[topic].sessions))

    def await_receivers(self, topic: str, count: int) -> None:
        """Waits until exactly so many contexts receive a source's topic."""
        self._until(lambda: self.sources[topic].receivers == count)

    def await_objects(self, count: int) -> None:
        """Waits until the domain has so many objects."""
        self._until(lambda: len(objects(self._opened().domain)) == count)

    def open_link(self) -> None:
        """Opens the control channel of the first session over UDP, and sends a frame; for a sequential context."""
        context = self._opened()
        link = context._network._udp_receivers[0].open_link()
        self._until(lambda: link.put(b"from the peer"))
        link.push()

    def report(self, topic: str) -> dict[str, Any]:
        """The ledgers of a receiver by source string, and what the receiver itself counted."""
        ledgers = {source: ledger.as_dict() for source, ledger in self.books[topic].ledgers.items()}
        receiver = self.receivers[topic]
        return {"ledgers": ledgers, "lost": receiver.lost, "delivered": receiver.delivered}

    def fork(self, how: str) -> dict[str, str]:
        """Forks, lets the child use every handle, and waits for its end; returns what each use raised.

        Args:
            how: `exit` ends the child like a program, `_exit` at once, `multiprocessing` takes that way to fork,
                `stays` returns while the child lives on.
        """
        return forking.fork(self, how)

    def fork_in_acquire(self, topic: str) -> dict[str, Any]:
        """Forks inside an acquire block; the child leaves the block too."""
        return forking.fork_in_acquire(self.sources[topic])

    def exit(self) -> None:
        """Ends the process as a program would that closes nothing."""
        sys.exit()

    def lend_connections(self) -> int:
        """Starts a process that holds the TCP connections of this one open; returns its pid."""
        numbers = [each.fd for each in psutil.Process().net_connections("tcp")]
        return subprocess.Popen(["sleep", "600"], pass_fds=numbers).pid

    def sweep(self) -> list[str]:
        """Clears what the dead of the domain left; returns the names."""
        return sweep(self._opened().domain)

    def drop(self) -> None:
        """Forgets the context and every handle without closing them."""
        self.context = None
        self.receivers.clear()
        self.sources.clear()
        gc.collect()

    def become(self, uid: int, gid: int) -> None:
        """Becomes another user for good."""
        os.setgroups([])
        os.setgid(gid)
        os.setuid(uid)

    # ------------------------------------------------------------------ the loop

    def _opened(self) -> Context:
        if self.context is None:
            raise RuntimeError("no context is open")
        return self.context

    def _until(self, condition: Callable[[], object]) -> None:
        deadline = time.monotonic() + GIVE_UP_S
        while not condition():
            if time.monotonic() > deadline:
                raise TimeoutError("waited in vain")
            if self.sequential and self.context is not None:
                self.context.process_events(0.01)
            else:
                self._never.wait(0.001)

    def run(self) -> None:
        """Takes commands until the standard input ends."""
        while True:
            watched: list[Any] = [sys.stdin]
            if self.sequential and self.context is not None:
                watched.append(self.context.fileno())
            ready, _, _ = select.select(watched, [], [], self._pause if self._flowing else None)
            if sys.stdin not in ready:
                if len(watched) > 1:
                    self._opened().process_events(0)
                for topic, size in self._flowing.items():
                    self._burst(topic, size)
                continue
            line = sys.stdin.buffer.raw.readline()  # type: ignore[union-attr]
            if not line:
                self.halt()
                return
            print(json.dumps(self._do(json.loads(line))), flush=True)

    def _do(self, command: dict[str, Any]) -> dict[str, Any]:
        name = command.pop("do")
        try:
            return {"is": getattr(self, name)(**command)}
        except Exception as error:
            return {"error": f"{type(error).__name__}: {error}"}
