"""Stays of one receiver in a session over UDP, between outages longer than the activity timeout, in virtual time."""

from __future__ import annotations

from random import Random

import pytest

from ipcbus.reliability.loss_detector import NakSettings
from ipcbus.reliability.receive_state import ReceiveSettings
from ipcbus.reliability.receiver_settings import ReceiverSettings
from ipcbus.reliability.registration import State
from ipcbus.reliability.reliable_receiver import ReliableReceiver
from ipcbus.reliability.reliable_sender import ALL, ReliableSender
from ipcbus.reliability.send_state import SendSettings
from ipcbus.reliability.session_sender import SenderSettings

AT, HERE = ("10.0.0.1", 14380), ("10.0.0.2", 5000)
MS, SECOND = 1_000_000, 1_000_000_000
STEP = 10 * MS
SIZE = 100
RECEIVE = ReceiverSettings(
    ReceiveSettings(NakSettings(20 * MS, 40 * MS, 50 * MS, generation=SECOND), activity_timeout=2 * SECOND)
)


class Run:
    """One seed: a source that sends all the time, and a receiver that comes back after each silence."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.multicast = self.random.random() < 0.5
        self.loss = self.random.choice([0, 0.1, 0.3])
        self.window = self.random.choice([SIZE * 1000, 25_165_824])
        self.now = 0
        self.outages = 0
        sending = SendSettings(
            window_size=self.window,
            data_rate=0,
            retransmit_rate=0,
            sm_maximum=500 * MS,
            ignore_interval=10 * MS,
            receiver_paced=seed % 3 > 0,
            drop_bytes=self.random.choice([0, SIZE]),
        )
        self.source = ReliableSender(7, SenderSettings(sending), bytes(16), 0, self.multicast)
        self.stays: list[ReliableReceiver] = []
        self.got: set[int] = set()
        self.cut = False
        self._join(None)

    def _join(self, resume_at: int | None) -> None:
        draws = Random(self.random.random())
        self.stays.append(ReliableReceiver(7, AT, RECEIVE, draws, self.now, (1, 2, "here"), self.multicast, resume_at))

    @property
    def here(self) -> ReliableReceiver:
        return self.stays[-1]

    def _take(self, found: list[tuple[bytes, int]]) -> None:
        self.got.update(int.from_bytes(datagram[:8], "big") for datagram, _ in found)

    def step(self, send: bool) -> None:
        """Lets a little time pass."""
        self.now += STEP
        for _ in range(self.random.randrange(4) if send else 0):
            if self.source.blocked:
                break
            self.source.send(self.source.lead.to_bytes(8, "big").ljust(SIZE), 1, 5, self.now)
        self.source.turn(self.now)
        self.here.turn(self.now)
        self._take(self.here.ready(self.now))
        for _ in range(3):
            for packet in self.here.take():
                if not self._lost():
                    self.source.receive(packet, HERE, self.now)
            for packet, to in self.source.take():
                if not self._lost() and (to == HERE or (to is ALL and (self.multicast or self.source.addresses))):
                    self._take(self.here.receive(packet, AT, self.now))
        if self.here.over:
            assert self.here.state in (State.SILENT, State.ENDED)
            self._take(self.here.ready(self.now))
            self._join(self.here.stopped_at)

    def _lost(self) -> bool:
        return self.cut or self.random.random() < self.loss

    def run(self) -> None:
        """Sends for some seconds before, during and after each outage, then until nothing is missing."""
        for _ in range(3):
            for _ in range(300):
                self.step(send=True)
            self.cut = True
            for _ in range(self.random.choice([250, 1500])):  # also longer than the source keeps a silent client
                self.step(send=True)
            self.cut = False
        for _ in range(1500):
            self.step(send=False)


@pytest.mark.parametrize("seed", range(8))
def test_what_a_source_holds_comes_in_the_next_stay_and_each_number_is_accounted_for(seed: int) -> None:
    run = Run(seed)
    run.run()
    assert len(run.stays) >= 4
    first = run.stays[0].joined_at
    assert first is not None
    missed = set(range(first, run.source.lead)) - run.got
    given_up = [stay.counts.unrecovered_tmo + stay.counts.unrecovered_txw - stay.counts.late for stay in run.stays]
    stays = zip(run.stays, run.stays[1:], strict=False)
    gone = [(after.joined_at or 0) - (before.stopped_at or 0) for before, after in stays]
    assert len(missed) <= sum(given_up) + sum(gone)
    if run.window > SIZE * 1000 and not run.loss:
        assert missed == set()
    last = run.here
    assert last.state is State.JOINED
    assert (last.lead, last.missing, last.catches_up) == (run.source.lead, 0, False)
    assert min(gone) >= 0
