"""kill -9 of members of a share: each message is worked off, and twice only if it is marked."""

from __future__ import annotations

import random
import threading
import time
from typing import TYPE_CHECKING

import pytest

import ipcbus
from tests.kit.bus import LBTIPC, LBTRU, LBTSMX, Kind
from tests.kit.gmd_logs import lines

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kit.peers import PeerProcess, Peers

MEMBERS = 3
GIVE_UP_S = 60.0


class Crew:
    """Members in processes of their own, which are killed and replaced."""

    def __init__(self, peers: Peers, path: Path) -> None:
        self.peers, self.path = peers, path
        self.members = [self.hire() for _ in range(MEMBERS)]

    def hire(self) -> PeerProcess:
        """Starts a member."""
        peer = self.peers.start(liveness_check_interval=20)
        peer.do("work", topic="t", log=str(self.path), share="workers")
        return peer

    def kill(self, number: int) -> None:
        """Kills a member, and starts another one."""
        self.peers.kill(self.members[number])
        self.members[number] = self.hire()


@pytest.mark.parametrize(
    ("kind", "kills"),
    [
        *((kind, 5) for kind in (LBTIPC, LBTRU)),
        *(pytest.param(kind, 100, marks=pytest.mark.long) for kind in (LBTIPC, LBTSMX, LBTRU)),
    ],
    ids=lambda value: value.name if isinstance(value, Kind) else str(value),
)
def test_each_message_is_worked_off_when_members_are_killed(
    peers: Peers, domain: str, kind: Kind, kills: int, tmp_path: Path
) -> None:
    draw, log, over = random.Random(kills), tmp_path / "done", threading.Event()
    with ipcbus.Context({"context": {"liveness_check_interval": 20}}, domain=domain) as context:
        source = context.source("t", transport=kind.transport, **kind.options)
        crew = Crew(peers, log)
        source.wait_for_receivers(MEMBERS, GIVE_UP_S)

        def send() -> None:
            while not over.is_set():
                source.send(b"%d" % (source.sequence_number + 1), flush=True)

        sending = threading.Thread(target=send)
        sending.start()
        try:
            for _ in range(kills):
                time.sleep(draw.uniform(0, 0.05))
                crew.kill(draw.randrange(MEMBERS))
        finally:
            over.set()
            sending.join()
        sent, deadline = source.sequence_number + 1, time.monotonic() + GIVE_UP_S
        while (found := source.shares["workers"]).pending:
            assert time.monotonic() < deadline, found
            time.sleep(0.01)
        assert (found.consumed, found.lost) == (sent, 0)
        done = [(number, again) for number, again in lines(log)]
        assert {number for number, _ in done} == set(range(sent))
        first_times = [number for number, again in done if not again]
        assert len(set(first_times)) == len(first_times)
        assert len(done) - sent <= found.reassigned <= kills * 64


def test_a_message_that_kills_each_member_goes_to_another_topic(peers: Peers, domain: str, tmp_path: Path) -> None:
    log = tmp_path / "done"
    options = {"umq_ulb_message_max_reassignments": 2, "umq_ulb_dead_letter_topic": "dead"}
    with ipcbus.Context({"context": {"liveness_check_interval": 20}}, domain=domain) as context:
        source, dead = context.source("t", **options), context.receiver("dead", events=False)
        members = [peers.start(liveness_check_interval=20) for _ in range(3)]
        for member in members:
            member.do("work", topic="t", log=str(log), share="workers")
        source.wait_for_receivers(3, GIVE_UP_S)
        source.send_many([b"-1" if number == 70 else b"%d" % number for number in range(200)], flush=True)
        deadline = time.monotonic() + GIVE_UP_S
        while (found := source.shares["workers"]).pending:
            assert time.monotonic() < deadline, found
            time.sleep(0.005)
        assert (found.consumed, found.lost, found.dead_letters, found.members) == (199, 1, 1, 1)
        letter = dead.receive(GIVE_UP_S)
        assert letter is not None
        assert (letter.data, dict(letter.headers)["umq_sequence_number"]) == (b"-1", b"70")
        assert {number for number, _ in lines(log)} == set(range(200)) - {70}
