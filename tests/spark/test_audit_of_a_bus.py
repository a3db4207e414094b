"""The audit of what a live bus lost, against the counters of that bus: every loss, by whom, and nothing else."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

import ipcbus
from ipcbus import StorageFull, stats
from ipcbus.archive import Archive, LogWriter, Recorder
from ipcbus.spark.pipelines import audit
from ipcbus.spark.pipelines.reading import Selection, read
from tests.kit.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.kit.peers import PeerProcess, Peers

pytestmark = pytest.mark.spark

TOPICS = {
    "lapped": {"transport": "lbtipc", "transport_lbtipc_behavior": "source_paced"},
    "late": {
        "transport": "lbtru",
        "transport_lbtru_transmission_window_size": 100_000,
        "transport_lbtru_client_activity_timeout": 2000,
    },
    "paced": {"transport": "lbtsmx"},
}
OPTIONS = {"transport_lbtru_data_rate_limit": 1_000_000_000}
ROUNDS = 2
DROPPED = 500
BURST = 60_000


@dataclass
class Bus:
    """A recorder in this process that is made to lose, and who sends to it."""

    context: ipcbus.Context
    recorder: Recorder
    publisher: PeerProcess
    blocked: threading.Event = field(default_factory=threading.Event)
    release: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.publisher.do("source", topic="gate", transport="lbtipc")
        self.context.receiver("gate", self._hold_up)
        for topic in (*TOPICS, "gate"):
            self.publisher.do("joined", topic=topic)

    def _hold_up(self, message: ipcbus.Message) -> None:
        if message.type is ipcbus.MessageType.DATA:
            self.blocked.set()
            self.release.wait()

    def lose_on_the_bus(self) -> None:
        """Nobody reads meanwhile."""
        self.blocked.clear()
        self.release.clear()
        self.publisher.do("send", topic="gate", count=1)
        self.blocked.wait()
        for topic in ("lapped", "late"):
            self.publisher.do("send", topic=topic, count=BURST)
        self.release.set()

    def lose_in_the_recorder(self) -> None:
        """It has no room on its disk, and soon none in memory."""

        def refuse(*_: object) -> int:
            raise StorageFull("no room for a while; as this test wants it")

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(LogWriter, "append", refuse)
            before = self.recorder.stats.dropped
            while self.recorder.stats.dropped < before + DROPPED:
                for topic in TOPICS:
                    self.publisher.do("send", topic=topic, count=500)

    def accounted(self) -> int:
        """Numbers that were recorded or told as lost."""
        found = self.recorder.stats
        return found.messages + found.lost + found.dropped


def test_the_audit_reports_what_the_bus_and_the_recorder_have_counted(
    spark: SparkSession, domain: str, peers: Peers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ipcbus.archive.writer_thread.RETRY_S", 0.01)
    archive, publisher = Archive.create(tmp_path), peers.start(**OPTIONS)
    sources = {publisher.do("source", topic=topic, **options): topic for topic, options in TOPICS.items()}
    with (
        ipcbus.Context(domain=domain) as context,
        Recorder(context, archive, list(TOPICS), buffer_bytes=1 << 17) as recorder,
    ):
        bus = Bus(context, recorder, publisher)
        for _ in range(ROUNDS):
            bus.lose_on_the_bus()
            bus.lose_in_the_recorder()
            sent = {topic: publisher.do("send", topic=topic, count=1) for topic in TOPICS}
        until(lambda: bus.accounted() == sum(sent.values()), "all to be accounted for")
        contexts = stats.take_snapshot(domain).contexts
        counted = {each.topic: each.counters["lost"] for watched in contexts for each in watched.receivers}
        own = recorder.stats
    rows = read(spark, Selection(tmp_path), audit.pipeline().columns, events=True)
    results = audit.pipeline().run(rows)
    lines = {sources[line.source]: line for line in results["audit"].collect()}
    (total,) = results["summary"].collect()
    assert lines.keys() == TOPICS.keys()
    for topic, line in lines.items():
        assert line.lost_bus == counted[topic]
        assert line.numbers + line.lost_bus + line.lost_recorder == sent[topic]
        assert (line.first, line.last) == (0, sent[topic] - 1)
    assert {topic for topic, line in lines.items() if line.lost_bus} == {"lapped", "late"}
    assert (total.messages, total.lost_bus, total.lost_recorder) == (own.messages, own.lost, own.dropped)
    assert total.lost_recorder >= ROUNDS * DROPPED
    assert (total.missing, total.duplicates, total.contradicted, total.absent) == (0, 0, 0, 0)
    assert total.verdict == "lost"
