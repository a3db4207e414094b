"""`ipcbus resolver`: lets contexts find each other where multicast does not reach."""

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
from ipcbus_tools.common import Failure, Misuse, json_option, plural, print_json
from ipcbus_tools.signals import SignalHandler

PORT: Final = 15380
"""That of Ultra Messaging's daemon."""

_Address = tuple[Any, ...]
_S = 1_000_000_000
_BUFFER = 8 << 20
_BATCH = 64
_LONGEST = 65_536
_LOOK_NS = _S // 4


@click.command("resolver")
@click.option(
    "--interface",
    metavar="ADDRESS",
    default="127.0.0.1",
    show_default=True,
    help="Numeric address to listen on, IPv4 or IPv6; the default reaches only this host.",
)
@click.option(
    "--port",
    metavar="N",
    type=click.IntRange(0, 65535),
    default=PORT,
    show_default=True,
    help="UDP port to listen on; 0 takes a free one.",
)
@click.option(
    "--clients",
    metavar="N",
    type=click.IntRange(1, 100_000),
    default=ForwarderSettings().clients_max,
    show_default=True,
    help="Contexts at the same time; more of them are not taken on.",
)
@json_option
def command(interface: str, port: int, clients: int, as_json: bool) -> None:
    """Gives what each context says about topics to all others, over unicast UDP.

    Contexts name it in their option resolver_unicast_daemon. It carries no messages: once two contexts have found each
    other they need it no more, and messages go straight between them. It keeps nothing but the addresses of who was
    heard in the last 5 s, so it can be stopped and started at any time. Run two on different hosts, and name both in
    resolver_unicast_daemon: contexts use all that answer.

    Nobody is sent anything that he has not asked for: a context proves its address by a cookie first. Whoever reaches
    the port can do that, and then hears the names of topics and can claim to publish some; give an address that only
    your hosts reach. How to set all of it up: docs/how-to/network.md.

    \b
    Examples:
      ipcbus resolver
      ipcbus resolver --interface 10.0.0.1
      ipcbus resolver --interface 10.0.0.1 --port 15381 --json

    It says who comes and who goes, and what it has done when Ctrl-C or SIGTERM ends it. With --json each of that is a
    line of JSON with an "event": listening, client, gone, end.
    """
    with SignalHandler() as stopper, _listening(interface, port) as listener:
        daemon = _Daemon(listener, Forwarder(ForwarderSettings(clients_max=clients), secrets.token_bytes(32)), as_json)
        daemon.say("listening", listener.getsockname())
        try:
            with stopper.allowed():
                daemon.run()
        finally:
            daemon.say_end()


def _listening(interface: str, port: int) -> socket.socket:
    try:
        host = ipaddress.ip_address(interface)
    except ValueError as error:
        raise Misuse(
            f"--interface {interface} is no numeric address; give one of this host, as 'ip addr' does"
        ) from error
    listener = socket.socket(socket.AF_INET if host.version == 4 else socket.AF_INET6, socket.SOCK_DGRAM)
    try:
        listener.setblocking(False)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER)
        listener.bind((interface, port))
    except OSError as error:
        listener.close()
        raise Failure(
            f"{interface} port {port}: {os.strerror(error.errno or 0)}; choose others with --interface and --port"
        ) from error
    return listener


class _Daemon:
    """The socket, and what is said about it."""

    def __init__(self, listener: socket.socket, forwarder: Forwarder, as_json: bool) -> None:
        self._listener, self._forwarder, self._as_json = listener, forwarder, as_json
        self._known: dict[_Address, None] = {}
        self._unsent = 0

    def run(self) -> None:
        """Until a signal."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._listener, selectors.EVENT_READ)
            looked_ns = 0
            while True:
                # Silence is noticed within a quarter of a second; without clients there is nothing to notice.
                selector.select(_LOOK_NS / _S if self._known or self._forwarder.clients else None)
                self._read()
                now_ns = time.monotonic_ns()
                self._forwarder.turn(now_ns)
                if now_ns - looked_ns >= _LOOK_NS or not self._known:
                    looked_ns = now_ns
                    self._look()

    def _read(self) -> None:
        for _ in range(_BATCH):
            try:
                packet, address = self._listener.recvfrom(_LONGEST)
            except BlockingIOError:
                return
            except OSError:
                continue  # what an earlier datagram met at its destination
            self._forwarder.receive(packet, address, time.monotonic_ns())
            for answer, to in self._forwarder.take():
                try:
                    self._listener.sendto(answer, cast("_Address", to))
                except OSError:
                    self._unsent += 1

    def _look(self) -> None:
        """Says who has come and who has gone."""
        now = dict.fromkeys(cast("tuple[_Address, ...]", self._forwarder.clients))
        gone, come = self._known.keys() - now.keys(), now.keys() - self._known.keys()
        self._known = now
        for address in gone:
            self.say("gone", address)
        for address in come:
            self.say("client", address)

    def say(self, event: str, address: _Address) -> None:
        """One line."""
        host, port = address[:2]
        if self._as_json:
            print_json({"event": event, "host": host, "port": port, "clients": len(self._known)})
            return
        at = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        text = {
            "listening": f"listening on {at}; Ctrl-C ends it",
            "client": f"{at} has come, {plural(len(self._known), 'client')}",
            "gone": f"{at} has gone, {plural(len(self._known), 'client')}",
        }[event]
        click.echo(text)

    def say_end(self) -> None:
        """The last line; who started it may not read any more."""
        counts = self._forwarder.counts
        with contextlib.suppress(BrokenPipeError):
            if self._as_json:
                print_json({"event": "end", **dataclasses.asdict(counts), "send_failed": self._unsent})
                return
            dropped = sum(value for name, value in dataclasses.asdict(counts).items() if name.startswith("dropped_"))
            click.echo(
                f"ended: {plural(counts.rcved, 'datagram')} came, {counts.relayed:,} were given on in "
                f"{counts.sent:,} copies, {dropped:,} dropped, {self._unsent:,} refused by the system"
            )
