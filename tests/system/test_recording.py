"""The recorder among real processes that are killed, stopped, and too fast for it."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from ipcbus import MessageType, stats
from ipcbus.archive import Archive
from ipcbus.archive.archive_layout import TYPE_LOSS_RECORDER
from tests.kit.payload import number_of
from tests.kit.recording import RecorderProcess, accounted, losses, messages, rows_of
from tests.kit.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kit.peers import Peers

KINDS = ("lbtipc", "lbtsmx", "lbtru")
TRANSPORTS = pytest.mark.parametrize(
    "transport", ["lbtipc", *(pytest.param(kind, marks=pytest.mark.long) for kind in KINDS[1:])]
)
FAST = {"transport_lbtru_data_rate_limit": 1_000_000_000}


def published(archive: Archive) -> int:
    """Rows that can be read."""
    return sum(log.bounds()[1] for log in archive.logs())


def grown(archive: Archive, rows: int) -> None:
    """Waits until so many more rows can be read."""
    before = published(archive)
    until(lambda: published(archive) >= before + rows, f"{rows} rows more than {before}")


def ended(archive: Archive) -> None:
    """Waits until the end of a session is the last row."""
    until(lambda: rows_of(archive)[-1].type == MessageType.EOS, "the end to be recorded")


@pytest.mark.parametrize(
    ("transport", "kills"), [("lbtipc", 1), *(pytest.param(kind, 4, marks=pytest.mark.long) for kind in KINDS)]
)
def test_a_killed_recorder_goes_on_and_every_number_is_accounted_for(
    domain: str, peers: Peers, tmp_path: Path, transport: str, kills: int
) -> None:
    archive = Archive.create(tmp_path)
    publisher = peers.start(**FAST)
    source = publisher.do("source", topic="t", transport=transport)
    for _ in range(kills):
        recorder = peers.start()
        recorder.do("record", directory=str(tmp_path), topics=["t"])
        publisher.do("joined", topic="t")
        publisher.do("stream", topic="t", pause=0.001)
        grown(archive, 2000)
        recorder.kill()
        publisher.do("halt")
        publisher.do("await_receivers", topic="t", count=0)
    recorder = peers.start()
    recorder.do("record", directory=str(tmp_path), topics=["t"])
    publisher.do("joined", topic="t")
    publisher.do("send", topic="t", count=100)
    sent = publisher.do("end", topic="t")
    ended(archive)
    report = recorder.do("stop_recording")
    rows = rows_of(archive)
    first, following, recorded, lost = accounted(rows, "t", source)
    assert (first, following) == (0, sent)
    assert recorded + lost == sent
    assert recorded > kills * 2000
    # Between two recorders: what the killed one had in memory, and what nobody received.
    assert {row.type for row in losses(rows)} <= {TYPE_LOSS_RECORDER}
    assert len(losses(rows)) <= kills
    assert sum(row.type == MessageType.BOS for row in rows) == kills + 1
    missed = [row.numbers for row in losses(rows) if rows.index(row) > len(rows) - 103]
    assert report["missed"] == sum(missed)
    assert all(number_of(row.value) == row.first for row in messages(rows))
    assert len(archive.logs()) == 1


@pytest.mark.parametrize("transport", ["lbtipc", pytest.param("lbtsmx", marks=pytest.mark.long)])
@pytest.mark.parametrize("kills", [1, pytest.param(5, marks=pytest.mark.long)])
def test_a_killed_recorder_goes_on_where_it_stopped_when_the_source_keeps_messages(
    domain: str, peers: Peers, tmp_path: Path, transport: str, kills: int
) -> None:
    """The publisher sends all the time, also while no recorder is there."""
    archive = Archive.create(tmp_path)
    publisher = peers.start()
    source = publisher.do(
        "source", topic="t", transport=transport, late_join=1, retransmit_retention_size_limit=256 << 20
    )
    publisher.do("stream", topic="t", pause=0.01)
    for _ in range(kills + 1):
        with RecorderProcess(domain, tmp_path, "t") as recorder:
            grown(archive, 2000)
            recorder.kill()
        until(lambda: not stats.take_snapshot(domain).contexts[0].receivers, "the end of the recorder")
    with RecorderProcess(domain, tmp_path, "t") as recorder:
        grown(archive, 2000)
        publisher.do("halt")
        sent = publisher.do("end", topic="t")
        ended(archive)
        report = recorder.end()
    rows = rows_of(archive)
    assert accounted(rows, "t", source) == (0, sent, sent, 0)
    assert [row.first for row in messages(rows)] == list(range(sent))
    assert all(number_of(row.value) == row.first for row in messages(rows))
    assert (report["missed"], report["lost"], report["dropped"]) == (0, 0, 0)
    assert len(archive.logs()) == 1


@pytest.mark.parametrize("transport", ["lbtipc", pytest.param("lbtsmx", marks=pytest.mark.long)])
def test_what_a_source_does_not_keep_long_enough_is_recorded_as_lost(
    domain: str, peers: Peers, tmp_path: Path, transport: str
) -> None:
    archive = Archive.create(tmp_path)
    publisher = peers.start()
    source = publisher.do(
        "source", topic="t", transport=transport, late_join=1, retransmit_retention_size_limit=64 << 10
    )
    with RecorderProcess(domain, tmp_path, "t") as recorder:
        publisher.do("joined", topic="t")
        before = publisher.do("send", topic="t", count=3000)
        until(lambda: len(rows_of(archive)) == before + 1, "all of them")
        recorder.kill()
    publisher.do("await_receivers", topic="t", count=0)
    publisher.do("send", topic="t", count=5000)
    with RecorderProcess(domain, tmp_path, "t") as recorder:
        publisher.do("joined", topic="t")
        sent = publisher.do("end", topic="t")
        ended(archive)
        report = recorder.end()
    rows = rows_of(archive)
    first, following, recorded, lost = accounted(rows, "t", source)
    assert (first, following, recorded + lost) == (0, sent, sent)
    (gap,) = losses(rows)
    assert (gap.type, gap.first) == (TYPE_LOSS_RECORDER, before)
    assert 100 < sent - gap.last - 1 < 2000  # what 64 KiB hold
    assert report["missed"] == lost == gap.numbers


@TRANSPORTS
def test_what_a_killed_publisher_had_sent_is_recorded(
    domain: str, peers: Peers, tmp_path: Path, transport: str
) -> None:
    archive = Archive.create(tmp_path)
    publisher, receiver, recorder = peers.several(3)
    source = publisher.do("source", topic="t", transport=transport)
    receiver.do("receiver", topic="t")
    recorder.do("record", directory=str(tmp_path), topics=["t"])
    publisher.do("joined", topic="t", receivers=2)
    publisher.do("stream", topic="t", pause=0.001)
    grown(archive, 2000)
    publisher.kill()
    receiver.do("await_end", topic="t")
    ended(archive)
    report = recorder.do("stop_recording")
    rows = rows_of(archive)
    ledger = receiver.ledger("t", source)
    assert ledger.wrong == []
    first, following, recorded, lost = accounted(rows, "t", source)
    if transport == "lbtru":  # the last datagrams may have reached one of them only
        assert (first, lost) == (0, 0)
    else:
        assert (first, following, recorded, lost) == (0, ledger.next, ledger.delivered, ledger.lost)
    assert all(number_of(row.value) == row.first for row in messages(rows))
    assert report["messages"] == recorded


def test_a_publisher_that_overruns_the_recorder_is_recorded_as_losses(
    domain: str, peers: Peers, tmp_path: Path
) -> None:
    archive = Archive.create(tmp_path)
    publisher, recorder = peers.several(2)
    source = publisher.do("source", topic="t", transport_lbtipc_behavior="source_paced")
    recorder.do("record", directory=str(tmp_path), topics=["t"])
    publisher.do("joined", topic="t")
    for _ in range(3):
        publisher.do("send", topic="t", count=1000)
        recorder.pause()
        publisher.do("send", topic="t", count=100_000)
        recorder.resume()
    sent = publisher.do("send", topic="t", count=1)
    until(lambda: published(archive) and rows_of(archive)[-1].last == sent - 1, "the last message")
    (counted,) = [
        each.counters["lost"]
        for context in stats.take_snapshot(domain).contexts
        for each in context.receivers
        if each.topic == "t"
    ]
    report = recorder.do("stop_recording")
    rows = rows_of(archive)
    first, following, recorded, lost = accounted(rows, "t", source)
    assert (first, following, recorded + lost) == (0, sent, sent)
    assert lost > 100_000
    assert lost == report["lost"] == counted
    assert report["losses"] == len(losses(rows))
    assert {row.type for row in losses(rows)} <= {MessageType.UNRECOVERABLE_LOSS, MessageType.UNRECOVERABLE_LOSS_BURST}
    assert (report["dropped"], report["missed"]) == (0, 0)


# ---------------------------------------------------------------------------------------- the command


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), pytest.param(signal.SIGTERM, 143, marks=pytest.mark.long)]
)
def test_a_signal_ends_a_recorder_in_order(domain: str, peers: Peers, tmp_path: Path, number: int, code: int) -> None:
    publisher = peers.start()
    publisher.do("source", topic="t")
    with RecorderProcess(domain, tmp_path, "t", "--lossless", "--buffer", "1M") as recorder:
        publisher.do("joined", topic="t")
        sent = publisher.do("send", topic="t", count=20_000)
        until(lambda: published(Archive(tmp_path)) > 1000, "messages to be recorded")
        report = recorder.end(code, number)
    assert report["messages"] <= sent
    assert report["next_offset"] == published(Archive(tmp_path))
    assert [row.type for row in losses(rows_of(Archive(tmp_path)))] == []


@pytest.mark.long
def test_a_recorder_ends_by_itself(domain: str, peers: Peers, tmp_path: Path) -> None:
    publisher = peers.start()
    publisher.do("source", topic="quotes.A")
    with RecorderProcess(domain, tmp_path, r"quotes\..*", "--pattern", "--messages", "100") as recorder:
        publisher.do("joined", topic="quotes.A")
        publisher.do("send", topic="quotes.A", count=100)
        assert recorder.end(0)["messages"] == 100
    with RecorderProcess(domain, tmp_path, "quotes.A", "--seconds", "0.1") as recorder:
        found = recorder.end(0)
    assert (found["first_offset"], found["messages"]) == (101, 0)
