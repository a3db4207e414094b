"""Acknowledgements that nobody may give: each is counted, and acknowledges nothing."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from ipcbus import WouldBlock
from ipcbus.wire import gmd_messages
from tests.kit.bus import LBTIPC, LBTRU, LBTSMX, Bus, Kind
from tests.kit.guaranteed import Named, acknowledged, expected, held_up, send, source
from tests.kit.payload import body

if TYPE_CHECKING:
    from ipcbus import Source

pytestmark = pytest.mark.parametrize("mode", ["embedded"])


@pytest.fixture(params=[LBTIPC, LBTSMX, LBTRU], ids=lambda kind: str(kind.name))
def kind(request: pytest.FixtureRequest) -> Kind:
    """A transport."""
    found: Kind = request.param
    return found


class Forger:
    """A context that has joined a source, and writes what it likes into its control channel."""

    def __init__(self, bus: Bus, sending: Source) -> None:
        self.bus, self.state = bus, sending._gmd()
        self.context = bus.context("forger")
        self.context.receiver("t", lambda _: None)
        self.sessions = self.context._receiving_sessions
        bus.until(lambda: len(self.sessions.sessions()) == 1, "the session")

    @property
    def counted(self) -> int:
        """The messages that the source has ignored."""
        return self.state.sender.ignored

    def until_counted(self, count: int, what: str) -> None:
        """Waits until the source has ignored so many messages."""
        self.bus.until(lambda: self.counted == count, what)

    def identity(self, named: Named) -> tuple[int, int, int]:
        """Topic, instance and incarnation that the messages of a named receiver have."""
        (victim,) = named.context._receiving_sessions.receptions._all
        return victim.topic, victim.machine.instance, self.state.area.incarnation

    def write(self, message: bytes) -> None:
        """Sends a control message to the source."""
        (session,) = self.sessions.sessions()

        def sent() -> bool:
            with self.context._event_loop.driver_lock():
                return self.sessions.channels.send(session, message)

        self.bus.until(sent, "room in the control channel")


def test_forged_acknowledgements_are_counted_and_refused(bus: Bus) -> None:
    sending = source(bus)
    named = Named(bus, ipc_gmd_auto_ack=False)
    expected(bus, sending, "receiver")
    send(bus, sending, 10)
    named.until(10)
    forger = Forger(bus, sending)
    topic, instance, incarnation = forger.identity(named)
    forged: dict[str, bytes] = {
        "the name of another channel": gmd_messages.ack(topic, instance, incarnation, [(1, 10)]),
        "in several ranges": gmd_messages.ack(topic, instance, incarnation, [(1, 4), (6, 10)]),
        "no name": gmd_messages.ack(topic, 77, incarnation, [(1, 10)]),
        "numbers to come": gmd_messages.ack(topic, instance, incarnation, [(1, 1 << 40)]),
        "giving up": gmd_messages.nack(topic, instance, incarnation, 3, 522),
        "asking": gmd_messages.resend_request(topic, instance, incarnation, 1, None, 1 << 20),
    }
    for count, (what, message) in enumerate(forged.items(), 1):
        forger.write(message)
        forger.until_counted(count, what)
        assert sending.gmd_num_pending == 10, what
    forger.write(gmd_messages.leave(topic, instance))
    forger.write(gmd_messages.register(topic, 77, gmd_messages.GMD_SUCCESS, "receiver"))
    bus.until(lambda: sending._gmd().sender.refused > len(forged), "the refusal of a name in use")
    assert sending.gmd_receivers == ["receiver"]
    assert sending.gmd_num_pending == 10

    malformed = bus_malformed(sending)
    forger.write(gmd_messages.ack(topic, instance, incarnation, [(10, 1)]))
    bus.until(lambda: bus_malformed(sending) > malformed, "the range that ends before it begins")

    # A registered receiver speaks for itself only, and only of numbers that were given.
    forger.write(gmd_messages.register(topic, 77, gmd_messages.WARM, "forger"))
    expected(bus, sending, "forger", "receiver")
    send(bus, sending, 5)
    before = forger.counted
    forger.write(gmd_messages.ack(topic, 77, incarnation, [(1, 1 << 40)]))
    forger.until_counted(before + 1, "numbers that were never given")
    forger.write(gmd_messages.ack(topic, 77, incarnation + 1, [(11, 15)]))
    forger.until_counted(before + 2, "another incarnation")
    assert sending.gmd_num_pending == 15
    assert sending.gmd_status(11).pending == ("receiver", "forger")
    sending.gmd_forget("forger")
    reception = named.context._receiving_sessions.receptions._all[0]
    for number in range(1, 16):
        reception.gate.acknowledge(number)
    acknowledged(bus, sending)
    named.ledger.balanced(1, 15)


@pytest.mark.parametrize("kind", [LBTIPC, LBTSMX], ids=lambda kind: str(kind.name))
def test_a_forged_acknowledgement_does_not_publish_what_waits_for_room(bus: Bus, kind: Kind) -> None:
    sending = source(bus, **kind.small())
    named = Named(bus)
    free = held_up(named, 1)
    expected(bus, sending, "receiver")
    forger = Forger(bus, sending)
    with pytest.raises(WouldBlock):
        while True:
            sending.send(body(sending.gmd_sequence_number + 1, 1000), flush=True, block=False)
    last = sending.gmd_sequence_number
    waiting = threading.Thread(target=lambda: sending.send(body(last + 1, 1000), flush=True))
    waiting.start()
    bus.until(lambda: forger.state.sends, "a message that waits for room")
    topic, instance, incarnation = forger.identity(named)
    for count, number in enumerate((last + 1, last + 2, 1 << 40), 1):
        forger.write(gmd_messages.ack(topic, instance, incarnation, [(1, number)]))
        forger.until_counted(count, "the forged acknowledgement")
        assert (forger.state.sends, sending.gmd_sequence_number) == (True, last)
    free.set()
    waiting.join()
    named.until(last + 1)
    acknowledged(bus, sending)
    named.ledger.balanced(1, last + 1)


@pytest.mark.parametrize("kind", [LBTIPC], ids=lambda kind: str(kind.name))
def test_a_flood_of_forgeries_takes_no_memory(bus: Bus) -> None:
    sending = source(bus)
    sender, area = sending._gmd().sender, sending._gmd().area
    with sending._context._event_loop.driver_lock():
        for instance in range(10_000):
            sender.receive("forger", gmd_messages.Ack(0, instance, area.incarnation, [(1, 1)]), 0)
        assert (sender.ignored, sender.refused) == (10_000, 10_000)
        assert len(sender._order) <= 2 * sender.settings.names_max + 1


def bus_malformed(sending: Source) -> int:
    """The malformed messages of guaranteed delivery that the context of a source has counted."""
    return sending._context._sending_sessions.guaranteed.malformed
