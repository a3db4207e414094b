"""A process that has imported everything and forks one peer after the other: a start in milliseconds.

Run as `python -m tests.kit.zygote DESCRIPTOR`, the other end of a socket pair. Each message on it carries the peer's
standard input and output; the answer is its process id. It has no threads and no contexts, so forking it is clean.
"""

from __future__ import annotations

import gc
import os
import signal
import socket
import subprocess
import sys
from typing import TYPE_CHECKING

from tests.kit.peer import Peer
from tests.unit.sources import ROOT

if TYPE_CHECKING:
    from typing import Self


class Zygote:
    """The tests' side."""

    def __init__(self) -> None:
        """Starts it."""
        self._socket, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.kit.zygote", str(theirs.fileno())],
                cwd=ROOT,
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
            )

    def fork(self, stdin: int, stdout: int) -> int:
        """Forks a peer with these descriptors; returns its process id."""
        socket.send_fds(self._socket, [b"x"], [stdin, stdout])
        return int(self._socket.recv(16))

    def close(self) -> None:
        """Ends it."""
        self._socket.close()
        self._process.wait()

    def __enter__(self) -> Self:
        """Itself."""
        return self

    def __exit__(self, *args: object) -> None:
        """Ends it."""
        self.close()


def main() -> None:
    """Forks until the tests hang up."""
    with socket.socket(fileno=int(sys.argv[1])) as ours:
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the system buries the peers
        # Else the collector copies the whole inherited heap when a peer ends: a tenth of a second for each peer.
        gc.freeze()
        while True:
            message, files, _, _ = socket.recv_fds(ours, 1, 2)
            if not message:
                return
            pid = os.fork()
            if not pid:
                break
            for descriptor in files:
                os.close(descriptor)
            ours.send(str(pid).encode().ljust(16))
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for descriptor, standard in zip(files, (0, 1), strict=True):
        os.dup2(descriptor, standard)
        os.close(descriptor)
    Peer().run()


if __name__ == "__main__":
    main()
