"""Late join, off-transport recovery and requests between two hosts, and over a link between them that is cut.

Run as a module it is one of the processes there.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

import ipcbus
from ipcbus import MessageType
from ipcbus.runtime.sending.requests import GRACE_S
from tests.kit.payload import Ledger, balanced
from tests.kit.peer import Peer
from tests.system.test_two_hosts import HOSTS, Hosts, said

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ipcbus import Message
    from tests.system.test_two_hosts import Process

TRANSPORTS = ["lbtru", pytest.param("lbtrm", marks=pytest.mark.long)]

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can make network namespaces"),
    pytest.mark.parametrize("transport", TRANSPORTS),
]


class AskingPeer(Peer):
    """The commands of a process on a host."""

    def __init__(self) -> None:
        super().__init__()
        self._asked: list[Message] = []

    def open(self, domain: str, mode: str = "embedded", name: str = "", **options: object) -> int:
        """Opens the context; `options` are of scope context, but for those of receivers."""
        receiving = {key: options.pop(key) for key in ("transport_lbtru_interface",) if key in options}
        self.context = ipcbus.Context({"context": options, "receiver": receiving}, name=name, domain=domain)
        return os.getpid()

    def answering(self, topic: str, *, answers: bool, **options: object) -> None:
        """Makes a receiver that answers each request, or keeps it."""

        def on_message(message: Message) -> None:
            if message.type is MessageType.REQUEST:
                if answers:
                    message.respond(b"[" + message.data + b"]")
                else:
                    self._asked.append(message)

        self.receivers[topic] = self._opened().receiver(topic, on_message, **options)

    def ask(self, topic: str, data: str, timeout: float = 20) -> str:
        """Sends a request; returns the response."""
        return self.sources[topic].request(data.encode(), timeout=timeout).data.decode()

    def return_address(self) -> str:
        """Waits for a request; returns its return address."""
        self._until(lambda: self._asked)
        return self._asked.pop().return_address.hex()

    def respond(self, address: str, data: str) -> None:
        """Answers in the place of the process that got the request."""
        self._opened().respond(bytes.fromhex(address), data.encode())


class HostProcess:
    """A process on a host, with an open context."""

    def __init__(self, process: Process) -> None:
        self.process = process

    def start(self, do: str, **arguments: object) -> None:
        """Gives a command."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"do": do, **arguments}) + "\n")
        self.process.stdin.flush()

    def finish(self) -> Any:  # noqa: ANN401 - what the command returns
        """Waits for the answer to the oldest command."""
        answer = json.loads(said(self.process))
        assert "error" not in answer, answer["error"]
        return answer["is"]

    def do(self, do: str, **arguments: object) -> Any:  # noqa: ANN401 - what the command returns
        """Gives a command and waits for its answer."""
        self.start(do, **arguments)
        return self.finish()


class Scene:
    """Two hosts, and a way to start processes there."""

    def __init__(self, hosts: Hosts, domain: str, transport: str) -> None:
        self.hosts, self.domain, self.transport = hosts, domain, transport
        self._own: dict[str, object] = {}
        if transport == "lbtru":
            resolver = hosts.start(0, "ipcbus_tools", "resolver", "--interface", HOSTS[0], "--port", "0", "--json")
            self._own = {"resolver_unicast_daemon": "{host}:{port}".format(**json.loads(said(resolver)))}

    def start(self, host: int) -> HostProcess:
        """A process with an open context."""
        process = HostProcess(self.hosts.start(host, "tests.system.test_two_hosts_recovery"))
        interface = "resolver_unicast_interface" if self.transport == "lbtru" else "resolver_multicast_interface"
        own = f"transport_{self.transport}"
        fast = {f"{own}_data_rate_limit": 0, f"{own}_retransmit_rate_limit": 1_000_000_000}
        where = {interface: HOSTS[host], **self.at(host), **self._own}
        process.do("open", domain=self.domain, name=f"on host {host}", **where, **fast)
        return process

    def at(self, host: int) -> dict[str, Any]:
        """Options of sources and receivers on a host."""
        return {"transport_lbtru_interface": HOSTS[host]} if self.transport == "lbtru" else {}

    def keeping(self, **options: object) -> tuple[HostProcess, str]:
        """A process with a source that keeps what it sends, and its source string."""
        sender = self.start(0)
        return sender, sender.do("source", topic="t", transport=self.transport, late_join=1, **self.at(0), **options)

    @contextlib.contextmanager
    def cut(self) -> Iterator[None]:
        """The link is cut inside."""
        self.hosts.do(1, "ip link set v1 down")
        yield
        self.hosts.do(1, "ip link set v1 up")
        self.hosts.route(1)


@pytest.fixture
def scene(domain: str, transport: str) -> Iterator[Scene]:
    """Two hosts."""
    with contextlib.ExitStack() as stack:
        yield Scene(Hosts(stack), domain, transport)


def ledger_of(report: dict[str, Any], source: str) -> Ledger:
    return Ledger(**report["ledgers"][source])


