"""kill -9 of named receivers at each step of their own areas: nothing is lost, and what comes again has the flag."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

import ipcbus
from tests.kit.bus import LBTIPC, LBTRU, LBTSMX, LBTTCP, Kind
from tests.kit.gmd_logs import ReceiverLog
from tests.kit.payload import body
from tests.kit.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from ipcbus import Source
    from tests.kit.peers import PeerProcess, Peers

MESSAGES = 5
UNRECORDED = 2
AT_A_TIME = 3
"""Receivers that live at the same time."""


@dataclass
class Line:
    """A topic with a source in this process, and a named receiver in others, which are killed."""

    peers: Peers
    source: Source
    log: ReceiverLog
    durability: str
    step: int
    """At which a receiver is killed."""

    @property
    def topic(self) -> str:
        """Its topic."""
        return self.log.path.name

    @property
    def steps(self) -> list[str]:
        """The steps of the last process."""
        path = self.log.path.with_suffix(f".{len(self.log.lives)}")
        return path.read_text().splitlines() if path.exists() else []

    def send(self) -> None:
        """Sends what the next process gets."""
        for _ in range(MESSAGES):
            self.source.send(body(self.source.gmd_sequence_number + 1))
        self.source.flush()

    def receive(self, step: int) -> PeerProcess:
        """Starts a process that receives all, and closes its receiver; it is killed at a step."""
        if self.log.size or self.log.path.with_suffix(".1").exists():
            self.log.begin_life()
        peer = self.peers.start(mode="")
        peer.start("die_at", step=step, log=str(self.log.path.with_suffix(f".{len(self.log.lives)}")))
        peer.start("open", domain=self.peers.domain, liveness_check_interval=20)
        self.note(peer)
        peer.start("await_noted", topic=self.topic, number=self.source.gmd_sequence_number)
        peer.start("close")
        peer.hang_up()
        return peer

    def note(self, peer: PeerProcess) -> None:
        """Has a process receive."""
        options = {"gmd_durability": self.durability, "gmd_unrecorded_maximum": UNRECORDED}
        options |= {"gmd_name": "receiver", "ipc_gmd_directory": str(self.log.path.with_suffix(".gmd"))}
        peer.start("note_guaranteed", topic=self.topic, log=str(self.log.path), **options)


def each_killed(lines: Iterable[Line]) -> None:
    """Lets a receiver of each line be killed at its step."""
    running: list[PeerProcess] = []
    for line in lines:
        line.send()
        running.append(line.receive(line.step))
        if len(running) == AT_A_TIME:
            running.pop(0).end()
    for peer in running:
        peer.end()


def firsts(steps: list[str]) -> list[int]:
    """Numbers of the steps that have a new name."""
    return [number for number, name in enumerate(steps, 1) if name not in steps[: number - 1]]


@pytest.mark.parametrize(
    ("kind", "durability", "generations"),
    [
        (LBTIPC, "each", 1),
        *(
            pytest.param(kind, durability, 4, marks=pytest.mark.long)
            for kind in (LBTIPC, LBTSMX, LBTRU, LBTTCP)
            for durability in ("process", "each")
        ),
    ],
    ids=lambda value: value.name if isinstance(value, Kind) else str(value),
)
def test_kills_at_each_step(
    peers: Peers, domain: str, kind: Kind, durability: str, generations: int, tmp_path: Path
) -> None:
    """The first receiver lives to its end and shows the steps; each other one is killed at one of them.

    The short form kills at the first step of each name.
    """
    given: dict[str, Any] = {"transport": kind.transport, **kind.options, "ipc_gmd_type": "memory"}
    with ipcbus.Context({"context": {"liveness_check_interval": 20}}, domain=domain) as context:

        def line(step: int) -> Line:
            source = context.source(f"t{step}", gmd_name="sender", delivery_mode="all", **given)
            return Line(peers, source, ReceiverLog(tmp_path / f"t{step}"), durability, step)

        lines = [line(0)]
        each_killed(lines)
        shown = lines[0].steps
        print(*enumerate(shown, 1), sep="\n")
        lines += [line(step) for step in (range(1, len(shown) + 1) if generations > 1 else firsts(shown))]
        each_killed(lines[1:])
        killed = {each.steps[-1] for each in lines[1:] if len(each.steps) == each.step}
        assert killed == set(shown)
        for generation in range(1, generations):
            for each in lines:
                each.step = (each.step * 7 * generation) % len(shown) + 1
            each_killed(lines)
        last = peers.start()
        for each in lines:
            each.log.begin_life()
            each.note(last)
        for each in lines:
            until(lambda: not each.source.gmd_num_pending, f"acknowledgements of {each.topic}")  # noqa: B023
            each.log.check(body, each.source.gmd_sequence_number, UNRECORDED)
