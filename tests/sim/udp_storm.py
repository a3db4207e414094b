"""What a seed draws for a session over UDP: the wire, the terms, the traffic, who comes and goes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ipcbus.reliability.clients import ClientSettings
from ipcbus.reliability.loss_detector import NakSettings
from ipcbus.reliability.receive_state import ReceiveSettings
from ipcbus.reliability.receiver_settings import ReceiverSettings
from ipcbus.reliability.send_state import SendSettings
from ipcbus.reliability.session_sender import SenderSettings

if TYPE_CHECKING:
    from random import Random

MS = 1_000_000
SECOND = 1000 * MS


@dataclass(frozen=True)
class Storm:
    """One draw; parts of 1, times in ns.

    Attributes:
        multicast: what is for all goes to a group.
        ample: no term is in the way of recovery.
        loss_to: on the way to receivers.
        loss_back: on the way to the source.
        duplication: of packets that come twice.
        reordering: of packets that are late.
        delay: of all others.
        blocked_naks: no NAK comes.
        blocked_back: nothing comes to the source.
        datagrams: of the whole run.
        gap: between two.
        size: of each.
        joins: when each receiver comes.
        resumes: whether it wants what was sent before.
        restarts: when a receiver dies and comes again at its address; None when it does not.
        dies: when it dies for good.
        source_restarts: when the source dies and comes again with another session.
        source_says: whether it told the end before.
        outage: from when to when nothing comes through in either direction.
        forgers: packets from addresses that nobody has proven.
        send: the source's terms.
        receive: the receivers'.
    """

    multicast: bool
    ample: bool
    loss_to: float
    loss_back: float
    duplication: float
    reordering: float
    delay: int
    blocked_naks: bool
    blocked_back: bool
    datagrams: int
    gap: int
    size: int
    joins: tuple[int, ...]
    resumes: tuple[bool, ...]
    restarts: tuple[int | None, ...]
    dies: tuple[int | None, ...]
    source_restarts: int | None
    source_says: bool
    outage: tuple[int, int]
    forgers: int
    send: SenderSettings
    receive: ReceiverSettings

    @property
    def traffic(self) -> int:
        """How long it is sent, if the data rate allows it."""
        return self.datagrams * self.gap

    @property
    def recovers_all(self) -> bool:
        """Whether nothing may stay missing at a receiver that lives."""
        outage = self.outage[1] - self.outage[0]
        return (
            self.ample and max(self.loss_to, self.loss_back) <= 0.1 and outage < self.receive.receiving.naks.generation
        )

    @staticmethod
    def draw(random: Random) -> Storm:
        """Any storm; sometimes a calm one."""
        ample = random.random() < 0.5
        size = random.choice([8, 100, 1400])
        datagrams = random.choice([1, 20, 120])
        gap = random.choice([0, MS // 10, 20 * MS])
        length = SECOND // 2 + datagrams * gap
        receivers = random.choice([1, 1, 2, 4])
        multicast = random.random() < 0.5

        start = int(random.uniform(0, 1) * length)

        def some_time(chance: float) -> int | None:
            return int(random.uniform(0.1, 1) * length) if random.random() < chance else None

        return Storm(
            multicast=multicast,
            ample=ample,
            loss_to=random.choice([0, 0.01, 0.1, 0.3]),
            loss_back=random.choice([0, 0.01, 0.1, 0.3]),
            duplication=random.choice([0, 0, 0.1]),
            reordering=random.choice([0, 0.1, 0.5]),
            delay=random.choice([1, 5, 30]) * MS,
            blocked_naks=not ample and random.random() < 0.2,
            blocked_back=not ample and multicast and random.random() < 0.1,
            datagrams=datagrams,
            gap=gap,
            size=size,
            joins=tuple(random.choice([0, some_time(1) or 0]) for _ in range(receivers)),
            resumes=tuple(random.random() < 0.3 for _ in range(receivers)),
            restarts=tuple(some_time(0.15) for _ in range(receivers)),
            dies=tuple(some_time(0.1) for _ in range(receivers)),
            source_restarts=some_time(0.15),
            source_says=random.random() < 0.5,
            outage=(start, start + random.choice([3, 12]) * SECOND) if random.random() < 0.1 else (0, 0),
            forgers=random.choice([0, 0, 30]),
            send=_source_terms(random, ample, size),
            receive=_receiver_terms(random, ample),
        )


def _source_terms(random: Random, ample: bool, size: int) -> SenderSettings:
    return SenderSettings(
        SendSettings(
            # A tiny window lets go of what receivers still miss.
            window_size=25_165_824 if ample else random.choice([25_165_824, size, 5 * size]),
            window_limit=0 if ample else random.choice([0, 0, 1000]),
            data_rate=random.choice([0, 10_000_000, 1_000_000]),
            retransmit_rate=random.choice([0, 5_000_000] if ample else [0, 5_000_000, 200_000]),
            ignore_interval=random.choice([-1, 100 * MS]),
            rate_interval=random.choice([5, 10, 100]) * MS,
            queue_max=1024 if ample else random.choice([1, 4, 1024]),
            receiver_paced=random.random() < 0.5,
            congestion_control=random.random() < 0.5,
            drop_bytes=random.choice([0, 1, 5 * size]),
        ),
        ClientSettings(clients_max=1024 if ample else random.choice([2, 1024])),
    )


def _receiver_terms(random: Random, ample: bool) -> ReceiverSettings:
    return ReceiverSettings(
        ReceiveSettings(
            NakSettings(
                initial_backoff=random.choice([0, 50]) * MS,
                backoff=random.choice([-1, 200 * MS]),
                generation=10 * SECOND if ample else random.choice([500, 2_000, 10_000]) * MS,
                entries_max=1 << 16 if ample else random.choice([4, 1 << 16]),
            ),
            activity_timeout=random.choice([31, 60]) * SECOND,
        ),
        maximum_connect_attempts=600 if ample else random.choice([20, 600]),
        jump_max=random.choice([16, 1 << 16]),
    )
