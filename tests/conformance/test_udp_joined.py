"""Fragments of a message leave together; what arrives is the same whether the system joins datagrams or not."""

from __future__ import annotations

import threading
from random import Random
from typing import TYPE_CHECKING

import pytest

import ipcbus
from ipcbus.transport.udp import datagram_socket
from ipcbus.transport.udp.mmsg import Batched
from ipcbus.transport.udp.udp_sender import UdpSender

if TYPE_CHECKING:
    from ipcbus.message import Message

MESSAGES = 60


@pytest.mark.parametrize("transport", ["lbtru", "lbtrm"])
@pytest.mark.parametrize("joins", [True, False])
def test_messages_of_all_sizes_arrive(
    domain: str, monkeypatch: pytest.MonkeyPatch, transport: str, joins: bool
) -> None:
    if not joins:
        monkeypatch.setattr(datagram_socket, "Batched", lambda fd, v6, size, **_: Batched(fd, v6, size))
    calls, real = [0], UdpSender.send_published

    def send_published(udp_sender: UdpSender) -> None:
        calls[0] += 1
        real(udp_sender)

    random, done, got = Random(7), threading.Event(), []
    sent = [random.randbytes(random.choice((10, 9_000, 65_536, 200_000))) for _ in range(MESSAGES)]

    def take(message: Message) -> None:
        if message.type is ipcbus.MessageType.DATA:
            got.append(bytes(message.data))
            if len(got) == MESSAGES:
                done.set()

    with (
        ipcbus.Context({"context": {"resolver_multicast_interface": "127.0.0.1"}}, domain=domain) as there,
        ipcbus.Context({"context": {"resolver_multicast_interface": "127.0.0.1"}}, domain=domain) as here,
    ):
        source = there.source("joined", transport=transport)
        receiver = here.receiver("joined", take)
        source.wait_for_receivers(1, 10)
        monkeypatch.setattr(UdpSender, "send_published", send_published)
        for each in sent:
            source.send(each, flush=True)
        assert done.wait(60)
        (session,) = receiver.sessions
        assert session.counters["lost"] == 0
        assert source._context._network._udp_senders[0].session_socket.socket.batched.joins == joins
    assert got == sent
    # Of 1,300 fragments, each 15 leave at once.
    assert calls[0] < 5 * MESSAGES
