"""kill -9 of guaranteed sources and named receivers: nothing that a send returned for is lost, and order is kept."""

from __future__ import annotations

import random
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

import ipcbus
from ipcbus.runtime.gmd_areas import open_sender_area
from ipcbus.runtime.sending import guaranteed_sources
from tests.kit.bus import GIVE_UP_S, LBTIPC, LBTIPC_SOURCE_PACED, LBTRU, LBTSMX, LBTTCP, Kind
from tests.kit.gmd_logs import ReceiverLog, lines
from tests.kit.payload import body
from tests.kit.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

    from ipcbus.gmd.sender_area import SenderArea
    from tests.kit.peers import PeerProcess, Peers

SENDER, RECEIVER = "sender", "receiver"
LONGEST_WAIT_S = 0.1


class Pair:
    """A sender and a named receiver, each killed and started again."""

    def __init__(self, peers: Peers, kind: Kind, path: Path) -> None:
        self.peers, self.kind = peers, kind
        self.sent, self.got = path / "sent", ReceiverLog(path / "got")
        self.options = {"ipc_gmd_directory": str(path / "gmd")}
        self.processes = {SENDER: self._sender(), RECEIVER: self._receiver()}

    def _sender(self) -> PeerProcess:
        peer = self.peers.start(liveness_check_interval=20)
        options: dict[str, Any] = {"transport": self.kind.transport, **self.kind.options, **self.options}
        names = {"gmd_name": SENDER, "delivery_mode": "all"}
        peer.start("send_guaranteed", topic="t", log=str(self.sent), **names, **options)
        return peer

    def _receiver(self) -> PeerProcess:
        peer = self.peers.start(liveness_check_interval=20)
        peer.start("note_guaranteed", topic="t", log=str(self.got.path), gmd_name=RECEIVER, **self.options)
        return peer

    def kill(self, who: list[str]) -> None:
        """Kills one of both, or both, and starts them again."""
        for each in who:
            self.peers.kill(self.processes[each])
        if RECEIVER in who:
            self.got.begin_life()
        for each in who:
            self.processes[each] = self._sender() if each == SENDER else self._receiver()

    def account(self) -> None:
        """Waits until all is acknowledged, and checks what came."""
        for each in self.processes.values():
            each.finish()
        self.processes[SENDER].do("halt")
        last = self.processes[SENDER].do("await_acknowledged", topic="t")
        self.got.check(body, last)
        assert {number for (number,) in lines(self.sent)} <= set(range(1, last + 1))


def test_a_receiver_that_is_killed_while_an_area_is_opened_leaves_its_name(
    peers: Peers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    goes_on, sources = threading.Event(), list[ipcbus.Source]()

    def open_later(*given: Any) -> SenderArea:  # noqa: ANN401 - what open_sender_area gets
        assert goes_on.wait(GIVE_UP_S)
        return open_sender_area(*given)

    monkeypatch.setattr(guaranteed_sources, "open_sender_area", open_later)
    options = {"ipc_gmd_directory": str(tmp_path / "gmd")}
    log = str(tmp_path / "got")
    with ipcbus.Context({"context": {"liveness_check_interval": 20}}, domain=peers.domain) as context:
        sending = context._sending_sessions

        def make_source() -> None:
            sources.append(context.source("t", gmd_name=SENDER, delivery_mode="all", **options))

        making = threading.Thread(target=make_source)
        making.start()
        first = peers.start()
        first.do("note_guaranteed", topic="t", log=log, gmd_name=RECEIVER, **options)
        until(lambda: any(sending.guaranteed._opening.values()), "the registration")
        peers.kill(first)
        until(
            lambda: not any(each.any for each in sending.control_channels._sessions.values()), "the end of its channel"
        )
        goes_on.set()
        making.join()
        peers.start().do("note_guaranteed", topic="t", log=log, gmd_name=RECEIVER, **options)
        sources[0].wait_for_receivers(1, GIVE_UP_S)
        sources[0].send(b"x", flush=True)
        until(lambda: not sources[0].gmd_num_pending, "the acknowledgement")


@pytest.mark.parametrize(
    ("kind", "kills", "seed"),
    [
        *((kind, 7, 1) for kind in (LBTIPC, LBTIPC_SOURCE_PACED, LBTSMX, LBTRU, LBTTCP)),
        *(pytest.param(kind, 340, 2, marks=pytest.mark.long) for kind in (LBTIPC, LBTSMX, LBTRU, LBTTCP)),
    ],
    ids=lambda value: value.name if isinstance(value, Kind) else str(value),
)
def test_nothing_is_lost_when_processes_are_killed(
    peers: Peers, kind: Kind, kills: int, seed: int, tmp_path: Path
) -> None:
    """Half of the kills come while messages flow, the other ones at any moment of a start."""
    draw = random.Random(f"{kind.name} {seed}")
    pair = Pair(peers, kind, tmp_path)
    for _ in range(kills):
        if draw.random() < 0.5:
            pair.got.await_more(pair.got.size)
        time.sleep(draw.uniform(0, LONGEST_WAIT_S))
        pair.kill(draw.choice([[SENDER], [RECEIVER], [SENDER, RECEIVER]]))
    pair.account()
