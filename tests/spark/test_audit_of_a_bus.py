"""The audit of what a live bus lost, against the counters of that bus: every loss, by whom, and nothing else."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

import ipcbus
from ipcbus import StorageFull, stats
from ipcbus.archive import Archive, LogWriter, Recorder
from ipcbus.spark.pipelines import audit
from ipcbus.spark.pipelines.reading import Selection, read
from tests.kit.recording import until

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.kit.peers import Peers

pytestmark = pytest.mark.spark

TOPICS = {
    "lapped": {"transport": "lbtipc", "transport_lbtipc_behavior": "source_paced"},
    "late": {"transport": "lbtru", "transport_lbtru_transmission_window_size": 100_000},
    "paced": {"transport": "lbtsmx"},
}
OPTIONS = {"transport_lbtru_data_rate_limit": 1_000_000_000}
ROUNDS = 2
BURST = 60_000


def test_the_audit_reports_what_the_bus_and_the_recorder_have_counted(
    spark: SparkSession, domain: str, peers: Peers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = Archive.create(tmp_path)
    publisher = peers.start(**OPTIONS)
    sources = {publisher.do("source", topic=topic, **options): topic for topic, options in TOPICS.items()}
    publisher.do("source", topic="gate", transport="lbtipc")
    blocked, release = threading.Event(), threading.Event()

    def hold_up(message: ipcbus.Message) -> None:
        if message.type is ipcbus.MessageType.DATA:
            blocked.set()
            release.wait()

    def refuse(*_: object) -> int:
        raise StorageFull("no room for a while; as this test wants it")

    monkeypatch.setattr("ipcbus.archive.drain.RETRY_S", 0.01)
    sent = {}
    with (
        ipcbus.Context(domain=domain) as context,
        Recorder(context, archive, list(TOPICS), buffer_bytes=1 << 17) as recorder,
    ):
        context.receiver("gate", hold_up)
        for topic in (*TOPICS, "gate"):
            publisher.do("joined", topic=topic)
        for _ in range(ROUNDS):
            # The bus loses: nobody reads meanwhile.
            blocked.clear()
            release.clear()
            publisher.do("send", topic="gate", count=1)
            blocked.wait()
            for topic in ("lapped", "late"):
                publisher.do("send", topic=topic, count=BURST)
            release.set()
            # The recorder loses: it has no room.
            with monkeypatch.context() as refusing:
                refusing.setattr(LogWriter, "append", refuse)
                before = recorder.stats.dropped
                while recorder.stats.dropped < before + 500:
                    for topic in TOPICS:
                        publisher.do("send", topic=topic, count=500)
            for topic in TOPICS:
                sent[topic] = publisher.do("send", topic=topic, count=1)
        until(lambda: accounted(recorder) == sum(sent.values()), "all to be accounted for")
        (watched,) = (
            each for each in stats.take_snapshot(domain).contexts if any(r.topic == "lapped" for r in each.receivers)
        )
        counted = {receiver.topic: receiver.counters["lost"] for receiver in watched.receivers}
        own = recorder.stats
    rows = read(spark, Selection(tmp_path), audit.pipeline().columns, events=True)
    for order in (False, True):
        results = audit.pipeline(order=order).run(rows)
        lines = {sources[line.source]: line for line in results["audit"].collect()}
        (total,) = results["summary"].collect()
        assert lines.keys() == TOPICS.keys()
        for topic, line in lines.items():
            assert line.lost_bus == counted[topic]
            assert line.numbers + line.lost_bus + line.lost_recorder == sent[topic]
            assert (line.first, line.last) == (0, sent[topic] - 1)
        assert lines["lapped"].lost_bus > 0
        assert lines["late"].lost_bus > 0
        assert lines["paced"].lost_bus == 0
        assert (total.messages, total.lost_bus, total.lost_recorder) == (own.messages, own.lost, own.dropped)
        assert total.lost_recorder >= ROUNDS * 500
        assert (total.missing, total.duplicates, total.contradicted, total.absent, total.verdict) == (
            0,
            0,
            0,
            0,
            "lost",
        )


def accounted(recorder: Recorder) -> int:
    """Numbers that were recorded or told as lost."""
    found = recorder.stats
    return found.messages + found.lost + found.dropped
