"""The parent's side of `tests.kit.peer`: starts processes, gives them commands, kills and stops them."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

from tests.kit.bus import GIVE_UP_S
from tests.kit.payload import Ledger, balanced
from tests.unit.sources import ROOT

if TYPE_CHECKING:
    from typing import Self


CLEAR_S = 5.0


class PeerError(Exception):
    """A command failed in the other process."""


class PeerProcess:
    """One process."""

    def __init__(self, domain: str, mode: str = "embedded", name: str = "", **options: object) -> None:
        """Starts it; its context is opened unless the domain is empty."""
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.kit.peer"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
        )
        self.pid = self._process.pid
        self._line = b""
        if domain:
            self.start("open", domain=domain, mode=mode, name=name, **options)
            self.finish()

    def start(self, do: str, **arguments: object) -> Self:
        """Gives a command without waiting for its answer."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": do, **arguments}).encode() + b"\n")
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
        assert self._process.stdout is not None
        deadline = time.monotonic() + GIVE_UP_S
        while b"\n" not in self._line:
            ready, _, _ = select.select([self._process.stdout], [], [], deadline - time.monotonic())
            assert ready, f"process {self.pid} does not answer"
            piece = os.read(self._process.stdout.fileno(), 65536)
            assert piece, f"process {self.pid} has ended"
            self._line += piece
        line, _, self._line = self._line.partition(b"\n")
        return line

    def ledger(self, topic: str, source: str) -> Ledger:
        """What a receiver has entered about one source."""
        return Ledger(**self.do("report", topic=topic)["ledgers"].get(source, {}))

    def kill(self) -> None:
        """Kills it at once, and waits until it is gone."""
        self._process.kill()
        self._process.wait()

    def pause(self) -> None:
        """Stops it with SIGSTOP, and waits until it has."""
        os.kill(self.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WNOWAIT)

    def resume(self) -> None:
        """Lets it go on."""
        os.kill(self.pid, signal.SIGCONT)

    def end(self) -> int:
        """Ends it by ending its input; returns its exit status."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        return self._process.wait(GIVE_UP_S)

    def hang_up(self) -> None:
        """Lets it end by itself, stopped or not."""
        if self._process.poll() is None:
            self.resume()
        if self._process.stdin is not None:
            self._process.stdin.close()

    def clear(self) -> None:
        """Waits for its end, or makes it."""
        try:
            self._process.wait(CLEAR_S)
        except subprocess.TimeoutExpired:
            self.kill()
        if self._process.stdout is not None:
            self._process.stdout.close()


class Peers:
    """The processes of one test, in one domain."""

    def __init__(self, domain: str) -> None:
        self.domain = domain
        self._all: list[PeerProcess] = []

    def start(self, mode: str = "embedded", name: str = "", **options: object) -> PeerProcess:
        """One more process with an open context; `options` are of scope context."""
        peer = PeerProcess(self.domain, mode, name, **options)
        self._all.append(peer)
        return peer

    def several(self, count: int, mode: str = "embedded") -> list[PeerProcess]:
        """So many processes at once, which takes less time than one after the other."""
        peers = [PeerProcess("") for _ in range(count)]
        self._all += peers
        for number, peer in enumerate(peers):
            peer.start("open", domain=self.domain, mode=mode, name=f"peer {number}")
        for peer in peers:
            peer.finish()
        return peers

    def clear(self) -> None:
        """Ends them all; each leaves nothing behind unless it was killed."""
        for peer in self._all:
            peer.hang_up()
        for peer in self._all:
            peer.clear()


def settled(peer: PeerProcess, topic: str, source: str, sent: int) -> Ledger:
    """Waits until a receiver has accounted for all that was sent, asserts its ledger, and returns it."""
    report = peer.do("await_messages", topic=topic, count=sent)
    ledger = Ledger(**report["ledgers"][source])
    balanced(ledger, sent)
    return ledger
