"""The real feeds through the bus: every byte, in order, to every receiver.

Run as a module it is one of the receiving processes.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import json
import os
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import ipcbus
from ipcbus import MessageType
from tests.kit.look import objects
from tests.kit.network import isolated_or_skip

if TYPE_CHECKING:
    from ipcbus import Message

ROOT = Path(__file__).resolve().parents[2]
DATA = Path(os.environ.get("IPCBUS_FEEDS", ROOT.parent / "shared" / "data"))
FEEDS = ("binance_usdm_btcusdt_20240808.gz", "binance_spot_btcusdt_20240808.gz")
MESSAGES = 135_203
LONGEST = 64_046  # 64,047 with the end of the line
RECEIVERS = 3
OPTIONS = {"context": {"resolver_multicast_interface": "127.0.0.1"}}
"""Of receivers. The interface is for LBT-RM, in a network of the test's own."""
LOSS = {f"{kind}_{end}LOSS_RATE": "10" for kind in ("LBTRU", "LBTRM") for end in ("", "SRC_")}
RATE = 50_000_000
"""Bits a second: about as many as three receivers take on two busy processors."""


@dataclass
class Chain:
    """The messages of one topic of one session: how many, and which bytes in which order."""

    messages: int = 0
    longest: int = 0
    digest: Any = field(default_factory=hashlib.blake2b)

    def add(self, payload: bytes) -> None:
        """The next message."""
        self.messages += 1
        self.longest = max(self.longest, len(payload))
        self.digest.update(len(payload).to_bytes(4, "little"))
        self.digest.update(payload)

    def facts(self) -> dict[str, Any]:
        """What has to be the same on both sides."""
        return {"messages": self.messages, "longest": self.longest, "digest": self.digest.hexdigest()}


@cache
def expected(feed: str) -> dict[str, dict[str, Any]]:
    """The chains of a file, by topic; read without any help of ours."""
    chains: dict[str, Chain] = {}
    with gzip.open(DATA / feed) as lines:
        for line in lines:
            payload = line.rstrip(b"\n").split(b" ", 1)[1]
            topic = json.loads(payload).get("stream", "feed")
            chains.setdefault(topic, Chain()).add(payload)
    return {topic: chain.facts() for topic, chain in chains.items()}


def receive(domain: str, topics: list[str]) -> None:
    """Receives until stdin ends, then prints what came of each topic of each session."""
    chains: dict[tuple[str, str], Chain] = {}
    events: Counter[str] = Counter()

    def on_message(message: Message) -> None:
        if message.type == MessageType.DATA:
            key = (message.source, message.topic)
            if key not in chains:
                chains[key] = Chain()
            chains[key].add(message.data)
        else:
            events[message.type.name] += 1

    with ipcbus.Context(OPTIONS, domain=domain) as context:
        for topic in topics:
            context.receiver(topic, on_message)
        sys.stdin.read()
    found = [{"source": source, "topic": topic, **chain.facts()} for (source, topic), chain in chains.items()]
    print(json.dumps({"chains": found, "events": events}))


def config(path: Path) -> Path:
    """A file of options for who sends."""
    path.write_text(
        f"[context]\nresolver_multicast_interface = '127.0.0.1'\n"
        f"transport_lbtru_data_rate_limit = {RATE}\ntransport_lbtrm_data_rate_limit = {RATE}\n"
        f"transport_lbtru_retransmit_rate_limit = {RATE}\ntransport_lbtrm_retransmit_rate_limit = {RATE}\n"
    )
    return path


def replay(feed: str, domain: str, transport: str, options: Path) -> dict[str, Any]:
    """Sends a feed; returns what `ipcbus replay` reports."""
    arguments = ["--transport", transport, "--wait-receivers", str(RECEIVERS), "--linger", "60", "--domain", domain]
    arguments += ["--json", "--config", str(options)]
    ended = subprocess.run(
        [sys.executable, "-m", "ipcbus_tools", "replay", str(DATA / feed), *arguments],
        check=False,
        env=os.environ | LOSS,
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0, ended.stderr
    report: dict[str, Any] = json.loads(ended.stdout)
    return report


@pytest.mark.skipif(not all((DATA / feed).exists() for feed in FEEDS), reason=f"the captured feeds are not in {DATA}")
@pytest.mark.timeout(300)  # six seconds of work, which other tests share
@pytest.mark.parametrize(
    "transport",
    ["lbtipc", *(pytest.param(kind, marks=pytest.mark.long) for kind in ("lbtsmx", "lbtru", "lbtrm"))],
)
def test_feeds_arrive_whole_and_in_order(
    domain: str, transport: str, pytestconfig: pytest.Config, tmp_path: Path
) -> None:
    """Over UDP with a tenth of all datagrams lost, each way."""
    with isolated_or_skip() if transport == "lbtrm" else contextlib.nullcontext():
        feeds_arrive(domain, transport, pytestconfig.rootpath, config(tmp_path / "options.toml"))


def feeds_arrive(domain: str, transport: str, root: Path, options: Path) -> None:
    topics = sorted({topic for feed in FEEDS for topic in expected(feed)})
    crew = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.system.test_feeds", domain, *topics],
            cwd=root,
            env=os.environ | LOSS,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        for _ in range(RECEIVERS)
    ]
    try:
        reports = {feed: replay(feed, domain, transport, options) for feed in FEEDS}
        found = [json.loads(process.communicate()[0]) for process in crew]
    finally:
        for process in crew:
            process.kill()
            process.communicate()
    assert sum(report["messages"] for report in reports.values()) == MESSAGES
    assert all(report["everything_read"] for report in reports.values())
    for receiver in found:
        for feed, report in reports.items():
            chains = [dict(chain) for chain in receiver["chains"] if chain["source"] in report["sessions"]]
            assert all(chain.pop("source") for chain in chains)
            assert {chain.pop("topic"): chain for chain in chains} == expected(feed)
        assert receiver["events"] == {kind: sum(len(expected(feed)) for feed in FEEDS) for kind in ("BOS", "EOS")}
    everything = [chain for feed in FEEDS for chain in expected(feed).values()]
    assert sum(chain["messages"] for chain in everything) == MESSAGES
    assert max(chain["longest"] for chain in everything) == LONGEST
    assert objects(domain) == []


if __name__ == "__main__":
    receive(sys.argv[1], sys.argv[2:])
