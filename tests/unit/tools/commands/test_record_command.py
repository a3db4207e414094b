"""What `ipcbus record` says of a recorder."""

from __future__ import annotations

import dataclasses

from ipcbus.archive.recorder import RecorderStats
from ipcbus_tools.commands.record_command import live, shortfalls

QUIET = RecorderStats("recording", 1_234_567, 5 << 20, 0, 0, 0, 0, 0, 0, 1 << 20, 4 << 20, 1_000_000, 9, 0, "")


def test_a_recorder_that_keeps_up() -> None:
    assert live(QUIET, 1_000_000) == "1,234,567 messages  5.0 MiB  1,000,000 msg/s  memory 25%"
    assert shortfalls(QUIET) == ["nothing lost"]


def test_a_recorder_that_does_not() -> None:
    found = dataclasses.replace(
        QUIET,
        state="failing",
        losses=2,
        lost=1000,
        dropped=3,
        too_large=2,
        missed=7,
        unwritten=1500,
        behind_ns=2_500_000_000,
        error="no room",
    )
    assert live(found, 0).endswith("  behind 2.5 s  lost 1,000  dropped 3  missed 7  no room")
    assert shortfalls(found) == [
        "1,000 sequence numbers lost on the bus, in 2 events",
        "1 sequence number not recorded for lack of memory: see --buffer",
        "2 sequence numbers not recorded, as no segment can hold messages of so many bytes",
        "7 sequence numbers missed while no recorder was there",
        "1,500 sequence numbers not written: no room",
    ]


def test_an_error_is_never_nothing() -> None:
    assert shortfalls(dataclasses.replace(QUIET, error="no room")) == ["the disk refuses: no room"]
