"""`ipcbus resolver`: the daemon by which contexts find each other where multicast does not reach."""

from __future__ import annotations

import contextlib
import dataclasses
import ipaddress
import os
import secrets
import selectors
import socket
import time
from typing import Any, Final, cast

import click

from ipcbus.resolution.network.forwarder import Forwarder, ForwarderSettings
from ipcbus_tools.common import Failure, Misuse, json_option, plural, port_option, print_json
from ipcbus_tools.signals import SignalHandler

PORT: Final = 15380
"""The port of Ultra Messaging's daemon, lbmrd."""

_Address = tuple[Any, ...]
_S = 1_000_000_000
_BUFFER = 8 << 20
_BATCH = 64
_PACKET_MAX = 65_536
_POLL_NS = _S // 4


@click.command("resolver")
@click.option(
    "--interface",
    metavar="ADDRESS",
    default="127.0.0.1",
    help="Listen on this numeric address, IPv4 or IPv6; the default is reachable only from this host.",
)
@port_option(PORT, "UDP")
@click.option(
    "--clients",
    metavar="N",
    type=click.IntRange(1, 100_000),
    default=ForwarderSettings().clients_max,
    help="Serve at most N contexts at a time; refuse further ones.",
)
@json_option
def command(interface: str, port: int, clients: int, as_json: bool) -> None:
    """Forwards the adverts of each context to all other contexts, over unicast UDP.

    Contexts name the daemon in their option resolver_unicast_daemon. It carries no messages: these go straight from
    context to context, also without the daemon once two contexts have found each other. It keeps only the addresses of
    contexts that it has heard in the last 5 s, so you can stop and start it at any time. Run two daemons on different
    hosts, and name both in resolver_unicast_daemon: contexts use all daemons that answer.

    A context has to prove its address by a cookie before the daemon sends to it. Every program that reaches the port
    can do that, and then sees the names of topics and can claim to publish them; choose an address that only your
    hosts reach. docs/how-to/network.md says how to set it up.

    \b
    Examples:
      ipcbus resolver
      ipcbus resolver --interface 10.0.0.1
      ipcbus resolver --interface 10.0.0.1 --port 15381 --json

    The daemon prints a line for each context that comes or goes, and its counts when Ctrl-C or SIGTERM ends it. With
    --json each line is JSON with an "event": listening, client, gone, end.
    """
    with SignalHandler() as signals, _listening(interface, port) as listener:
        daemon = _Daemon(listener, Forwarder(ForwarderSettings(clients_max=clients), secrets.token_bytes(32)), as_json)
        daemon.say("listening", listener.getsockname())
        try:
            with signals.interruptible():
                daemon.run()
        finally:
            daemon.say_end()


def _listening(interface: str, port: int) -> socket.socket:
    try:
        host = ipaddress.ip_address(interface)
    except ValueError as error:
        raise Misuse(
            f"--interface {interface} is not a numeric address; give one of this host, as 'ip addr' shows it"
        ) from error
    listener = socket.socket(socket.AF_INET if host.version == 4 else socket.AF_INET6, socket.SOCK_DGRAM)
    try:
        listener.setblocking(False)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER)
        listener.bind((interface, port))
    except OSError as error:
        listener.close()
        raise Failure(
            f"cannot listen on {interface} port {port}: {os.strerror(error.errno or 0)}; "
            "choose others with --interface and --port"
        ) from error
    return listener


class _Daemon:
    """The daemon: its socket, its forwarder, and the lines that it prints."""

    def __init__(self, listener: socket.socket, forwarder: Forwarder, as_json: bool) -> None:
        self._listener, self._forwarder, self._as_json = listener, forwarder, as_json
        self._clients: dict[_Address, None] = {}
        self._unsent = 0

    def run(self) -> None:
        """Serves until a signal."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._listener, selectors.EVENT_READ)
            reported_ns = 0
            while True:
                # A silent client is noticed within a quarter of a second; without clients only packets matter.
                selector.select(_POLL_NS / _S if self._clients or self._forwarder.clients else None)
                self._read()
                now_ns = time.monotonic_ns()
                self._forwarder.turn(now_ns)
                if now_ns - reported_ns >= _POLL_NS or not self._clients:
                    reported_ns = now_ns
                    self._report_changes()

    def _read(self) -> None:
        for _ in range(_BATCH):
            try:
                packet, address = self._listener.recvfrom(_PACKET_MAX)
            except BlockingIOError:
                return
            except OSError:
                continue  # an ICMP error for an earlier datagram
            self._forwarder.receive(packet, address, time.monotonic_ns())
            for answer, to in self._forwarder.take():
                try:
                    self._listener.sendto(answer, cast("_Address", to))
                except OSError:
                    self._unsent += 1

    def _report_changes(self) -> None:
        """Prints a line for each client that has come or gone."""
        now = dict.fromkeys(cast("tuple[_Address, ...]", self._forwarder.clients))
        before, self._clients = self._clients, now
        for address in before.keys() - now.keys():
            self.say("gone", address)
        for address in now.keys() - before.keys():
            self.say("client", address)

    def say(self, event: str, address: _Address) -> None:
        """Prints one event."""
        host, port = address[:2]
        if self._as_json:
            print_json({"event": event, "host": host, "port": port, "clients": len(self._clients)})
            return
        at = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        text = {
            "listening": f"listening on {at}; Ctrl-C ends it",
            "client": f"{at} has come, {plural(len(self._clients), 'client')}",
            "gone": f"{at} has gone, {plural(len(self._clients), 'client')}",
        }[event]
        click.echo(text)

    def say_end(self) -> None:
        """Prints the last line, unless the reader of the output has gone."""
        counts = self._forwarder.counts
        with contextlib.suppress(BrokenPipeError):
            if self._as_json:
                print_json({"event": "end", **dataclasses.asdict(counts), "send_failed": self._unsent})
                return
            dropped = sum(value for name, value in dataclasses.asdict(counts).items() if name.startswith("dropped_"))
            click.echo(
                f"ended: {plural(counts.rcved, 'datagram')} received, {counts.relayed:,} forwarded in "
                f"{counts.sent:,} copies, {dropped:,} dropped, {self._unsent:,} refused by the system"
            )
