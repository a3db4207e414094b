"""The wait in the batch in rows: what a stage makes of the times of a message, and what is read of old and new rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from ipcbus.archive import Archive, archive, blocks, removed_offsets, watermark
from ipcbus.archive.archive_layout import BATCH_WAIT, BATCH_WAIT_NS, LOSS_TYPES, ROW
from ipcbus.archive.batch_waits import UNKNOWN, batch_waits, numbers
from ipcbus.delivery.received_message import whole_message
from ringbuf import clock
from tests.kit.archives import add, values_of
from tests.kit.cases import each_of
from tests.kit.staging import Desk

if TYPE_CHECKING:
    from pathlib import Path

SECOND_NS = 10**9
LONGEST = (2**31 - 1) * BATCH_WAIT_NS


def staged(sent_ns: int, wait_ns: int | None, first: int = 5) -> tuple[int, int]:
    """Numbers and wait of the row of message 5, sent some time ago and published after a wait; None: not known."""
    desk = Desk()
    sent = clock.ticks() - round(sent_ns / clock.tick_ns())
    published = 0 if wait_ns is None else sent + round(wait_ns / clock.tick_ns())
    desk.stage.record(whole_message(desk.origin, b"x", first, 5, 0, sent, None, None, published))
    assert desk.hold()
    rows = desk.held[0].rows
    return int(numbers(rows)[0]), int(batch_waits(rows)[0])


@each_of("wait_ns", [0, 50, 62_000_000, 30 * SECOND_NS])
def test_a_wait_is_kept_to_16_ns(wait_ns: int) -> None:
    found, wait = staged(31 * SECOND_NS, wait_ns)
    assert found == 1
    assert wait == pytest.approx(wait_ns, abs=BATCH_WAIT_NS, rel=1e-9)


def test_a_longer_one_than_a_row_can_tell_is_the_longest() -> None:
    assert staged(60 * SECOND_NS, 50 * SECOND_NS) == (1, LONGEST)


@pytest.mark.parametrize("wait_ns", [None, -SECOND_NS, 12 * SECOND_NS], ids=["unknown", "before", "yet to come"])
def test_what_cannot_be_is_not_known(wait_ns: int | None) -> None:
    """Published before it was sent, or long after it was received."""
    assert staged(10 * SECOND_NS, wait_ns) == (1, UNKNOWN)


def test_that_of_a_message_of_several_numbers_is_not_known() -> None:
    assert staged(SECOND_NS, SECOND_NS // 2, first=3) == (3, UNKNOWN)


def test_rows_of_losses_and_events_tell_no_wait() -> None:
    rows = np.zeros(256, ROW)
    rows["type"] = np.arange(256)
    rows["numbers"] = BATCH_WAIT | 7
    assert (
        np.flatnonzero(batch_waits(rows) != UNKNOWN).tolist()
        == np.flatnonzero(numbers(rows) == 1).tolist()
        == [0, 2, 3]
    )
    assert (numbers(rows)[list(LOSS_TYPES)] == 2**31 + 7).all()


def test_an_archive_of_format_1_is_read_and_recorded_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as then:
        for module in (archive, blocks, removed_offsets, watermark):
            then.setattr(module, "FORMAT", 1)
        with Archive.create(tmp_path).writer("s") as writer:
            add(writer, [b"old"] * 3)
    with Archive.create(tmp_path).writer("s") as writer:
        add(writer, [b"new"] * 2, first=3)
    (log,) = Archive(tmp_path).logs()
    found = list(log.read(*log.bounds()))
    assert values_of(found) == [b"old"] * 3 + [b"new"] * 2
    assert {int(wait) for chunk in found for wait in batch_waits(chunk.rows)} == {UNKNOWN}
    formats = [
        block.format
        for segment in sorted(log.folder.glob("*.blk"))
        for block in blocks.parse(segment.read_bytes(), int(segment.stem))
        if block
    ]
    assert formats == [1, 2]
