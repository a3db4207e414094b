from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from ipcbus.errors import SinkError, StorageError
from ipcbus.spark.identity import Identity
from ipcbus.spark.sink.sink_commit import ORPHAN_AGE_S, Application, sweep
from ipcbus.storage.files import Disk
from tests.kit.bus import GIVE_UP_S
from tests.kit.sinking import FakeBus, Stop, staged

if TYPE_CHECKING:
    from pathlib import Path

FIRST = [[b"a", b"b", b"c"], [], [b"d", b"e"]]
SECOND = [[b"f"], [b"g", b"h"]]


@pytest.fixture
def application(tmp_path: Path) -> Application:
    return Application(Disk(), tmp_path, "app")


@pytest.fixture
def bus() -> FakeBus:
    return FakeBus()


def names(application: Application) -> list[str]:
    """What lies in the directory of an application."""
    return Disk().names(application.directory)


def commit(application: Application, bus: FakeBus, batch: int, partitions: list[list[bytes]]) -> None:
    """Stages and commits a batch."""
    application.commit("query", batch, staged(application.directory, batch, partitions), bus.open)


def test_batches_are_published_in_order_with_their_identity(application: Application, bus: FakeBus) -> None:
    commit(application, bus, 0, FIRST)
    commit(application, bus, 1, SECOND)
    assert bus.values == [b"a", b"b", b"c", b"d", b"e", b"f", b"g", b"h"]
    assert [message.identity for message in bus.sent] == [
        *(Identity("app", 0, 0, row) for row in range(3)),
        *(Identity("app", 0, 2, row) for row in range(2)),
        Identity("app", 1, 0, 0),
        *(Identity("app", 1, 1, row) for row in range(2)),
    ]
    assert not bus.flagged
    assert names(application) == ["ledger", "lock"]


def test_files_go_by_partition_however_the_messages_come(application: Application, bus: FakeBus) -> None:
    files = staged(application.directory, 0, [[b"%d" % number] for number in range(12)])
    application.commit("query", 0, files[::-1], bus.open)
    assert bus.values == [b"%d" % number for number in range(12)]


def test_a_batch_is_published_once(application: Application, bus: FakeBus) -> None:
    commit(application, bus, 0, FIRST)
    commit(application, bus, 1, SECOND)
    for batch, partitions in ((1, SECOND), (0, FIRST), (1, FIRST)):
        commit(application, bus, batch, partitions)
    assert len(bus.sent) == 8
    assert bus.opened == 2
    assert names(application) == ["ledger", "lock"], "what was staged in vain is gone"


def test_rows_that_are_left_out_are_told(
    application: Application, bus: FakeBus, caplog: pytest.LogCaptureFixture
) -> None:
    """They are those of a batch that is done again, or of a second frame with the same name."""
    commit(application, bus, 3, FIRST)
    commit(application, bus, 3, [[], []])
    assert not caplog.records
    commit(application, bus, 3, SECOND)
    assert "batch 3 is published already (the last one is 3): 3 rows" in caplog.text


def test_only_what_messages_name_is_published(application: Application, bus: FakeBus) -> None:
    staged(application.directory, 0, [[b"of an attempt that failed"]])
    commit(application, bus, 0, FIRST)
    assert len(bus.sent) == 5
    assert names(application) == ["ledger", "lock"]


def test_an_empty_batch_opens_no_bus(application: Application, bus: FakeBus) -> None:
    commit(application, bus, 0, [[], []])
    assert bus.opened == 0
    commit(application, bus, 1, SECOND)
    assert bus.values == [b"f", b"g", b"h"]


@pytest.mark.parametrize("at", range(5))
@pytest.mark.parametrize("sent", [False, True])
def test_a_replay_goes_on_behind_what_was_published(
    application: Application, bus: FakeBus, at: int, sent: bool
) -> None:
    bus.fails_at, bus.fails_after = (-1, at + 1) if sent else (at, -1)
    with pytest.raises(Stop):
        commit(application, bus, 0, FIRST)
    bus.fails_at = bus.fails_after = -1
    commit(application, bus, 0, [[b"x", b"y"], [b"z"] * 9])  # what is decided is what counts
    assert list(bus.once()) == [b"a", b"b", b"c", b"d", b"e"]
    assert len(bus.sent) == 5 + sent
    assert bus.flagged == [b"abcde"[at : at + 1]], "one message is in doubt"
    commit(application, bus, 1, SECOND)
    assert names(application) == ["ledger", "lock"]


