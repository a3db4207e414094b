"""What `ipcbus record` says of a recorder."""

from __future__ import annotations

import dataclasses

from ipcbus.archive.recorder import RecorderStats
from ipcbus_tools.commands.record_command import not_recorded, offsets, progress_line

QUIET = RecorderStats("recording", 1_234_567, 5 << 20, 0, 0, 0, 0, 0, 0, 1 << 20, 4 << 20, 1_000_000, 9, 0, "")


def test_a_recorder_that_keeps_up() -> None:
    assert progress_line(QUIET, 1_000_000) == "1,234,567 messages  5.0 MiB  1,000,000 msg/s  buffer 25%"
    assert not_recorded(QUIET) == ["nothing lost"]


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
    assert progress_line(found, 0).endswith("  behind 2.5 s  lost 1,000  dropped 3  missed 7  no room")
    assert not_recorded(found) == [
        "1,000 sequence numbers lost on the bus, in 2 events",
        "1 sequence number not recorded because the buffer was full: raise --buffer",
        "2 sequence numbers not recorded because their messages are longer than a segment",
        "7 sequence numbers sent while the recorder did not run",
        "1,500 sequence numbers not written: no room",
    ]


def test_an_error_is_never_nothing() -> None:
    assert not_recorded(dataclasses.replace(QUIET, error="no room")) == ["the disk refuses: no room"]


def test_offsets_are_shown_as_archive_info_shows_them() -> None:
    assert offsets(0, 15008) == "offsets 0-15007"
    assert offsets(3, 3) == "no offsets"
