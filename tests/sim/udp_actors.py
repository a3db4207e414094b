"""Who takes part in a simulated session over UDP."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Hashable

    from ipcbus.reliability.reliable_receiver import ReliableReceiver
    from ipcbus.reliability.reliable_sender import ReliableSender
    from tests.sim.udp_watch import ReceiverWatch, SourceWatch


@dataclass
class Sender:
    """A source, and what it sent."""

    end: ReliableSender
    watch: SourceWatch
    sent: int = 0
    dead: bool = False
    planned: int = -1
    turns: tuple[int, int] = (0, 0)


@dataclass
class Member:
    """A receiver's stay in a session, and what was delivered to it."""

    end: ReliableReceiver
    sender: Sender
    address: Hashable
    context_id: int
    watch: ReceiverWatch
    got: list[int] = field(default_factory=list)
    dead: bool = False
    died_ns: int = 0
    topics: list[frozenset[int]] = field(default_factory=list)
    planned: int = -1
    turns: tuple[int, int] = (0, 0)

    @property
    def ledger(self) -> tuple[int, int]:
        """Numbers that it was to have, and those accounted for; equal when all is well."""
        counts, first = self.end.counts, self.end.joined_at
        given_up = counts.unrecovered_tmo + counts.unrecovered_txw + counts.unrecovered_full - counts.late
        due = 0 if first is None else self.end.lead - first
        return due, len(self.got) + given_up + self.end.missing + self.end.held
