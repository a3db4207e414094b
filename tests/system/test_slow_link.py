"""Sessions over a network that is slow, loses or is cut, with real sockets: hosts are namespaces behind a switch.

Run as a module it is one of the processes there.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import socket
import statistics
import sys
import threading
import time
from typing import TYPE_CHECKING

import pytest

import ipcbus
from ipcbus import MessageType, WouldBlock
from ipcbus.wire.udp_packets import AGAIN, DATA
from tests.kit.switch import NAME, Switch
from tests.system.test_two_hosts import Hosts, options, said, tell

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ipcbus import Message
    from tests.system.test_two_hosts import Process

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(400),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can make network namespaces"),
    pytest.mark.skipif(not os.access("/dev/net/tun", os.W_OK), reason="the system has no /dev/net/tun"),
]
SIZE = 1300
HEADERS = 100
"""About the bytes of all headers of a message that has a datagram of its own."""
END = (1 << 64) - 1
"""The number of the last message, which is not counted."""
PORT = 5000
OWN = "tests.system.test_slow_link"


# The processes there.


def options_of(transport: str, own: str, daemon: str, extra: str) -> dict[str, dict[str, object]]:
    """Those that hosts need, with datagrams as long as packets, and without rate limits."""
    found = options("lbtrm" if transport == "lbtrm" else "lbtru", own, daemon)
    for scope in ("context", "source", "receiver"):
        found.setdefault(scope, {})
    if transport == "lbttcp":
        found["source"] = {"transport_tcp_interface": own}
        found["receiver"] = {"transport_tcp_interface": own}
    else:
        limits = {"data_rate_limit": 10**9, "retransmit_rate_limit": 10**9, "datagram_max_size": 1400}
        found["context"] |= {f"transport_{transport}_{name}": value for name, value in limits.items()}
    for each in filter(None, extra.split(",")):
        scope, name, value = each.split(":")
        found[scope][name] = value
    return found


def send(
    transport: str, domain: str, own: str, daemon: str, extra: str, receivers: str, seconds: str, rate: str
) -> None:
    """Offers data at a rate in bits a second; a sender that does not wait leaves out what finds no room."""
    sent = skipped = 0
    with ipcbus.Context(options_of(transport, own, daemon, extra), domain=domain) as context:
        source = context.source("link", transport=transport)
        source.wait_for_receivers(int(receivers), 30)
        print("ready", flush=True)
        sys.stdin.readline()
        begin = time.monotonic()
        waits = "source_paced" not in extra
        while (now := time.monotonic()) < begin + float(seconds):
            due = int((now - begin) * int(rate) / 8 / SIZE)
            while sent + skipped < due and time.monotonic() < begin + float(seconds):
                try:
                    source.send(sent.to_bytes(8, "big").ljust(SIZE), block=waits)
                    sent += 1
                except WouldBlock:
                    skipped += 1
            source.flush()
            time.sleep(0.002)
        source.send(END.to_bytes(8, "big"))
        source.flush()
        sys.stdin.readline()
        found = {"sent": sent, "skipped": skipped}
        way = source._session.udp_sender
        if transport != "lbttcp" and way is not None:
            counts = way.reliable_sender.counts
            found |= {"datagrams": counts.msgs_sent, "again": counts.rxs_sent}
        print(json.dumps(found), flush=True)
    print("closed", flush=True)


def receive(transport: str, domain: str, own: str, daemon: str, extra: str) -> None:
    """Receives until the end."""
    got: list[tuple[float, int]] = []
    lost = [0]
    over = threading.Event()

    def on_message(message: Message) -> None:
        if message.type == MessageType.DATA:
            number = int.from_bytes(message.data[:8], "big")
            if number == END:
                over.set()
            else:
                got.append((time.monotonic(), number))
        elif message.type in (MessageType.UNRECOVERABLE_LOSS, MessageType.UNRECOVERABLE_LOSS_BURST):
            lost[0] += message.sequence_number - message.first_sequence_number + 1

    with ipcbus.Context(options_of(transport, own, daemon, extra), domain=domain) as context:
        context.receiver("link", on_message)
        print("ready", flush=True)
        over.wait()
    times = [at for at, _ in got]
    stalls = [later - earlier for earlier, later in itertools.pairwise(times)]
    numbers = [number for _, number in got]
    print(
        json.dumps(
            {
                "got": len(got),
                "once": len(set(numbers)) == len(numbers),
                "in order": numbers == sorted(numbers),
                "lost": lost[0],
                "stall": max(stalls, default=0),
                "took": times[-1] - times[0] if times else 0,
                "last": times[-1] if times else 0,
            }
        ),
        flush=True,
    )


# Plain TCP, to compare with.


def send_plain(own: str, algorithm: str, receivers: str, seconds: str, rate: str) -> None:
    """Offers what `send` does, to each receiver over a connection of its own; leaves out what finds no room."""
    with contextlib.ExitStack() as stack:
        listening = stack.enter_context(socket.create_server((own, PORT)))
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, algorithm.encode())
        print("ready", flush=True)
        all_of_them = [stack.enter_context(listening.accept()[0]) for _ in range(int(receivers))]
        rest = dict.fromkeys(all_of_them, b"")
        for each in all_of_them:
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            each.setblocking(False)
        print("ready", flush=True)
        sys.stdin.readline()
        begin, due = time.monotonic(), 0
        while (now := time.monotonic()) < begin + float(seconds):
            while due < int((now - begin) * int(rate) / 8 / SIZE):
                for each in all_of_them:
                    with contextlib.suppress(BlockingIOError):
                        part = rest[each] or due.to_bytes(8, "big").ljust(SIZE)
                        rest[each] = part[each.send(part) :]
                due += 1
            time.sleep(0.002)


def receive_plain(address: str) -> None:
    """Receives until the connection ends, and prints the longest time without a message."""
    with socket.create_connection((address, PORT), 30) as connection:
        connection.settimeout(60)
        times, rest = list[float](), 0
        while piece := connection.recv(65536):
            came, rest = divmod(rest + len(piece), SIZE)
            times += [time.monotonic()] * came
    stalls = [later - earlier for earlier, later in itertools.pairwise(times)]
    print(json.dumps({"got": len(times), "stall": max(stalls, default=0)}), flush=True)


# The hosts.


class Net(Hosts):
    """Hosts behind a switch."""

    def __init__(self, stack: contextlib.ExitStack, switch: Switch, count: int) -> None:
        """Makes them."""
        self._stack, self.switch = stack, switch
        self._pids = [str(self._hold().pid) for _ in range(count)]
        self.addresses = [f"10.78.0.{place + 1}" for place in range(count)]
        for place, address in enumerate(self.addresses):
            switch.add(int(self._pids[place]), address)
            self.do(
                place, f"ip addr add {address}/24 dev {NAME} && ip link set {NAME} up multicast on txqueuelen 10000"
            )
            self.do(place, f"ip route add 224.0.0.0/4 dev {NAME}")
        switch.start()
        stack.callback(switch.close)

    def run(
        self, transport: str, domain: str, extra: str, seconds: float, rate: int = 8_000_000
    ) -> tuple[Process, list[Process]]:
        """Starts a sender on the first host, and a receiver on each other."""
        resolver = self.start(0, "ipcbus_tools", "resolver", "--interface", self.addresses[0], "--port", "0", "--json")
        daemon = "{host}:{port}".format(**json.loads(said(resolver)))
        count = len(self.addresses) - 1
        crew = [
            self.start(place, OWN, "receive", transport, domain, self.addresses[place], daemon, extra)
            for place in range(1, count + 1)
        ]
        for each in crew:
            assert said(each) == "ready\n"
        to_sender = (transport, domain, self.addresses[0], daemon, extra, str(count), str(seconds), str(rate))
        sender = self.start(0, OWN, "send", *to_sender)
        assert said(sender) == "ready\n"
        return sender, crew

    def run_plain(self, algorithm: str, seconds: float, rate: int = 8_000_000) -> list[dict[str, float]]:
        """What receivers over plain TCP say in the end."""
        count = len(self.addresses) - 1
        given = (self.addresses[0], algorithm, str(count), str(seconds), str(rate))
        sender = self.start(0, OWN, "send_plain", *given)
        assert said(sender) == "ready\n"
        crew = [self.start(place, OWN, "receive_plain", self.addresses[0]) for place in range(1, count + 1)]
        assert said(sender) == "ready\n"
        tell(sender)
        return [json.loads(said(each)) for each in crew]


@contextlib.contextmanager
def network(switch: Switch, receivers: int) -> Iterator[Net]:
    """Hosts behind a switch, gone at the end."""
    with contextlib.ExitStack() as stack:
        yield Net(stack, switch, receivers + 1)


def finish(sender: Process, crew: list[Process]) -> tuple[dict[str, float], list[dict[str, float]]]:
    """What all of them say at the end."""
    found = [json.loads(said(each)) for each in crew]
    tell(sender)
    sent = json.loads(said(sender))
    said(sender)
    return sent, found


def is_accounted_for(sent: dict[str, float], found: list[dict[str, float]]) -> bool:
    """Whether each number was delivered once and in order, or reported."""
    return all(each["got"] + each["lost"] == sent["sent"] and each["once"] and each["in order"] for each in found)


@pytest.mark.parametrize("pacing", ["receiver_paced", "source_paced"])
@pytest.mark.parametrize("transport", ["lbtru", "lbtrm"])
def test_three_receivers_share_a_slow_link(domain: str, transport: str, pacing: str) -> None:
    rate, seconds = 4_000_000, 10
    with network(Switch(1, delay=0.01, rate=rate), 3) as net:
        extra = f"source:transport_{transport}_behavior:{pacing}"
        sender, crew = net.run(transport, domain, extra, seconds)
        tell(sender)
        sent, found = finish(sender, crew)
        assert is_accounted_for(sent, found)
        got = [each["got"] for each in found]
        assert sum(got) ** 2 / (3 * sum(each**2 for each in got)) >= 0.9
        copies = 1 if transport == "lbtrm" else 3
        # What is under way at the end counts as well: the sender waits for all of it. How much of the link that has to
        # be stands in tests/sim/test_congestion.py, in virtual time.
        took = max(each["took"] for each in found)
        print(transport, pacing, got, f"{copies * sum(got) / 3 * (SIZE + HEADERS) * 8 / (rate * took):.0%} of the link")


@pytest.mark.parametrize("receivers", [1, 3])
@pytest.mark.parametrize("loss", [0.01, 0.05, 0.2])
@pytest.mark.parametrize("transport", ["lbtru", "lbtrm"])
def test_random_loss_loses_no_message(domain: str, transport: str, loss: float, receivers: int) -> None:
    with network(Switch(2, delay=0.01, loss=loss), receivers) as net:
        sender, crew = net.run(transport, domain, "", 6)
        tell(sender)
        sent, found = finish(sender, crew)
        print(transport, loss, receivers, sent, found)
        assert is_accounted_for(sent, found)
        assert [each["lost"] for each in found] == [0] * receivers


@pytest.mark.parametrize("receivers", [1, 3])
def test_how_long_random_loss_holds_messages_up_beside_plain_tcp(domain: str, receivers: int) -> None:
    """Prints the longest gap in order of each, over one switch; how long it may be is not asserted here."""
    stalls: dict[str, list[float]] = {}
    with network(Switch(6, delay=0.01, loss=0.05), receivers) as net:
        for _, algorithm in itertools.product(range(3), ("cubic", "reno")):
            found = net.run_plain(algorithm, 6)
            assert all(each["got"] for each in found)
            stalls.setdefault(algorithm, []).append(max(each["stall"] for each in found))
            print("plain", algorithm, found)
        for number, transport in itertools.product(range(3), ("lbtru", "lbtrm", "lbttcp")):
            sender, crew = net.run(transport, f"{domain}{number}", "", 6)
            tell(sender)
            sent, found = finish(sender, crew)
            assert is_accounted_for(sent, found)
            assert [each["lost"] for each in found] == [0] * receivers
            stalls.setdefault(transport, []).append(max(each["stall"] for each in found))
            print(transport, sent, found)
    print(receivers, "receivers:", {name: statistics.median(each) for name, each in stalls.items()}, stalls)


@pytest.mark.parametrize("loss", [0.05, 0.2])
@pytest.mark.parametrize("control", ["on", "off"])
@pytest.mark.parametrize("transport", ["lbtru", "lbtrm"])
def test_one_client_of_three_that_loses_much(domain: str, transport: str, control: str, loss: float) -> None:
    """Prints the longest gap of the healthy ones; on LBT-RU no repair reaches them."""
    with network(switch := Switch(7, delay=0.01), 3) as net:
        sender, crew = net.run(transport, domain, f"source:transport_{transport}_congestion_control:{control}", 6)
        repairs = [0] * 4

        def look(place: int, packet: bytes) -> None:
            if packet[9] == socket.IPPROTO_UDP and packet[29] == DATA and packet[31] & AGAIN:
                repairs[place] += 1

        switch.watches, switch.lossy = look, {1: loss}
        tell(sender)
        sent, found = finish(sender, crew)
        assert is_accounted_for(sent, found)
        assert [each["lost"] for each in found] == [0, 0, 0]
        assert repairs[1] > 0
        if transport == "lbtru":
            assert repairs[2:] == [0, 0]
        gaps = [round(each["stall"], 3) for each in found]
        print(transport, control, loss, "repairs", repairs[1:], "gaps", gaps, sent, found)


@pytest.mark.parametrize("delay", [0, 0.01])
def test_jitter_has_almost_nothing_sent_again(domain: str, delay: float) -> None:
    with network(Switch(4, delay=delay, jitter=0.005), 1) as net:
        sender, crew = net.run("lbtru", domain, "", 10)
        tell(sender)
        sent, found = finish(sender, crew)
        print("jitter", delay, sent, found)
        assert is_accounted_for(sent, found)
        assert [each["lost"] for each in found] == [0]
        assert sent["again"] < 0.01 * sent["datagrams"]


@pytest.mark.parametrize(("link", "rate"), [(4_000_000, 8_000_000), (8_000_000, 2_000_000)], ids=["full", "free"])
@pytest.mark.parametrize("seconds", [1, 5, 60, 90])
@pytest.mark.parametrize("transport", ["lbtru", "lbtrm", "lbttcp"])
def test_a_cut_ends_and_each_number_has_come_or_is_reported(
    domain: str, transport: str, seconds: int, link: int, rate: int
) -> None:
    """A link that is offered twice what it takes, and one that has room to catch up.

    On the full one the window of the source, 24 MB for each of two receivers, needs 100 s alone after a long cut.
    """
    with network(Switch(3, delay=0.01, rate=link), 2) as net:
        sender, crew = net.run(transport, domain, "", 2 + 2 * seconds, rate)
        tell(sender)
        pause = threading.Event().wait  # what is under test is that time
        pause(1)
        net.switch.is_cut = True
        pause(seconds)
        net.switch.is_cut = False
        back = time.monotonic()
        sent, found = finish(sender, crew)
        last = max(each["last"] for each in found) - back
        print(transport, seconds, f"all there {last:.1f} s after the cut,", net.switch.dropped, "dropped", sent, found)
        assert is_accounted_for(sent, found)


if __name__ == "__main__":
    {each.__name__: each for each in (send, receive, send_plain, receive_plain)}[sys.argv[1]](*sys.argv[2:])
