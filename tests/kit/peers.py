"""The parent's side of `tests.kit.peer`: starts processes, gives them commands, kills and stops them."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import time
from typing import TYPE_CHECKING, Any

import psutil

from tests.kit.bus import GIVE_UP_S
from tests.kit.payload import Ledger, balanced

if TYPE_CHECKING:
    from typing import Self

    from tests.kit.zygote import Zygote


class PeerError(Exception):
    """A command failed in the other process."""


class PeerProcess:
    """One process."""

    def __init__(self, zygote: Zygote, domain: str, mode: str = "embedded", name: str = "", **options: object) -> None:
        """Starts it; its context is opened unless the domain is empty."""
        stdin, self._commands = os.pipe()
        self._answers, stdout = os.pipe()
        self.pid = zygote.fork(stdin, stdout)
        self._ended = os.pidfd_open(self.pid)
        os.close(stdin)
        os.close(stdout)
        self._line = b""
        if domain:
            self.start("open", domain=domain, mode=mode, name=name, **options)
            self.finish()

    def start(self, do: str, **arguments: object) -> Self:
        """Gives a command without waiting for its answer."""
        os.write(self._commands, json.dumps({"do": do, **arguments}).encode() + b"\n")
        return self

    def finish(self) -> Any:  # noqa: ANN401 - what the command returns
        """Waits for the answer to the oldest command."""
        answer = json.loads(self._read_line())
        if "error" in answer:
            raise PeerError(answer["error"])
        return answer["is"]

    def do(self, do: str, **arguments: object) -> Any:  # noqa: ANN401 - what the command returns
        """Gives a command and waits for its answer."""
        return self.start(do, **arguments).finish()

    def _read_line(self) -> bytes:
        deadline = time.monotonic() + GIVE_UP_S
        while b"\n" not in self._line:
            ready, _, _ = select.select([self._answers], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, f"process {self.pid} does not answer"
            piece = os.read(self._answers, 65536)
            assert piece, f"process {self.pid} has ended"
            self._line += piece
        line, _, self._line = self._line.partition(b"\n")
        return line

    def ledger(self, topic: str, source: str) -> Ledger:
        """What a receiver has entered about one source."""
        return Ledger(**self.do("report", topic=topic)["ledgers"].get(source, {}))

    def kill(self) -> None:
        """Kills it at once, and waits until it is gone."""
        os.kill(self.pid, signal.SIGKILL)
        assert self._gone(GIVE_UP_S), f"process {self.pid} cannot be killed"

    def pause(self) -> None:
        """Stops it with SIGSTOP, and waits until it has."""
        os.kill(self.pid, signal.SIGSTOP)
        while psutil.Process(self.pid).status() != psutil.STATUS_STOPPED:
            os.sched_yield()

    def resume(self) -> None:
        """Lets it go on."""
        os.kill(self.pid, signal.SIGCONT)

    def hang_up(self) -> None:
        """Lets it end by itself, stopped or not."""
        with contextlib.suppress(ProcessLookupError):
            self.resume()
        if self._commands >= 0:
            os.close(self._commands)
            self._commands = -1

    def end(self) -> None:
        """Lets it end by itself, and waits until it has."""
        self.hang_up()
        assert self._gone(GIVE_UP_S), f"process {self.pid} does not end"

    def clear(self) -> None:
        """Waits for its end, or makes it."""
        if not self._gone(GIVE_UP_S):  # one that is killed on its way out leaves its objects behind
            self.kill()
        os.close(self._answers)
        os.close(self._ended)

    def _gone(self, timeout: float) -> bool:
        return bool(select.select([self._ended], [], [], timeout)[0])


class Peers:
    """The processes of one test, in one domain."""

    def __init__(self, zygote: Zygote, domain: str) -> None:
        self._zygote, self.domain = zygote, domain
        self._all: list[PeerProcess] = []

    def start(self, mode: str = "embedded", name: str = "", **options: object) -> PeerProcess:
        """One more process with an open context, unless the mode is empty; `options` are of scope context."""
        peer = PeerProcess(self._zygote, self.domain if mode else "", mode, name, **options)
        self._all.append(peer)
        return peer

    def several(self, count: int, mode: str = "embedded") -> list[PeerProcess]:
        """So many processes."""
        return [self.start(mode, f"peer {number}") for number in range(count)]

    def kill(self, peer: PeerProcess) -> None:
        """Kills one for good."""
        peer.kill()
        peer.hang_up()
        peer.clear()
        self._all.remove(peer)

    def clear(self) -> None:
        """Ends them all; each leaves nothing behind unless it was killed."""
        for peer in self._all:
            peer.hang_up()
        for peer in self._all:
            peer.clear()
        self._all.clear()


def settled(peer: PeerProcess, topic: str, source: str, sent: int) -> Ledger:
    """Waits until a receiver has accounted for all that was sent, asserts its ledger, and returns it."""
    report = peer.do("await_messages", topic=topic, count=sent)
    ledger = Ledger(**report["ledgers"][source])
    balanced(ledger, sent)
    return ledger


def joined(
    sender: PeerProcess, receivers: list[PeerProcess], source: dict[str, object], options: dict[str, object]
) -> str:
    """Makes a receiver of topic `t` in each process, and a source that they join; returns the source string."""
    for peer in receivers:
        peer.do("receiver", topic="t", **options)
    found: str = sender.do("source", topic="t", **source)
    sender.do("joined", topic="t", receivers=len(receivers))
    return found


def told_of_the_end(receivers: list[PeerProcess], source: str, least: int) -> None:
    """Asserts that each receiver of a source that was killed is told of its end once, with all accounted for."""
    for peer in receivers:
        ledger = Ledger(**peer.do("await_end", topic="t")["ledgers"][source])
        assert ledger.wrong == []
        assert (ledger.first, ledger.begun, ledger.ended) == (0, 1, 1)
        assert ledger.delivered + ledger.lost == ledger.next >= least
