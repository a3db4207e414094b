"""A receiving context that pauses past its timeouts over UDP: what waits in its sockets counts before any timer."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

import ipcbus
from ipcbus.transport.udp.udp_receiver import UdpReceiver
from ipcbus.wire import udp_packets
from tests.kit.bus import GIVE_UP_S, LBTRM, LBTRU, Bus, mode_options
from tests.kit.payload import Books, balanced, body
from tests.kit.udp_hooks import replace_receive

if TYPE_CHECKING:
    from collections.abc import Hashable

    from ipcbus import Message, Source

pytestmark = pytest.mark.parametrize("kind", [LBTRU, LBTRM], ids=lambda kind: str(kind.name))

TIMEOUT_MS, GENERATION_MS, PAUSE_S = 400, 300, 0.45
LOST = 5
"""A datagram that does not come at first."""


def send(source: Source, count: int, size: int = 64) -> int:
    """Sends so many messages, each in a datagram of its own."""
    for number in range(source.sequence_number + 1, source.sequence_number + 1 + count):
        source.send(body(number, size), flush=True)
    return source.sequence_number + 1


@pytest.mark.parametrize(
    ("mode", "where", "size"),
    [
        ("embedded", "callback", 64),
        pytest.param("sequential", "callback", 4000, id="sequential-callback-more than its ring takes at once"),
        ("sequential", "application", 64),
    ],
)
def test_what_came_during_a_pause_counts_before_the_timers(
    bus: Bus, mode: str, where: str, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A repair waits behind many datagrams, and the source was last heard longer ago than its activity timeout."""
    real = UdpReceiver.receive

    def receive(udp_receiver: UdpReceiver, packet: bytes, address: Hashable, now_ns: int) -> None:
        found = udp_packets.parse(packet)
        again = udp_packets.AGAIN
        if not isinstance(found, udp_packets.Data) or found.number != LOST or found.flags & again:
            real(udp_receiver, packet, address, now_ns)

    replace_receive(monkeypatch, receive)
    own = f"transport_{bus.kind.transport}"
    given: dict[str, Any] = {
        "context": {**bus.kind.context_options, **mode_options(mode)},
        "source": {
            f"{own}_sm_minimum_interval": 20,
            f"{own}_sm_maximum_interval": 80,
            f"{own}_ignore_interval": 50,
        },
        "receiver": {
            f"{own}_activity_timeout": TIMEOUT_MS,
            f"{own}_nak_generation_interval": GENERATION_MS,
            f"{own}_nak_backoff_interval": 100,
            f"{own}_nak_initial_backoff_interval": 0,
            "delivery_control_loss_check_interval": 5,
        },
    }
    sending, receiving = (ipcbus.Context(given, domain=bus.domain) for _ in range(2))
    bus.contexts += [sending, receiving]
    source = bus.source("t", sending, **{f"{own}_behavior": "source_paced"})
    books, paused, all_sent = Books(), list[int](), threading.Event()

    def pause() -> None:
        assert all_sent.wait(GIVE_UP_S)
        paused.append(send(source, 200, size))
        if mode == "sequential":
            sending.process_events(0)  # it reads the NAK and sends the datagram again, after the others
        begun = time.monotonic()
        while (left := begun + PAUSE_S - time.monotonic()) > 0:
            threading.Event().wait(left)

    def enter(message: Message) -> None:
        books.enter(message)
        if where == "callback" and message.sequence_number == LOST - 1 and not paused:
            pause()

    receiver = receiving.receiver("t", enter)
    bus.joined(source)
    sent = send(source, 20)
    all_sent.set()
    if where == "application":
        bus.until(lambda: books.accounted == LOST, "the messages before the gap")
        pause()
    bus.until(lambda: paused and books.accounted >= paused[0], "the messages, or news of their loss")
    (ledger,) = books.ledgers.values()
    balanced(ledger, sent + 200)
    assert (ledger.begun, ledger.ended, ledger.lost) == (1, 0, 0)
    (session,) = receiver.sessions
    assert session.counters["unrecovered_tmo"] == 0
