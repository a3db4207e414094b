"""kill -9 of guaranteed sources and named receivers: nothing that a send returned for is lost, and order is kept."""

from __future__ import annotations

import itertools
import random
import time
from typing import TYPE_CHECKING, Any

import pytest

from tests.kit.bus import GIVE_UP_S, LBTIPC, LBTIPC_SOURCE_PACED, LBTRU, LBTSMX, Kind

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kit.peers import PeerProcess, Peers

every_kind = pytest.mark.parametrize(
    "kind", [LBTIPC, LBTIPC_SOURCE_PACED, LBTSMX, LBTRU], ids=lambda kind: str(kind.name)
)
MESSAGES = 5_000
UNRECORDED = 64


def lines(log: Path) -> list[tuple[int, ...]]:
    """The whole lines of a log."""
    text = log.read_text() if log.exists() else ""
    return [tuple(map(int, line.split())) for line in text[: text.rfind("\n") + 1].splitlines()]


def until_longer(log: Path, length: int) -> None:
    """Waits until a log has so many lines."""
    deadline = time.monotonic() + GIVE_UP_S
    while log.read_bytes().count(b"\n") < length if log.exists() else True:
        assert time.monotonic() < deadline, f"{log.name} does not grow to {length} lines"
        time.sleep(0.001)


class Two:
    """A sender and a named receiver, each killed and started again."""

    def __init__(self, peers: Peers, kind: Kind, path: Path, who: str) -> None:
        self.who = who
        self.peers, self.kind, self.path = peers, kind, path
        self.sent, self.got = path / "sent", path / "got"
        self.options = {"ipc_gmd_directory": str(path / "gmd")}
        self.receiver_kills = 0
        self.sender, self.receiver = self._start_sender(), self._start_receiver()

    def _start_sender(self) -> PeerProcess:
        peer = self.peers.start(liveness_check_interval=20)
        options: dict[str, Any] = {"transport": self.kind.transport, **self.kind.options, **self.options}
        peer.do(
            "send_guaranteed",
            topic="t",
            log=str(self.sent),
            count=MESSAGES,
            gmd_name="sender",
            delivery_mode="all",
            **options,
        )
        return peer

    def _start_receiver(self) -> PeerProcess:
        peer = self.peers.start(liveness_check_interval=20)
        peer.do("note_guaranteed", topic="t", log=str(self.got), gmd_name="receiver", **self.options)
        return peer

    def kill(self) -> None:
        """Kills one of both, or both, and starts them again."""
        who = self.who
        if who in ("sender", "both"):
            self.sender.kill()
        if who in ("receiver", "both"):
            self.receiver.kill()
            self.receiver_kills += 1
        if who in ("sender", "both"):
            self.sender = self._start_sender()
        if who in ("receiver", "both"):
            self.receiver = self._start_receiver()

    def account(self) -> None:
        """Waits until all is acknowledged, and checks what came."""
        self.sender.do("await_acknowledged", topic="t", count=MESSAGES)
        returned = {number for (number,) in lines(self.sent)}
        # When a source ends, messages that come again from the next one may be reported lost.
        got = [each for each in lines(self.got) if each[0] >= 0 or self.who == "receiver"]
        numbers = [number for number, _, _ in got]
        assert [each for each in got if each[0] != each[1]] == []
        assert returned <= set(numbers)
        assert set(numbers) == set(range(1, MESSAGES + 1))
        seen: set[int] = set()
        duplicates = 0
        for number, _, again in got:
            if number in seen:
                duplicates += 1
                assert again, f"message {number} came twice without the flag"
            else:
                assert number == max(seen, default=0) + 1, f"message {number} came after {max(seen, default=0)}"
            seen.add(number)
        assert duplicates <= UNRECORDED * self.receiver_kills
        steps = [later - earlier for earlier, later in itertools.pairwise(numbers)]
        assert all(step == 1 or step <= 0 for step in steps)


@every_kind
@pytest.mark.parametrize("who", ["sender", "receiver", "both"])
def test_killed_and_started_again(peers: Peers, kind: Kind, who: str, tmp_path: Path) -> None:
    draw = random.Random(f"{kind.name} {who}")
    two = Two(peers, kind, tmp_path, who)
    for each in sorted(draw.sample(range(1, MESSAGES // 2), 3)):
        until_longer(two.got, each)
        two.kill()
    two.account()