def test_a_late_joiner_on_another_host_gets_what_the_source_keeps(scene: Scene) -> None:
    sender, source = scene.keeping()
    sent = sender.do("send", topic="t", count=5000)
    late = scene.start(1)
    late.do("receiver", topic="t")
    ledger = ledger_of(late.do("await_messages", topic="t", count=sent), source)
    balanced(ledger, sent)
    assert ledger.lost == 0


def test_a_request_is_answered_from_another_host_and_from_a_process_there_that_never_saw_it(scene: Scene) -> None:
    asking, answering, other = scene.start(0), scene.start(1), scene.start(1)
    for topic, answers in ("t", True), ("u", False):
        answering.do("answering", topic=topic, answers=answers)
        asking.do("source", topic=topic, transport=scene.transport, **scene.at(0))
        asking.do("joined", topic=topic)
    assert [asking.do("ask", topic="t", data=f"{number}") for number in range(10)] == [f"[{n}]" for n in range(10)]
    asking.start("ask", topic="u", data="?")
    other.do("respond", address=answering.do("return_address"), data="from the other process")
    assert asking.finish() == "from the other process"


def test_a_first_request_is_answered_from_another_host_at_once(scene: Scene) -> None:
    asking, answering = scene.start(0), scene.start(1)
    answering.do("answering", topic="t", answers=True)
    asking.do("source", topic="t", transport=scene.transport, **scene.at(0))
    assert asking.do("ask", topic="t", data="1") == "[1]"


def test_a_first_request_waits_for_a_receiver_on_a_host_that_cannot_be_reached_yet(scene: Scene) -> None:
    asking, answering = scene.start(0), scene.start(1)
    answering.do("answering", topic="t", answers=True)
    with scene.cut():
        asking.do("source", topic="t", transport=scene.transport, **scene.at(0))
        asking.start("ask", topic="t", data="1")
        threading.Event().wait(2 * GRACE_S)  # what is under test is that time
    assert asking.finish() == "[1]"


def test_a_request_without_a_receiver_on_any_host_ends_with_its_time(scene: Scene) -> None:
    asking = scene.start(0)
    asking.do("source", topic="t", transport=scene.transport, **scene.at(0))
    began = time.monotonic()
    asking.start("ask", topic="t", data="1", timeout=2 * GRACE_S)
    with pytest.raises(AssertionError, match="NoResponder: .* no receiver of the topic has joined"):
        asking.finish()
    assert time.monotonic() - began >= 2 * GRACE_S


def test_a_response_that_nobody_can_get_any_more_raises(scene: Scene) -> None:
    asking, answering, other = scene.start(0), scene.start(1), scene.start(1)
    answering.do("answering", topic="t", answers=False)
    asking.do("source", topic="t", transport=scene.transport, **scene.at(0))
    asking.do("joined", topic="t")
    asking.start("ask", topic="t", data="?")
    address = answering.do("return_address")
    asking.process.kill()
    asking.process.wait()
    other.start("respond", address=address, data="too late")
    with pytest.raises(AssertionError, match="TransportError: .* has not taken the response"):
        other.finish()


@pytest.mark.parametrize("down_s", [5, pytest.param(70, marks=[pytest.mark.long, pytest.mark.timeout(300)])])
@pytest.mark.parametrize("covered", [pytest.param(True, marks=pytest.mark.long), False])
def test_what_is_sent_while_the_link_is_cut_comes_as_far_as_the_source_keeps_it(
    scene: Scene, down_s: int, covered: bool
) -> None:
    """The transport itself can send the last 64 KiB again; beyond what the source keeps, one range is lost, no more."""
    limits = {} if covered else {"retransmit_retention_size_limit": 262_144}
    own = f"transport_{scene.transport}"
    sender, source = scene.keeping(**{f"{own}_transmission_window_size": 65536}, **limits)
    receiver = scene.start(1)
    receiver.do("receiver", topic="t", otr_request_initial_delay=200)
    sender.do("joined", topic="t")
    sent = sender.do("send", topic="t", count=1000)
    receiver.do("await_messages", topic="t", count=sent)
    with scene.cut():
        sent = sender.do("send", topic="t", count=20_000)
        threading.Event().wait(down_s)  # what is under test is that time
    kept_from = sender.do("kept_from", topic="t")
    assert (kept_from == 0) is covered
    # Nothing more is sent: what the source still keeps stays until the receiver has asked for it.
    ledger = ledger_of(receiver.do("await_messages", topic="t", count=sent), source)
    balanced(ledger, sent, joins=ledger.begun)
    assert ledger.losses == ([] if covered else [[1000, kept_from - 1]])
    sent = sender.do("send", topic="t", count=100)
    ledger = ledger_of(receiver.do("await_messages", topic="t", count=sent), source)
    balanced(ledger, sent, joins=ledger.begun)
    assert ledger.lost == (0 if covered else kept_from - 1000)


if __name__ == "__main__":
    AskingPeer().run()
