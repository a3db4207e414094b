from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from ipcbus.errors import StorageError
from ipcbus.spark.sink.publish_ledger import Decision, PublishLedger
from ipcbus.spark.sink.staged_rows import Staged
from ipcbus.storage.files import Disk
from ipcbus.storage.records import frame

if TYPE_CHECKING:
    from pathlib import Path

FILES = (Staged("3.0.1.65000000.0123abcd.arrow", 5, 100, 1), Staged("3.1.2.65000000.0123abcd.arrow", 2, 80, 2))


class Rebooted(Disk):
    """A disk after a power loss."""

    def boot_id(self) -> bytes:
        return b"x" * 16


@pytest.fixture
def ledger(tmp_path: Path) -> PublishLedger:
    (tmp_path / "q").mkdir()
    return PublishLedger(Disk(), tmp_path / "q")


def test_a_new_one_is_empty(ledger: PublishLedger) -> None:
    assert ledger.load() is None


def test_what_is_decided_stays_so(ledger: PublishLedger) -> None:
    decision = ledger.decide("query", 3, FILES)
    assert ledger.load() == decision == Decision("query", 3, False, Disk().boot_id().hex(), FILES)
    assert decision.rows == 7
    done = ledger.finish(decision)
    assert ledger.load() == done == Decision("query", 3, True, decision.boot, ())


def test_progress_goes_on_where_it_was(ledger: PublishLedger) -> None:
    decision = ledger.decide("query", 3, FILES)
    with ledger.progress(decision) as progress:
        assert (progress.published, progress.started) == (0, 0)
        progress.begin(0)
        progress.begin(1)
    with ledger.progress(decision) as progress:
        assert (progress.published, progress.started) == (1, 2)


def test_of_a_new_batch_nothing_is_published(ledger: PublishLedger) -> None:
    first = ledger.decide("query", 3, FILES)
    with ledger.progress(first) as progress:
        progress.begin(6)
    ledger.finish(first)
    with ledger.progress(ledger.decide("query", 4, FILES)) as progress:
        assert (progress.published, progress.started) == (0, 0)


def test_after_a_power_loss_all_is_in_doubt_and_stays_so_until_it_is_sent(tmp_path: Path) -> None:
    (tmp_path / "q").mkdir()
    before = PublishLedger(Disk(), tmp_path / "q")
    decision = before.decide("query", 3, FILES)
    with before.progress(decision) as progress:
        progress.begin(4)
    after = PublishLedger(Rebooted(), tmp_path / "q")
    with after.progress(decision) as progress:
        assert (progress.published, progress.started) == (0, 7)
        progress.begin(2)
    again = after.load()
    assert again is not None
    with after.progress(again) as progress:
        assert (progress.published, progress.started) == (2, 7)


@pytest.mark.parametrize("content", [None, b"", b"x" * 15, b"x" * 17, b"\xff" * 16, bytes([8] + [0] * 7) * 2])
def test_progress_that_cannot_be_is_doubt(ledger: PublishLedger, tmp_path: Path, content: bytes | None) -> None:
    decision = ledger.decide("query", 3, FILES)
    path = tmp_path / "q" / "progress.3"
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content)
    with ledger.progress(decision) as progress:
        assert (progress.published, progress.started) == (0, 7)


def test_a_damaged_ledger_is_an_error_that_names_it(ledger: PublishLedger, tmp_path: Path) -> None:
    ledger.decide("query", 3, FILES)
    path = tmp_path / "q" / "ledger"
    good = path.read_bytes()
    for at in range(len(good)):
        path.write_bytes(good[:at] + bytes([good[at] ^ 0x10]) + good[at + 1 :])
        with pytest.raises(StorageError, match="ledger: .*another txnAppId"):
            ledger.load()
    for other in (b"", good[:-1], good * 2):
        path.write_bytes(other)
        with pytest.raises(StorageError):
            ledger.load()


GOOD = json.loads(Decision("q", 3, False, "00", FILES).to_json())


@pytest.mark.parametrize(
    "wrong",
    [
        {"v": 2},
        {"batch": -1},
        {"batch": True},
        {"batch": 1 << 63},
        {"batch": None},
        {"query": 5},
        {"done": 0},
        {"boot": None},
        {"files": None},
        {"files": [5]},
        {"files": [{}]},
        {"files": [{**GOOD["files"][0], "name": "../../etc/passwd"}]},
        {"files": [{**GOOD["files"][0], "name": 5}]},
        {"files": [{**GOOD["files"][0], "rows": -1}]},
        {"files": [{**GOOD["files"][0], "more": 1}]},
    ],
    ids=str,
)
def test_what_is_no_decision_is_refused(ledger: PublishLedger, tmp_path: Path, wrong: dict[str, object]) -> None:
    path = tmp_path / "q" / "ledger"
    path.write_bytes(frame(json.dumps(GOOD).encode()))
    assert ledger.load() is not None
    path.write_bytes(frame(json.dumps({**GOOD, **wrong}).encode()))
    with pytest.raises(StorageError):
        ledger.load()


@pytest.mark.parametrize("text", [b"", b"[]", b"{", b"\xff", b"[" * 100_000, b"5"])
def test_what_is_no_json_is_refused(ledger: PublishLedger, tmp_path: Path, text: bytes) -> None:
    path = tmp_path / "q" / "ledger"
    path.write_bytes(frame(text))
    with pytest.raises(StorageError):
        ledger.load()