def test_the_next_batch_ends_what_is_undone_first(application: Application, bus: FakeBus) -> None:
    bus.fails_at = 2
    with pytest.raises(Stop):
        commit(application, bus, 0, FIRST)
    bus.fails_at = -1
    commit(application, bus, 1, SECOND)
    assert list(bus.once()) == [b"a", b"b", b"c", b"d", b"e", b"f", b"g", b"h"]


def test_an_empty_replay_ends_what_is_undone(application: Application, bus: FakeBus) -> None:
    bus.fails_at = 2
    with pytest.raises(Stop):
        commit(application, bus, 0, FIRST)
    bus.fails_at = -1
    application.commit("query", 0, [], bus.open)
    assert list(bus.once()) == [b"a", b"b", b"c", b"d", b"e"]


def test_a_power_loss_puts_the_whole_batch_in_doubt(
    application: Application, bus: FakeBus, monkeypatch: pytest.MonkeyPatch
) -> None:
    bus.fails_at = 3
    with pytest.raises(Stop):
        commit(application, bus, 0, FIRST)
    monkeypatch.setattr(Disk, "boot_id", lambda self: b"x" * 16)
    bus.fails_at = 5  # and a crash soon after it
    with pytest.raises(Stop):
        commit(application, bus, 0, FIRST)
    bus.fails_at = -1
    commit(application, bus, 0, FIRST)
    assert list(bus.once()) == [b"a", b"b", b"c", b"d", b"e"]
    assert bus.flagged == [b"a", b"b", b"c", b"d", b"e"]


def test_another_query_may_not_go_on_with_the_numbers(application: Application, bus: FakeBus) -> None:
    commit(application, bus, 4, FIRST)
    files = staged(application.directory, 5, SECOND)
    with pytest.raises(SinkError, match="to query query, which has reached batch 4, not to other.*txnAppId"):
        application.commit("other", 5, files, bus.open)
    with pytest.raises(SinkError, match="not to \\(a batch job\\)"):
        application.commit("", 5, files, bus.open)
    assert len(bus.sent) == 5


def test_two_at_once_are_refused_by_name(application: Application, bus: FakeBus) -> None:
    files = staged(application.directory, 0, FIRST)
    lock = Disk().lock(application.directory / "lock")
    assert lock is not None
    with pytest.raises(SinkError, match="app is in use by pid .*give each its own"):
        application.commit("query", 0, files, bus.open, lock_timeout_s=0.05)
    lock.release()
    assert not bus.sent


def test_who_commits_still_is_waited_for(application: Application, bus: FakeBus) -> None:
    files = staged(application.directory, 0, FIRST)
    lock = Disk().lock(application.directory / "lock")
    assert lock is not None
    other = threading.Thread(
        target=application.commit, args=("query", 0, files, bus.open), kwargs={"lock_timeout_s": GIVE_UP_S}
    )
    other.start()
    lock.release()
    other.join()
    assert len(bus.sent) == 5


def test_a_file_of_another_host_is_found_before_anything_is_decided(application: Application, bus: FakeBus) -> None:
    files = staged(application.directory, 0, FIRST)
    (application.directory / files[1].name).unlink()
    with pytest.raises(SinkError, match="not on this host"):
        application.commit("query", 0, files, bus.open)
    assert not bus.sent
    commit(application, bus, 0, SECOND)
    assert bus.values == [b"f", b"g", b"h"]


def test_damage_of_what_is_decided_is_an_error_before_more_is_sent(application: Application, bus: FakeBus) -> None:
    files = staged(application.directory, 0, FIRST)
    bus.fails_at = 1
    with pytest.raises(Stop):
        application.commit("query", 0, files, bus.open)
    path = application.directory / files[1].name
    path.write_bytes(path.read_bytes()[:-1])
    bus.fails_at = -1
    with pytest.raises(StorageError, match="damaged"):
        commit(application, bus, 0, FIRST)
    assert bus.values == [b"a"]


# Abort.


