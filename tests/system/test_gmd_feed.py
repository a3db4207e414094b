"""The real feed in mode `all` to two named receivers, which are killed and started again ten times on the way."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import ipcbus
from tests.kit.gmd_logs import ReceiverLog
from tests.kit.waiting import until
from tests.system.test_feeds import DATA, RATE
from tests.system.test_late_feed import FEED, MESSAGES, SHORT, TRANSPORTS, lines

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kit.peers import PeerProcess, Peers

KILLS = 10
NAMES = ("first", "second")
RATES = {f"transport_lbtru_{what}_rate_limit": RATE for what in ("data", "retransmit")}


class FeedReceiver:
    """A named receiver of all topics, killed and started again."""

    def __init__(self, peers: Peers, name: str, topics: list[str], path: Path) -> None:
        self._peers, self._name, self._path = peers, name, path
        self.logs = {topic: ReceiverLog(path / f"{name} {number}") for number, topic in enumerate(topics)}
        self._process = self._start()

    def _start(self) -> PeerProcess:
        peer = self._peers.start(liveness_check_interval=20)
        options = {"gmd_name": self._name, "ipc_gmd_directory": str(self._path / "gmd")}
        for topic, log in self.logs.items():
            peer.start("note_guaranteed", topic=topic, log=str(log.path), **options)
        return peer

    def kill(self) -> None:
        """Kills it, and starts it again."""
        self._peers.kill(self._process)
        for log in self.logs.values():
            log.begin_life()
        self._process = self._start()


@pytest.mark.skipif(not (DATA / FEED).exists(), reason=f"the captured feed is not in {DATA}")
@pytest.mark.parametrize("count", [SHORT, pytest.param(MESSAGES, marks=pytest.mark.long)])
@pytest.mark.parametrize("transport", ["lbtipc", "lbtsmx", "lbtru", pytest.param("lbttcp", marks=pytest.mark.long)])
def test_receivers_that_are_killed_get_the_whole_feed(
    peers: Peers, domain: str, transport: str, count: int, tmp_path: Path
) -> None:
    """Each kill comes when both receivers have got messages again after the kill before."""
    feed = list(lines(count))
    sent: dict[str, list[bytes]] = {}
    for topic, payload in feed:
        sent.setdefault(topic, []).append(payload)
    busiest = max(sent, key=lambda topic: len(sent[topic]))
    receivers = [FeedReceiver(peers, name, list(sent), tmp_path) for name in NAMES]
    options: dict[str, Any] = {"transport": transport, **TRANSPORTS.get(transport, {})}
    options |= {"gmd_name": "exchange", "delivery_mode": "all", "ipc_gmd_directory": str(tmp_path / "gmd")}
    part = count // (KILLS + 1) + 1
    with ipcbus.Context({"context": RATES}, domain=domain) as context:
        sources = {topic: context.source(topic, **options) for topic in sent}
        for source in sources.values():
            source.wait_for_receivers(2, 60)
            assert sorted(source.gmd_receivers) == sorted(NAMES)
        for number, (topic, payload) in enumerate(feed):
            if number % part == 0:
                sizes = [each.logs[busiest].size for each in receivers]
            elif number % part == part // 2:
                for source in sources.values():
                    source.flush()
                for each, size in zip(receivers, sizes, strict=True):
                    each.logs[busiest].await_more(size)
            if number and number % part == 0:
                receivers[number // part % 2].kill()
            sources[topic].send(payload)
        for source in sources.values():
            source.flush()
        for topic, source in sources.items():
            assert source.gmd_sequence_number == len(sent[topic])
        for topic, source in sources.items():
            while pending := source.gmd_num_pending:  # a slow machine drains for long; each step is waited for
                until(lambda: source.gmd_num_pending < pending, f"acknowledgements of {topic}")  # noqa: B023
    for receiver in receivers:
        for topic, log in receiver.logs.items():
            log.check(lambda number, topic=topic: sent[topic][number - 1], len(sent[topic]))  # type: ignore[misc]
