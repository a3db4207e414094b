"""`ipcbus gmd agent` and `resend` among real processes: senders that are killed and return, agents that are killed."""

from __future__ import annotations

import json
import select
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from tests.kit.bus import GIVE_UP_S, LBTIPC, LBTRU, Bus, Kind
from tests.kit.guaranteed import Named

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.kit.peers import PeerProcess, Peers

every_kind = pytest.mark.parametrize("kind", [LBTIPC, LBTRU], ids=lambda kind: str(kind.name))


@pytest.fixture
def files(tmp_path: Path) -> dict[str, object]:
    """Options for areas in files."""
    return {"ipc_gmd_type": "file", "ipc_gmd_directory": str(tmp_path / "gmd")}


class AgentProcess:
    """An `ipcbus gmd agent` with its events."""

    def __init__(self, directory: Path, *options: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "ipcbus_tools", "gmd", "agent", "--directory", str(directory), "--json", *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
        )
        self.events: list[dict[str, Any]] = []

    def until(self, event: str, count: int = 1) -> dict[str, Any]:
        """Waits for so many events of a kind; returns the last one."""
        assert self.process.stdout is not None
        while sum(each["event"] == event for each in self.events) < count:
            assert select.select([self.process.stdout], [], [], GIVE_UP_S)[0], f"no {event}, but {self.events}"
            line = self.process.stdout.readline()
            assert line, f"no {event}, but {self.events}, and then the end: {self.end()}"
            self.events.append(json.loads(line))
        return next(each for each in reversed(self.events) if each["event"] == event)

    def end(self, number: int = 0) -> tuple[int, str]:
        """Sends a signal, waits for the end, and returns exit code and errors."""
        if number:
            self.process.send_signal(number)
        out, err = self.process.communicate(timeout=GIVE_UP_S)
        self.events += [json.loads(line) for line in out.splitlines()]
        return self.process.returncode, err.decode()