def test_abort_removes_what_was_staged(application: Application) -> None:
    files = staged(application.directory, 0, FIRST)
    application.abort(files)
    assert names(application) == ["lock"]


def test_abort_leaves_what_a_commit_has_decided(application: Application, bus: FakeBus) -> None:
    files = staged(application.directory, 0, FIRST)
    more = staged(application.directory, 0, SECOND)
    bus.fails_at = 1
    with pytest.raises(Stop):
        application.commit("query", 0, files, bus.open)
    application.abort(files + more)
    assert [name for name in names(application) if name.endswith("arrow")] == sorted(file.name for file in files)
    bus.fails_at = -1
    commit(application, bus, 0, FIRST)
    assert list(bus.once()) == [b"a", b"b", b"c", b"d", b"e"]


def test_abort_leaves_everything_while_a_commit_is_at_work(application: Application) -> None:
    files = staged(application.directory, 0, FIRST)
    lock = Disk().lock(application.directory / "lock")
    assert lock is not None
    application.abort(files)
    lock.release()
    assert {file.name for file in files} < set(names(application))


def test_abort_of_nothing_makes_nothing(application: Application) -> None:
    application.abort([])
    assert not application.directory.exists()


# Jobs, which nobody goes on with.


def test_a_job_leaves_nothing(tmp_path: Path, bus: FakeBus) -> None:
    for end in ("commit", "abort", "failed commit"):
        job = Application(Disk(), tmp_path, f"job-{end}")
        files = staged(job.directory, 0, FIRST)
        if end == "commit":
            job.commit("", 0, files, bus.open)
            assert len(bus.sent) == 5
        elif end == "failed commit":
            bus.fails_at = 6
            with pytest.raises(Stop):
                job.commit("", 0, files, bus.open)
        if end != "commit":
            job.abort(files)
        assert list(tmp_path.iterdir()) == []


# What nobody commits.


def test_orphans_go_when_they_are_old(tmp_path: Path, bus: FakeBus) -> None:
    forgotten = Application(Disk(), tmp_path, "forgotten")
    (orphan,) = staged(forgotten.directory, 3, [[b"x"]])
    (tmp_path / "job-1").mkdir()
    (lost,) = staged(tmp_path / "job-1", 0, [[b"x"]])
    half = Application(Disk(), tmp_path, "half")
    bus.fails_at = 0
    with pytest.raises(Stop):
        commit(half, bus, 0, FIRST)
    born = orphan_time(orphan.name)
    assert sweep(Disk(), tmp_path, born + ORPHAN_AGE_S - 100) == 0
    assert sweep(Disk(), tmp_path, born + ORPHAN_AGE_S + 100) == 2
    assert not (tmp_path / "job-1").exists()
    assert lost.name not in names(half)
    assert names(forgotten) == ["lock"]
    assert len([name for name in names(half) if name.endswith("arrow")]) == 2, "decided is decided"


def orphan_time(name: str) -> int:
    """When a file was staged."""
    return int(name.split(".")[3], 16)


def test_orphans_of_who_commits_now_stay(tmp_path: Path) -> None:
    busy = Application(Disk(), tmp_path, "busy")
    (file,) = staged(busy.directory, 3, [[b"x"]])
    lock = Disk().lock(busy.directory / "lock")
    assert lock is not None
    assert sweep(Disk(), tmp_path, orphan_time(file.name) + ORPHAN_AGE_S + 100) == 0
    lock.release()


def test_a_damaged_ledger_keeps_only_its_own_orphans(tmp_path: Path) -> None:
    damaged, fine = (Application(Disk(), tmp_path, name) for name in ("damaged", "fine"))
    (file,) = staged(damaged.directory, 0, [[b"x"]])
    staged(fine.directory, 0, [[b"x"]])
    (damaged.directory / "ledger").write_bytes(b"nonsense")
    assert sweep(Disk(), tmp_path, orphan_time(file.name) + ORPHAN_AGE_S + 100) == 1
    assert file.name in names(damaged)


def test_what_else_lies_there_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "directory").mkdir()
    (tmp_path / "directory" / "notes.txt").write_text("x")
    assert sweep(Disk(), tmp_path, 1e12) == 0
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["directory", "file", "notes.txt"]
