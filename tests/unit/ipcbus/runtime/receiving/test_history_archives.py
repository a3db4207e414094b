"""Opening the archive of option history_archive."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import ipcbus
from ipcbus.archive import Archive, Limits, Recorder
from ipcbus.runtime.receiving.history_archives import open_history
from tests.kit.recording import written
from tests.kit.waiting import until

if TYPE_CHECKING:
    from pathlib import Path


def test_an_empty_path_is_no_archive(tmp_path: Path) -> None:
    assert open_history("") is None
    Archive.create(tmp_path)
    found = open_history(str(tmp_path))
    assert found is not None
    assert found.of("t", "s", 0).begin(10, 0) is not None


def test_the_error_says_what_to_give(tmp_path: Path) -> None:
    with pytest.raises(ipcbus.ArchiveMissing, match="give the directory"):
        open_history(str(tmp_path))
    with pytest.raises(ipcbus.ConfigError, match="zero byte"):
        open_history("\0")


def test_what_comes_from_an_archive_is_counted(domain: str, tmp_path: Path) -> None:
    with ipcbus.Context(domain=domain) as context, ipcbus.Context(domain=domain) as late:
        source = context.source("t")
        with Recorder(context, Archive.create(tmp_path), ["t"], limits=Limits(segment_bytes=10_000)) as recorder:
            source.wait_for_receivers(1, 30)
            for count in (100, 200, 300):
                source.send_many([b"x" * 64] * 100, flush=True)
                written(recorder, count)
        file = sorted(tmp_path.rglob("*.idx"))[1]
        file.write_bytes(bytes(file.stat().st_size))
        receiver = late.receiver("t", lambda message: None, history_archive=str(tmp_path))
        until(lambda: receiver.delivered + receiver.lost >= 300, "all numbers")
        counters = late._receiving_sessions.recoveries.counters()
        assert counters["archived_rcved"] == 200
        assert counters["archive_faults"] > 0
        assert receiver.lost == 100
