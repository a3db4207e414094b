"""`ipcbus resolver` as a process, with sockets on loopback."""

from __future__ import annotations

import contextlib
import json
import select
import socket
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from ipcbus.wire import relay_packets
from ipcbus_tools.cli import cli
from tests.kit.resolving import Node, drive, source
from tests.system.test_cli_processes import SIGNALS, started

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.system.test_cli_processes import Process


@contextlib.contextmanager
def resolver(*arguments: str) -> Iterator[tuple[Process, tuple[str, int]]]:
    """A daemon on a free port, and its address."""
    with started("resolver", "--port", "0", "--json", *arguments) as process:
        yield process, _listening(process)


def _listening(process: Process) -> tuple[str, int]:
    event = said(process)
    assert event["event"] == "listening"
    return event["host"], event["port"]


def said(process: Process) -> dict:  # type: ignore[type-arg]
    """The next line."""
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, process.stderr.read() if process.stderr else ""
    return json.loads(line)  # type: ignore[no-any-return]


def has_spoken(process: Process) -> bool:
    """Whether there is another line."""
    assert process.stdout is not None
    return bool(select.select([process.stdout], [], [], 0)[0])


@pytest.mark.parametrize("interface", [pytest.param("127.0.0.1", marks=pytest.mark.long), "::1"])
def test_contexts_find_each_other_through_it(domain: str, interface: str) -> None:
    with (
        resolver("--interface", interface) as (process, address),
        Node(1, domain, [address]) as feed,
        Node(2, domain, [address]) as other,
        Node(3, domain + "x", [address]) as stranger,
    ):
        nodes = [feed, other, stranger]
        feed.resolution.offer(source(1, "quotes"), 0)
        other.resolution.want("quotes", 0)
        drive(nodes, lambda: other.topics == {"quotes"}, "the source")
        assert {said(process)["event"] for _ in nodes} == {"client"}
        # One that comes later finds it as well, and sees it go.
        with Node(4, domain, [address]) as late:
            late.resolution.want("quotes", 0)
            drive([*nodes, late], lambda: late.topics == {"quotes"}, "the source")
            feed.send(feed.resolution.close(0))
            drive([other, late], lambda: not other.topics | late.topics, "its end")
        assert not stranger.topics
        assert stranger.resolution.counts.dgrams_other_domain


def test_a_daemon_that_is_killed_is_missed_by_nobody(domain: str) -> None:
    with (
        resolver() as (first, one),
        resolver() as (_, two),
        Node(1, domain, [one, two]) as feed,
        Node(2, domain, [one, two]) as other,
    ):
        nodes = [feed, other]
        drive(nodes, lambda: len(feed.clients.alive) == len(other.clients.alive) == 2, "both daemons")
        first.kill()
        feed.resolution.offer(source(1, "quotes"), 0)
        drive(nodes, lambda: other.topics == {"quotes"}, "the source")
        drive(nodes, lambda: len(feed.clients.alive) == len(other.clients.alive) == 1, "its death to be seen")
        # It comes back at the same port, knows nobody, and takes the other's place.
        with started("resolver", "--port", str(one[1]), "--json") as again:
            assert _listening(again) == one
            drive(nodes, lambda: len(feed.clients.alive) == len(other.clients.alive) == 2, "its return")
            feed.resolution.offer(source(1, "orders"), 0)
            drive(nodes, lambda: "orders" in other.topics, "the new source")


def test_nobody_who_has_not_proved_himself_is_sent_more_than_he_sent(domain: str) -> None:
    with resolver() as (process, address), Node(1, domain, [address]) as feed:
        drive([feed], lambda: has_spoken(process), "the daemon to take it on")
        assert said(process)["event"] == "client"
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as liar:
            liar.bind(("127.0.0.1", 0))
            liar.settimeout(30)
            for packet in (b"", b"x", relay_packets.relay(7, b"a lie"), relay_packets.keepalive(7, 9)):
                liar.sendto(packet, address)
            answer, _ = liar.recvfrom(65536)
        assert answer[: relay_packets.RELAY_HEADER - 8] == relay_packets.answer(0, 0)[: relay_packets.RELAY_HEADER - 8]
        assert len(answer) == len(relay_packets.keepalive(7, 9))
        process.terminate()
        events = [json.loads(line) for line in process.communicate()[0].splitlines()]
    assert events[-1]["dropped_malformed"] == 2
    assert events[-1]["dropped_unproven"] == 1
    assert events[-1]["relayed"] == 0


@SIGNALS
def test_a_signal_ends_it(number: int, code: int) -> None:
    with started("resolver", "--port", "0") as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("listening on 127.0.0.1:")
        process.send_signal(number)
        out, err = process.communicate()
    assert (process.returncode, err) == (code, "")
    assert out.startswith("ended: 0 datagrams received")


def test_it_says_who_comes_and_goes(domain: str) -> None:
    with started("resolver", "--port", "0") as process:
        assert process.stdout is not None
        port = int(process.stdout.readline().split(";")[0].rpartition(":")[2])
        with Node(1, domain, [("127.0.0.1", port)]) as node:
            drive([node], lambda: has_spoken(process), "the daemon to take it on")
            assert process.stdout.readline().endswith(" has come, 1 client\n")
        assert process.stdout.readline().endswith(" has gone, 0 clients\n")


def test_wrong_use() -> None:
    result = CliRunner().invoke(cli, ["resolver", "--interface", "localhost"])
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert "is not a numeric address" in result.stderr
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind(("127.0.0.1", 0))
        port = str(taken.getsockname()[1])
        result = CliRunner().invoke(cli, ["resolver", "--port", port])
    assert (result.exit_code, result.stderr.count("\n")) == (1, 1)
    assert f"127.0.0.1 port {port}: Address already in use" in result.stderr


def test_help_says_what_it_is_for() -> None:
    text = CliRunner().invoke(cli, ["resolver", "--help"]).output
    assert "resolver_unicast_daemon" in text
    assert "\n    ipcbus resolver --interface 10.0.0.1\n" in text
