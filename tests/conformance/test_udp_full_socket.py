"""A send buffer that is full for a while: its source waits, and nothing is sent again."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from ipcbus.transport.udp.datagram_socket import DatagramSocket
from ipcbus.transport.udp.session_socket import SessionSocket
from ipcbus.wire.udp_packets import DATA
from tests.kit.bus import LBTRM, LBTRU, Bus
from tests.kit.payload import Books, balanced, body

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ipcbus.transport.udp.mmsg import Address

pytestmark = pytest.mark.parametrize("kind", [LBTRU, LBTRM], ids=lambda kind: str(kind.name))


def test_a_full_send_buffer_is_waited_for(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes one datagram in 0.2 ms."""
    real, free_ns, refused = DatagramSocket.send_pairs, [0], [0]

    def send_pairs(socket: DatagramSocket, pairs: Iterable[tuple[bytes, Address]]) -> tuple[tuple[bytes, Address], ...]:
        given = tuple(pairs)
        for index, pair in enumerate(given):
            if pair[0][1] == DATA:
                if time.monotonic_ns() < free_ns[0]:
                    refused[0] += 1
                    return given[index:]
                free_ns[0] = time.monotonic_ns() + 200_000
            real(socket, [pair])
        return ()

    monkeypatch.setattr(SessionSocket, "direct", None)  # else the usual datagrams go past that
    monkeypatch.setattr(DatagramSocket, "send_pairs", send_pairs)
    books = Books()
    receiver = bus.receiver("t", books.enter)
    source = bus.source()
    bus.joined(source)
    for number in range(300):
        source.send(body(number), flush=True)
    bus.until(lambda: books.accounted == 300, "the messages")
    (ledger,) = books.ledgers.values()
    balanced(ledger, 300)
    (session,) = receiver.sessions
    assert (ledger.lost, session.counters["naks_sent"]) == (0, 0)
    assert refused[0]
    assert source._session.udp_sender is not None
    assert source._session.udp_sender.reliable_sender.counts.rxs_sent == 0
