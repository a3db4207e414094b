"""What a simulated wire does to datagrams."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tests.sim.world import MS

if TYPE_CHECKING:
    from random import Random


class Wire(NamedTuple):
    """What happens to datagrams on the way to one context; parts of 1, and times in ns."""

    loss: float
    recovery: float
    recovery_ns: int
    duplication: float
    reordering: float
    delay_ns: int
    cut: float

    @staticmethod
    def draw(random: Random) -> Wire:
        """Any wire; often a perfect one."""
        return Wire(
            loss=random.choice([0, 0.01, 0.1, 0.3]),
            recovery=random.choice([0, 0.5, 1]),
            recovery_ns=random.choice([1, 20]) * MS,
            duplication=random.choice([0, 0, 0.1]),
            reordering=random.choice([0, 0.1, 0.5]),
            delay_ns=random.choice([1, 30]) * MS,
            cut=random.choice([0, 0, 0, 0.03]),
        )

    @property
    def brings_all(self) -> bool:
        """Whether every datagram comes in full at last."""
        return (self.loss == 0 or self.recovery == 1) and self.cut == 0

    @property
    def longest_ns(self) -> int:
        """Bound of how late a datagram can come."""
        return self.delay_ns + self.recovery_ns + MS
