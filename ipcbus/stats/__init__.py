"""Statistics of the bus: counters, snapshots and latency, read from shared memory without any effect on others."""

from ipcbus.stats.counters import COUNTERS, Counter, counters_of
from ipcbus.stats.histogram import Histogram, Percentiles
from ipcbus.stats.history import SPAN_S, History
from ipcbus.stats.missing_receivers import Absent, absent
from ipcbus.stats.processes import Processes
from ipcbus.stats.rates import rates
from ipcbus.stats.recorder_model import RecorderStats
from ipcbus.stats.snapshot import domains, take_snapshot, take_snapshots
from ipcbus.stats.snapshot_model import (
    RING,
    ContextStats,
    DomainSnapshot,
    ReceiverStats,
    ReceptionStats,
    SessionStats,
    SlotStats,
    SourceStats,
    UplinkStats,
)

__all__ = [
    "COUNTERS",
    "RING",
    "SPAN_S",
    "Absent",
    "ContextStats",
    "Counter",
    "DomainSnapshot",
    "Histogram",
    "History",
    "Percentiles",
    "Processes",
    "ReceiverStats",
    "ReceptionStats",
    "RecorderStats",
    "SessionStats",
    "SlotStats",
    "SourceStats",
    "UplinkStats",
    "absent",
    "counters_of",
    "domains",
    "rates",
    "take_snapshot",
    "take_snapshots",
]
