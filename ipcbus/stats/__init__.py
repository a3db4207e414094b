"""What happens on the bus, read from shared memory without touching anybody: counters, snapshots, latency."""

from ipcbus.stats.counters import COUNTERS, Counter, counters_of
from ipcbus.stats.histogram import Histogram, Percentiles
from ipcbus.stats.model import ContextStats, DomainSnapshot, ReceiverStats, SessionStats, SlotStats, SourceStats
from ipcbus.stats.snapshot import domains, take_snapshot, take_snapshots

__all__ = [
    "COUNTERS",
    "ContextStats",
    "Counter",
    "DomainSnapshot",
    "Histogram",
    "Percentiles",
    "ReceiverStats",
    "SessionStats",
    "SlotStats",
    "SourceStats",
    "counters_of",
    "domains",
    "take_snapshot",
    "take_snapshots",
]
