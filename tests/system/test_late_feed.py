"""A receiver that joins a real feed in the middle gets it from the first message on, while the feed goes on.

Run as a module it is one of the receiving processes.
"""

from __future__ import annotations

import contextlib
import gzip
import itertools
import json
import subprocess
import sys
import threading
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

import ipcbus
from ipcbus import MessageFlag, MessageType
from tests.kit.look import objects
from tests.kit.network import isolated_or_skip
from tests.system.test_feeds import DATA, FEEDS, OPTIONS, RATE, Chain

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ipcbus import Message, Source

FEED = FEEDS[0]
MESSAGES = 93_954
SHORT = 12_000
"""Messages of the short form; the longest one is among them."""
TRANSPORTS: dict[str, dict[str, Any]] = {
    "lbtipc": {},
    "lbtsmx": {"transport_lbtsmx_datagram_max_size": 1 << 17, "transport_lbtsmx_transmission_window_size": 1 << 20},
    "lbtru": {},
    "lbtrm": {},
}
RATES = {f"transport_{kind}_{what}_rate_limit": RATE for kind in ("lbtru", "lbtrm") for what in ("data", "retransmit")}
KEPT = {"late_join": 1, "retransmit_retention_size_limit": 1 << 28, "retransmit_close_timeout": 60_000}


def lines(count: int) -> Iterator[tuple[str, bytes]]:
    """Topic and payload of the first messages of the feed."""
    with gzip.open(DATA / FEED) as feed:
        for line in itertools.islice(feed, count):
            payload = line.rstrip(b"\n").split(b" ", 1)[1]
            yield json.loads(payload).get("stream", "feed"), payload


def receive(domain: str, topics: list[str]) -> None:
    """Begins when stdin says so; says when the first message has come; prints at the end what has come."""
    chains: dict[str, Chain] = {topic: Chain() for topic in topics}
    numbers: dict[str, int] = dict.fromkeys(topics, 0)
    events: Counter[str] = Counter()
    first, over = threading.Event(), threading.Event()

    def on_message(message: Message) -> None:
        events[message.type.name] += 1
        if message.type is MessageType.DATA:
            chains[message.topic].add(message.data)
            events["late"] += bool(message.flags & MessageFlag.LATE_JOIN)
            events["wrong"] += message.first_sequence_number != numbers[message.topic]
            numbers[message.topic] = message.sequence_number + 1
            first.set()
        elif message.type is MessageType.EOS and events["EOS"] == len(topics):
            over.set()

    with ipcbus.Context(OPTIONS, domain=domain) as context:
        sys.stdin.readline()
        for topic in topics:
            context.receiver(topic, on_message)
        first.wait()
        print("first", flush=True)
        over.wait()
    print(json.dumps({"chains": {topic: chain.facts() for topic, chain in chains.items()}, "events": events}))


@contextlib.contextmanager
def receiving(domain: str, topics: list[str], root: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that receives the feed; it is killed at the end."""
    arguments = [sys.executable, "-m", "tests.system.test_late_feed", domain, *topics]
    with subprocess.Popen(
        arguments, cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def say(process: subprocess.Popen[str]) -> None:
    """Lets a process begin."""
    assert process.stdin is not None
    process.stdin.write("go\n")
    process.stdin.flush()


def heard(process: subprocess.Popen[str]) -> str:
    """The next line of a process."""
    assert process.stdout is not None
    return process.stdout.readline().strip()


@pytest.mark.skipif(not (DATA / FEED).exists(), reason=f"the captured feed is not in {DATA}")
@pytest.mark.parametrize("count", [SHORT, pytest.param(MESSAGES, marks=pytest.mark.long)])
@pytest.mark.parametrize(
    "transport", ["lbtipc", "lbtru", *(pytest.param(each, marks=pytest.mark.long) for each in ("lbtsmx", "lbtrm"))]
)
def test_a_late_joiner_gets_the_whole_feed_while_it_goes_on(
    domain: str, transport: str, count: int, pytestconfig: pytest.Config
) -> None:
    feed = list(lines(count))
    topics = sorted({topic for topic, _ in feed})
    sent = {topic: Chain() for topic in topics}
    for topic, payload in feed:
        sent[topic].add(payload)
    with isolated_or_skip() if transport == "lbtrm" else contextlib.nullcontext():
        found = receive_twice(domain, transport, feed, topics, pytestconfig.rootpath)
    for report in found.values():
        assert report["chains"] == {topic: chain.facts() for topic, chain in sent.items()}
        late = report["events"].pop("late", 0)
        assert report["events"] == {"DATA": count, "BOS": len(topics), "EOS": len(topics), "wrong": 0}
    assert late >= count // 4  # what waited for the data rate when the late one began may have come live
    assert objects(domain) == []


def receive_twice(
    domain: str, transport: str, feed: list[tuple[str, bytes]], topics: list[str], root: Path
) -> dict[str, Any]:
    """Sends a feed; returns the reports of a receiver that is early, and of one that is late.

    The second half is sent after the late one was told to begin, the last quarter when it has got something.
    """
    options: dict[str, Any] = {"transport": transport, **KEPT, **TRANSPORTS[transport]}
    config = {"context": {**OPTIONS["context"], **RATES}}
    with receiving(domain, topics, root) as early, receiving(domain, topics, root) as late:
        with ipcbus.Context(config, domain=domain) as context:
            sources: dict[str, Source] = {topic: context.source(topic, **options) for topic in topics}
            say(early)
            for source in sources.values():
                source.wait_for_receivers(1, 60)
            for number, (topic, payload) in enumerate(feed):
                if number == len(feed) // 2:
                    say(late)
                if number == len(feed) // 4 * 3:
                    for source in sources.values():
                        source.flush()
                    assert (heard(early), heard(late)) == ("first", "first")
                sources[topic].send(payload)
            for source in sources.values():
                source.wait_for_receivers(2, 60)
        return {name: json.loads(heard(process)) for name, process in (("early", early), ("late", late))}


if __name__ == "__main__":
    receive(sys.argv[1], sys.argv[2:])