class Agents:
    """The agents of one test, on one directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._all: list[AgentProcess] = []

    def start(self, *options: str) -> AgentProcess:
        """One more agent."""
        self._all.append(AgentProcess(self.directory, *options))
        return self._all[-1]

    def clear(self) -> None:
        """Kills those that run."""
        for each in self._all:
            if each.process.poll() is None:
                each.end(signal.SIGKILL)


@pytest.fixture
def agents(tmp_path: Path) -> Iterator[Agents]:
    """Agents on the directory of `files`."""
    found = Agents(tmp_path / "gmd")
    yield found
    found.clear()


def owner(peers: Peers, files: dict[str, object], kind: Kind, *topics: str, **options: Any) -> PeerProcess:  # noqa: ANN401
    """A process with a guaranteed source for each topic."""
    found = peers.start()
    given = {"gmd_name": "gateway", "delivery_mode": "all", "transport": kind.transport, **kind.options, **files}
    for topic in topics or ("t",):
        found.do("source", topic=topic, **{**given, **options})
    return found


def left(peers: Peers, files: dict[str, object], kind: Kind, count: int, **options: Any) -> None:  # noqa: ANN401
    """A sender that is killed with messages pending."""
    sender = owner(peers, files, kind, **options)
    sender.do("send_numbered", topic="t", count=count)
    sender.kill()


@every_kind
def test_what_a_killed_sender_has_left_is_delivered_once(
    bus: Bus, peers: Peers, agents: Agents, files: dict[str, object], kind: Kind
) -> None:
    first = Named(bus, **files)
    sender = owner(peers, files, kind)
    sender.do("expected", topic="t", name="receiver")
    sender.do("send_numbered", topic="t", count=50)
    sender.do("pending", topic="t")
    first.receiver.close()
    sender.do("send_numbered", topic="t", count=300)
    sender.kill()
    agent = agents.start("--once")
    assert agent.until("opened")["pending"] == 300
    second = Named(bus, **files)
    second.until(300)
    assert agent.end() == (0, "")
    assert agent.until("delivered")["pending"] == 0
    first.ledger.balanced(1, 50)
    second.ledger.balanced(51, 350)
    assert second.ledger.senders == first.ledger.senders  # the agent sends under the sender's identity
    again = owner(peers, files, kind)
    assert again.do("pending", topic="t") == 0
    again.do("expected", topic="t", name="receiver")
    assert again.do("send_numbered", topic="t", count=10) == 360
    second.until(310)
    second.ledger.balanced(51, 360)
    again.do("pending", topic="t")


@every_kind
def test_an_agent_yields_to_a_sender_that_returns(
    bus: Bus, peers: Peers, agents: Agents, files: dict[str, object], kind: Kind
) -> None:
    left(peers, files, kind, 40)
    agent = agents.start()
    agent.until("opened")
    again = owner(peers, files, kind)  # takes the area from the agent
    agent.until("yielded")
    assert again.do("send_numbered", topic="t", count=10) == 50
    named = Named(bus, **files)
    named.until(50)
    named.ledger.balanced(1, 50)
    again.do("pending", topic="t")
    named.receiver.close()
    again.do("send_numbered", topic="t", count=5)
    again.kill()
    assert agent.until("opened", 2)["pending"] == 5
    other = Named(bus, **files)
    other.until(5)
    other.ledger.balanced(51, 55)
    agent.until("delivered")
    assert agent.end(signal.SIGTERM) == (0, "")


def test_an_agent_that_is_killed_goes_on(bus: Bus, peers: Peers, agents: Agents, files: dict[str, object]) -> None:
    left(peers, files, LBTIPC, 30)
    first = agents.start()
    first.until("opened")
    first.end(signal.SIGKILL)
    second = agents.start("--once")
    second.until("opened")
    named = Named(bus, **files)
    named.until(30)
    assert second.end() == (0, "")
    named.ledger.balanced(1, 30)


def test_a_directory_has_one_agent(peers: Peers, agents: Agents, files: dict[str, object]) -> None:
    left(peers, files, LBTIPC, 3)
    first = agents.start()
    first.until("opened")
    code, text = agents.start().end()
    assert code == 1
    assert "is the agent of this directory already" in text
    assert first.end(signal.SIGTERM) == (0, "")
    assert first.events[-1]["event"] == "closed"
    assert first.events[-1]["pending"] == 3


def test_several_areas_are_delivered_at_once(bus: Bus, peers: Peers, agents: Agents, files: dict[str, object]) -> None:
    alive = owner(peers, files, LBTIPC, "alive")
    alive.do("send_numbered", topic="alive", count=3)
    dead = owner(peers, files, LBTIPC, "a", "b", "c")
    for topic, count in (("a", 5), ("b", 6)):
        dead.do("send_numbered", topic=topic, count=count)
    dead.kill()
    agent = agents.start("--once")
    agent.until("opened", 2)
    named = [Named(bus, topic=topic, **files) for topic in ("a", "b")]
    for each, count in zip(named, (5, 6), strict=True):
        each.until(count)
        each.ledger.balanced(1, count)
    assert agent.end() == (0, "")
    assert sorted(each["event"] for each in agent.events) == ["delivered", "delivered", "opened", "opened"]
    assert alive.do("pending", topic="alive", count=3) == 3


def test_failed_messages_are_sent_again_on_demand(
    bus: Bus, peers: Peers, agents: Agents, files: dict[str, object]
) -> None:
    left(peers, files, LBTIPC, 4, gmd_zero_receivers="failure")
    agent = agents.start("--once")
    code, _ = agent.end()
    assert (code, agent.events[-1]["pending"], agent.events[-1]["failed"]) == (1, 4, 4)
    area = agents.directory / "gateway" / "t" / "source"
    named = Named(bus, **files)
    running = agents.start()
    running.until("opened")
    running.until("failed")
    done = subprocess.run(
        [sys.executable, "-m", "ipcbus_tools", "gmd", "resend", str(area), "--json"],
        capture_output=True,
        text=True,
        timeout=GIVE_UP_S,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    assert (found["resent"], found["pending"], found["failed"]) == (4, 0, 0)
    named.until(4)
    named.ledger.balanced(1, 4)
    running.until("yielded")
    assert running.end(signal.SIGTERM) == (0, "")
