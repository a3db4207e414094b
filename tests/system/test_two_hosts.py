"""Two hosts, each a network namespace with shared memory of its own, and a link between them that fails for 3 s.

Run as a module it is one of the processes there.
"""

from __future__ import annotations

import contextlib
import gzip
import itertools
import json
import os
import subprocess
import sys
import threading
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest

import ipcbus
from ipcbus import MessageType
from tests.system.test_feeds import DATA, FEEDS, Chain
from tests.unit.sources import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ipcbus import Message

    Process = subprocess.Popen[str]

FEED = FEEDS[0]
BEFORE, DURING, AFTER = 2500, 2500, 500
"""How many messages are sent before, during and after the failure."""
DOWN_S = 3.0
RECEIVERS = 2
HOSTS = ("10.77.0.1", "10.77.0.2")
READY = "mount --make-rprivate / && mount -t tmpfs none /dev/shm && ip link set lo up && echo ready && exec cat"


def lines() -> Iterator[tuple[str, bytes]]:
    """The first messages of a feed, each with its topic."""
    with gzip.open(DATA / FEED) as feed:
        for line in itertools.islice(feed, BEFORE + DURING + AFTER):
            payload = line.rstrip(b"\n").split(b" ", 1)[1]
            yield json.loads(payload).get("stream", "feed"), payload


@cache
def expected() -> dict[str, dict[str, Any]]:
    """Their chains by topic."""
    chains: dict[str, Chain] = {}
    for topic, payload in lines():
        chains.setdefault(topic, Chain()).add(payload)
    return {topic: chain.facts() for topic, chain in chains.items()}


# The processes there.


def options(transport: str, own: str, daemon: str) -> dict[str, dict[str, object]]:
    """What has to be configured between hosts."""
    if transport == "lbtrm":
        return {"context": {"resolver_multicast_interface": own}}
    interface = {"transport_lbtru_interface": own}
    asks = {"resolver_unicast_daemon": daemon, "resolver_unicast_interface": own}
    return {"context": dict(asks), "source": dict(interface), "receiver": dict(interface)}


def send(transport: str, domain: str, own: str, daemon: str) -> None:
    """Sends the parts, each when it is told to."""
    todo = lines()
    topics = list(expected())
    with ipcbus.Context(options(transport, own, daemon), domain=domain) as context:
        sources = {topic: context.source(topic, transport=transport) for topic in topics}
        for source in sources.values():
            source.wait_for_receivers(RECEIVERS, 30)
        for count in (BEFORE, DURING, AFTER):
            print("ready", flush=True)
            sys.stdin.readline()
            for topic, payload in itertools.islice(todo, count):
                sources[topic].send(payload)
            for source in sources.values():
                source.flush()
        print("ready", flush=True)


def receive(transport: str, domain: str, own: str, daemon: str) -> None:
    """Receives until each topic has ended, and prints what came."""
    chains: dict[str, Chain] = {}
    others: list[str] = []
    done = threading.Semaphore(0)

    def on_message(message: Message) -> None:
        if message.type == MessageType.DATA:
            chains.setdefault(message.topic, Chain()).add(message.data)
        else:
            others.append(message.type.name)
            if message.type is MessageType.EOS:
                done.release()

    with ipcbus.Context(options(transport, own, daemon), domain=domain) as context:
        topics = list(expected())
        made = [context.receiver(topic, on_message) for topic in topics]
        for _ in topics:
            done.acquire()
        lost = sum(receiver.lost for receiver in made)
    print(
        json.dumps({"chains": {topic: each.facts() for topic, each in chains.items()}, "others": others, "lost": lost})
    )


# The hosts.


class Hosts:
    """Two of them."""

    def __init__(self, stack: contextlib.ExitStack) -> None:
        """Makes them, with a link between them; skips the test where that is not allowed."""
        self._stack = stack
        holders = [self._hold() for _ in HOSTS]
        self._pids = [str(holder.pid) for holder in holders]
        self.do(0, f"ip link add v0 type veth peer name v1 && ip link set v1 netns {self._pids[1]}")
        for host, address in enumerate(HOSTS):
            self.do(host, f"ip addr add {address}/24 dev v{host} && ip link set v{host} up")
            self.route(host)

    def _hold(self) -> Process:
        holder = self.child(["unshare", "-n", "-m", "sh", "-c", READY])
        assert holder.stdout is not None
        if holder.stdout.readline() != "ready\n":
            pytest.skip("this process may not make network and mount namespaces")
        return holder

    def child(self, command: list[str]) -> Process:
        """A process that is gone at the end."""
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        process = subprocess.Popen(command, cwd=ROOT, text=True, **pipes)  # type: ignore[call-overload]
        self._stack.callback(process.communicate)
        self._stack.callback(process.kill)
        return process  # type: ignore[no-any-return]

    def _enter(self, host: int) -> list[str]:
        return ["nsenter", "-t", self._pids[host], "-n", "-m", f"--wd={ROOT}"]

    def do(self, host: int, command: str) -> None:
        """Runs a command on a host; skips the test where it fails."""
        ended = subprocess.run([*self._enter(host), "sh", "-c", command], capture_output=True, text=True, check=False)
        if ended.returncode:
            pytest.skip(f"{command}: {ended.stderr.strip()}")

    def route(self, host: int) -> None:
        """Has what is sent to groups leave by the link."""
        self.do(host, f"ip route add 224.0.0.0/4 dev v{host}")

    def shell(self, host: int, script: str) -> Process:
        """A shell on a host, with its script."""
        return self.child([*self._enter(host), "bash", "-c", script])

    def start(self, host: int, *arguments: str) -> Process:
        """A Python process on a host."""
        return self.child([*self._enter(host), sys.executable, "-m", *arguments])


def said(process: Process) -> str:
    """The next line of a process."""
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise AssertionError(process.communicate()[1])
    return line


def tell(process: Process) -> None:
    """Lets it go on."""
    assert process.stdin is not None
    process.stdin.write("go on\n")
    process.stdin.flush()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make network namespaces")
@pytest.mark.skipif(not (DATA / FEED).exists(), reason=f"the captured feeds are not in {DATA}")
@pytest.mark.parametrize("transport", ["lbtru", pytest.param("lbtrm", marks=pytest.mark.long)])
def test_a_feed_arrives_whole_though_the_link_fails(domain: str, transport: str) -> None:
    with contextlib.ExitStack() as stack:
        hosts = Hosts(stack)
        daemon = ""
        if transport == "lbtru":
            resolver = hosts.start(0, "ipcbus_tools", "resolver", "--interface", HOSTS[0], "--port", "0", "--json")
            daemon = "{host}:{port}".format(**json.loads(said(resolver)))
        own = "tests.system.test_two_hosts"
        crew = [hosts.start(1, own, "receive", transport, domain, HOSTS[1], daemon) for _ in range(RECEIVERS)]
        sender = hosts.start(0, own, "send", transport, domain, HOSTS[0], daemon)
        assert said(sender) == "ready\n"
        tell(sender)
        assert said(sender) == "ready\n"
        hosts.do(1, "ip link set v1 down")
        tell(sender)
        threading.Event().wait(DOWN_S)  # what is under test is that time
        hosts.do(1, "ip link set v1 up")
        hosts.route(1)
        assert said(sender) == "ready\n"
        tell(sender)
        assert said(sender) == "ready\n"
        for found in [json.loads(said(process)) for process in crew]:
            assert found["chains"] == expected()
            assert found["lost"] == 0
            assert set(found["others"]) == {"BOS", "EOS"}


if __name__ == "__main__":
    {"send": send, "receive": receive}[sys.argv[1]](*sys.argv[2:])
