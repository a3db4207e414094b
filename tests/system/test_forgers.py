"""Somebody else on loopback forges packets: nobody is misled, nothing grows, and nobody is sent more than he sent."""

from __future__ import annotations

import os
import random
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, cast

import pytest

import ipcbus
from ipcbus.resolution.network.network_resolution import NetworkResolution, Who
from ipcbus.resolution.network.resolution_settings import ResolutionSettings
from ipcbus.resolution.network.resolver_clients import ResolverClients, ResolverClientSettings
from ipcbus.runtime.loop.seals import Seals
from ipcbus.wire import relay_packets, udp_packets
from tests.kit.attacker import Attacker, Spoofer, changed, forged
from tests.kit.bus import LBTRU, Bus
from tests.kit.datagrams import Item, compose
from tests.kit.network_keys import key_file
from tests.kit.payload import Books, balanced, body
from tests.kit.resolving import source as advert_of
from tests.system.test_resolver import resolver

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from ipcbus import Context, Receiver, Source
    from ipcbus.resolution.network.resolution_counts import ResolutionCounts
    from ipcbus.transport.udp.mmsg import Address
    from ipcbus.transport.udp.session_socket import SessionSocket
    from ipcbus.transport.udp.udp_receiver import UdpReceiver
    from ipcbus.transport.udp.udp_sender import UdpSender

BATCH = 40
FEW, MANY, A_MILLION = 4_000, 100_000, 1_000_000

times = pytest.mark.parametrize(
    "count",
    [FEW, *(pytest.param(count, marks=[pytest.mark.long, pytest.mark.timeout(600)]) for count in (MANY, A_MILLION))],
)


@pytest.fixture
def bus(domain: str) -> Iterator[Bus]:
    """Contexts with threads, on LBT-RU."""
    made = Bus(domain, LBTRU, "embedded")
    yield made
    made.close()


@pytest.fixture
def chance() -> random.Random:
    """Shows its seed when the test fails."""
    seed = random.randrange(2**32)
    print("seed", seed)
    return random.Random(seed)


def udp_sender(source: Source) -> UdpSender:
    """The way of its session over UDP."""
    found = source._session.udp_sender
    assert found is not None
    return found


def udp_receiver(receiver: Receiver) -> UdpReceiver:
    """Of its only session."""
    (session,) = receiver._context._receiving_sessions.sessions()
    return cast("UdpReceiver", session.datagram_source)


def at(port: SessionSocket) -> Address:
    """Where it hears."""
    return port.socket.address


class Stream:
    """Messages that flow while the test does something else."""

    def __init__(self, bus: Bus, **options: object) -> None:
        self.bus, self.books = bus, Books()
        self.sending, self.receiving = bus.context("sending", **options), bus.context("receiving", **options)
        self.source = bus.source("t", self.sending)
        self.receiver = bus.receiver("t", self.books.enter, self.receiving)
        bus.joined(self.source)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            for _ in range(20):
                self.source.send(body(self.source.sequence_number + 1), flush=True)
            self._stop.wait(0.002)

    def finish(self) -> None:
        """Asserts that everything came."""
        self._stop.set()
        self._thread.join()
        sent = self.source.sequence_number + 1
        self.bus.until(lambda: self.books.accounted >= sent, "the messages")
        self.source.close()
        self.bus.until(lambda: self.books.ended, "the end")
        (ledger,) = self.books.ledgers.values()
        balanced(ledger, sent)
        assert ledger.lost == 0


@times
def test_a_source_is_misled_by_nobody(bus: Bus, chance: random.Random, count: int) -> None:
    stream = Stream(bus)
    way = udp_sender(stream.source)
    session, to = way.reliable_sender.session_id, at(way.session_socket)
    with Attacker() as attacker, Attacker() as other:
        for _ in range(count // BATCH):
            for _ in range(BATCH):
                attacker.send(forged(chance, session), to)
            other.ask(session, to)  # all that was answered is there
            attacker.hear()
            assert attacker.got <= attacker.sent
            assert other.got <= other.sent
            assert stream.source.receivers == 1
        counts = way.reliable_sender.counts
        assert counts.dgrams_dropped_unproven > count // 20
        assert counts.dgrams_dropped_malformed > count // 20
        window = way.reliable_sender.snapshot()
        assert (window["num_clients"], window["txw_msgs"]) == (1, way.reliable_sender.lead - way.reliable_sender.trail)
        # Nobody but the receiver has anything sent again, or learns more than that he is not known.
        assert counts.naks_rcved <= udp_receiver(stream.receiver).reliable_receiver.counts.naks_sent
        answers = {found.type for each in attacker.packets if (found := udp_packets.parse(each)) is not None}
        assert answers == {udp_packets.SM, udp_packets.RESET}
        stream.finish()


@times
def test_a_receiver_is_misled_by_nobody(bus: Bus, chance: random.Random, count: int) -> None:
    stream = Stream(bus)
    heard = udp_receiver(stream.receiver)
    session, to = udp_sender(stream.source).reliable_sender.session_id, at(heard._session_sockets[0])
    with Attacker() as attacker:
        for _ in range(count // BATCH):
            for _ in range(BATCH):
                # Not `reliable_receiver`: that settles what was fetched, and this thread does not drive the context.
                attacker.send(forged(chance, session, heard._receiver._cookie), to)
        stream.finish()
        attacker.hear()
        assert attacker.got == 0
    assert stream.receiver.lost == 0


as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can send in the name of others")
FAR = 1 << 40


@as_root
@pytest.mark.parametrize("forged_first", [False, True])
@pytest.mark.parametrize("what", ["a message far ahead", "a datagram far ahead", "both"])
def test_one_datagram_in_the_name_of_the_source_stops_nothing(bus: Bus, what: str, forged_first: bool) -> None:
    """Without a key it may take the place of one true datagram, whose messages are then reported lost, and no other."""
    source = bus.source("t", bus.context("sending"), transport_topic_sequence_number_info_interval=0)
    books = Books()
    receiver = bus.receiver("t", books.enter, bus.context("receiving"))
    bus.joined(source)
    way, heard = udp_sender(source), udp_receiver(receiver)
    for number in range(0 if forged_first else 100):
        source.send(body(number), flush=True)
    bus.until(lambda: books.accounted == source.sequence_number + 1, "the messages before")
    lead = way.reliable_sender.lead
    number = lead if what == "a message far ahead" else FAR
    sequence = source.sequence_number + 1 if what == "a datagram far ahead" else FAR
    ((topic,),) = [client.topics for client in way.reliable_sender.clients]
    message = compose(Item(topic, sequence, b"forged"))
    packet = udp_packets.data(way.reliable_sender.session_id, number, 0, 1, time.time_ns(), message, 0)
    counts = heard.reliable_receiver.counts
    before = counts.bytes_rcved, counts.dgrams_dropped_other
    with Spoofer() as spoofer:
        spoofer.send(packet, at(way.session_socket), at(heard._session_sockets[0]))
        bus.until(lambda: (counts.bytes_rcved, counts.dgrams_dropped_other) != before, "the forged datagram")
    for number in range(source.sequence_number + 1, source.sequence_number + 2001):
        source.send(body(number), flush=True)
    sent = source.sequence_number + 1
    bus.until(lambda: books.accounted >= sent, "the messages")
    (ledger,) = books.ledgers.values()
    balanced(ledger, sent)
    assert ledger.lost <= 1
    assert receiver.sessions[0].counters["malformed"] + counts.dgrams_dropped_other >= 1


@as_root
@times
def test_datagrams_in_the_name_of_the_source_do_bounded_harm(bus: Bus, chance: random.Random, count: int) -> None:
    """Each may take the place of the true datagram with its number, whose messages are lost; the stream goes on."""
    source = bus.source("t", bus.context("sending"))
    books = Books()
    receiver = bus.receiver("t", books.enter, bus.context("receiving"))
    bus.joined(source)
    way, heard = udp_sender(source), udp_receiver(receiver)
    session, of, to = way.reliable_sender.session_id, at(way.session_socket), at(heard._session_sockets[0])
    with Spoofer() as spoofer:
        for _ in range(count // BATCH):
            for _ in range(BATCH):
                spoofer.send(forged(chance, session)[:60_000], of, to)
            source.send(body(source.sequence_number + 1), flush=True)
    # Forged numbers are below 1000, near the next one, or so far ahead that the source is asked.
    reach = source.sequence_number + 1000
    while source.sequence_number < reach + 3000:
        source.send(body(source.sequence_number + 1), flush=True)
    sent = source.sequence_number + 1
    bus.until(lambda: books.accounted >= sent, "the messages, or news of their loss")
    (ledger,) = books.ledgers.values()
    print(count, "forged:", ledger, heard.reliable_receiver.counts)
    balanced(ledger, sent)
    assert ledger.losses == [] or ledger.losses[-1][1] < reach
    assert (ledger.begun, ledger.ended) == (1, 0)


def test_whoever_proves_himself_takes_one_of_few_places(bus: Bus) -> None:
    source = bus.source(transport_lbtru_maximum_clients_per_transport=3)
    bus.receiver("t", lambda message: None)
    bus.joined(source)
    way = udp_sender(source)
    session, to = way.reliable_sender.session_id, at(way.session_socket)
    admitted = refused = 0
    for nonce in range(10):
        with Attacker() as attacker:
            welcome = attacker.ask(session, to, nonce=nonce)
            assert isinstance(welcome, udp_packets.SessionMessage)
            answer = attacker.ask(session, to, welcome.cookie, 100 + nonce)
            admitted += isinstance(answer, udp_packets.SessionMessage) and bool(answer.flags & udp_packets.ADMITTED)
            refused += answer.type == udp_packets.RESET
            assert attacker.got <= attacker.sent
            # The cookie is no use to anybody else.
            with Attacker() as thief:
                answer = thief.ask(session, to, welcome.cookie, 200 + nonce)
                assert not answer.flags & udp_packets.ADMITTED
    assert (admitted, refused) == (2, 8)
    assert len(way.reliable_sender.addresses) == 3


# With a key.


def test_with_a_key_only_who_has_it_is_heard(bus: Bus, tmp_path: Path, chance: random.Random) -> None:
    one, other = key_file(tmp_path / "one", {1: b"1"}), key_file(tmp_path / "other", {1: b"2"})
    sending = bus.context("sending", network_key_file=one)
    source = bus.source("t", sending)
    books, strange = Books(), Books()
    bus.receiver("t", books.enter, bus.context("with the key", network_key_file=one))
    strangers = [
        bus.receiver("t", strange.enter, bus.context("without a key")),
        bus.receiver("t", strange.enter, bus.context("with another", network_key_file=other)),
    ]
    bus.joined(source)
    way = udp_sender(source)
    session, to = way.reliable_sender.session_id, at(way.session_socket)
    bus.until(
        lambda: all(udp_receiver(each).reliable_receiver.counts.connects_sent > 2 for each in strangers),
        "the others' attempts",
    )
    with Attacker() as attacker:
        before = way.session_socket.sealed_dropped
        for _ in range(200):
            attacker.send(forged(chance, session), to)
        theirs = Seals(bus.domain, other, 1024).receiver
        assert theirs is not None
        attacker.send(theirs.seal(udp_packets.connect(session, 0, 1)), to)
        ours = Seals(bus.domain, one, 1024).receiver
        assert ours is not None
        sealed = ours.seal(udp_packets.connect(session, 0, 1))
        attacker.send(sealed, to)
        assert attacker.hear(30)
        assert len(attacker.packets) == 1
        for _ in range(5):
            attacker.send(sealed, to)
        bus.until(
            lambda: way.session_socket.sealed_dropped >= before + 206, "what is replayed to be dropped"
        )  # and more
        assert attacker.hear() == []
    for number in range(100):
        source.send(body(number), flush=True)
    bus.until(lambda: books.accounted >= 100, "the messages")
    (ledger,) = books.ledgers.values()
    balanced(ledger, 100)
    assert strange.ledgers == {}
    assert (source.receivers, len(way.reliable_sender.addresses)) == (1, 1)


def hostile(chance: random.Random, session: int, recorded: Sequence[bytes]) -> bytes:
    """A packet of an attacker without the key who hears all: forged, replayed, changed, cut or longer."""
    way = chance.randrange(6)
    if way == 0 or not recorded:
        return forged(chance, session)
    packet = chance.choice(recorded)
    if way == 1:
        return chance.randbytes(chance.randrange(1, 200))
    if way == 2:
        return packet
    if way == 3:
        place = chance.randrange(len(packet))
        return packet[:place] + bytes([packet[place] ^ 1 << chance.randrange(8)]) + packet[place + 1 :]
    if way == 4:
        return packet[: chance.randrange(1, len(packet))]
    return packet[:36] + chance.randbytes(chance.randrange(100))


@times
def test_with_a_key_each_packet_of_a_stranger_is_dropped_and_counted(
    bus: Bus, tmp_path: Path, chance: random.Random, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    stream = Stream(bus, network_key_file=key_file(tmp_path / "key", {1: b"1"}))
    ports = [udp_sender(stream.source).session_socket, udp_receiver(stream.receiver)._session_sockets[0]]
    recorded: deque[bytes] = deque(maxlen=500)

    def recording(opens: Callable[[bytes], bytes | None]) -> Callable[[bytes], bytes | None]:
        def opened(sealed: bytes) -> bytes | None:
            packet = opens(sealed)
            if packet is not None:
                recorded.append(sealed)
            return packet

        return opened

    for port in ports:
        monkeypatch.setattr(port._seal, "open", recording(port._seal.open))  # type: ignore[union-attr]
    seals = [context._network.seals for context in (stream.sending, stream.receiving)]
    session = udp_sender(stream.source).reliable_sender.session_id
    shot = 0
    with Attacker() as attacker:
        while shot < count:
            heard = list(recorded)
            for _ in range(BATCH):
                attacker.send(hostile(chance, session, heard), at(chance.choice(ports)))
            shot += BATCH
            bus.until(lambda shot=shot: sum(map(Seals.dropped, seals)) >= shot, "the packets to be dropped")  # type: ignore[misc]
        stream.finish()
        attacker.hear()
        assert attacker.got == 0
    assert sum(map(Seals.dropped, seals)) == shot


def test_without_a_key_nobody_is_heard_who_has_one(bus: Bus, tmp_path: Path) -> None:
    source = bus.source("t")
    books = Books()
    receiver = bus.receiver(
        "t", books.enter, bus.context("keyed", network_key_file=key_file(tmp_path / "key", {1: b"1"}))
    )
    way = udp_sender(source)
    bus.until(lambda: way.reliable_sender.counts.dgrams_dropped_malformed >= 3, "its attempts")
    for number in range(10):
        source.send(body(number), flush=True)
    assert (source.receivers, way.reliable_sender.addresses, receiver.delivered) == (0, (), 0)
    assert books.ledgers == {}


# What is open.


def sockets() -> dict[str, str]:
    """Inode and local address of each UDP socket of this process."""
    own = {os.readlink(f"/proc/self/fd/{each}") for each in os.listdir("/proc/self/fd") if _is_open(each)}
    found = {}
    for table in ("udp", "udp6"):
        with open(f"/proc/self/net/{table}") as lines:
            for line in list(lines)[1:]:
                fields = line.split()
                if f"socket:[{fields[9]}]" in own:
                    found[fields[9]] = fields[1]
    return found


def _is_open(number: str) -> bool:
    return os.path.lexists(f"/proc/self/fd/{number}")


def memberships() -> list[str]:
    """The multicast groups that this host is in."""
    with open("/proc/self/net/igmp") as lines:
        return [line.split()[0] for line in lines if line.startswith("\t\t\t\t")]


def test_a_default_context_is_reached_on_loopback_only(domain: str) -> None:
    before, groups = sockets(), memberships()
    with ipcbus.Context(domain=domain) as context:
        assert sockets() == before
        context.source("ring")
        source = context.source("udp", transport="lbtru")
        receiver = context.receiver("udp", lambda message: None)
        source.wait_for_receivers(1, 30)
        opened = {inode: address for inode, address in sockets().items() if inode not in before}
        assert len(opened) >= 3
        assert {address.partition(":")[0] for address in opened.values()} == {"0100007F"}
        assert memberships() == groups
        receiver.close()
    assert sockets() == before


# Topic resolution.


def heard(context: Context) -> set[str]:
    """Topics that it knows from the network."""
    return {each.topic for topics in context._network.resolution.sources().values() for each in topics.values()}


def dropped(counts: ResolutionCounts) -> int:
    """What it could not make out."""
    return counts.tr_dgrams_dropped_ver + counts.tr_dgrams_dropped_type + counts.tr_dgrams_dropped_malformed


def test_resolution_hears_only_who_has_the_key(bus: Bus, tmp_path: Path) -> None:
    keyed = {"network_key_file": key_file(tmp_path / "key", {1: b"1"})}
    with resolver() as (_, address):
        asks = {"resolver_unicast_daemon": f"{address[0]}:{address[1]}"}
        sealed, open_one = bus.context("sealed", **asks, **keyed), bus.context("open", **asks)
        bus.source("of the sealed", sealed)
        bus.source("of the open", open_one)
        with_key, without = bus.context("with", **asks, **keyed), bus.context("without", **asks)
        for context in (with_key, without):
            for topic in ("of the sealed", "of the open"):
                context.receiver(topic)
        bus.until(lambda: heard(with_key) == {"of the sealed"}, "the sealed source")
        bus.until(lambda: heard(without) == {"of the open"}, "the open source")
        for context in (with_key, sealed):
            (way,) = context._network.resolution.paths
            assert way._seal is not None
            bus.until(lambda way=way: way._seal.counts.dropped > 2, "what is not sealed to be dropped")  # type: ignore[misc]
        for context in (without, open_one):
            counts = context._network.resolution.paths[0].resolution.counts
            bus.until(lambda counts=counts: dropped(counts) > 2, "what is sealed to be dropped")  # type: ignore[misc]
        assert (heard(with_key), heard(without)) == ({"of the sealed"}, {"of the open"})
        assert (heard(sealed), heard(open_one)) == (set(), set())
        bus.close()


def spoken(domain: str) -> list[bytes]:
    """What a context says to a resolver, and what one passes on."""
    rng = random.Random(1)
    resolution = NetworkResolution(ResolutionSettings(check_address=False), Who(7, 7, ""), domain, rng, 0)
    resolution.offer(advert_of(7, "t"), 0)
    resolution.want("other", 0)
    resolution.turn(10**9)
    words = resolution.take()
    clients = ResolverClients([("127.0.0.1", 1)], ResolverClientSettings(), rng, 0)
    clients.turn(10**9)
    return [*words, *(packet for packet, _ in clients.take()), *(relay_packets.relay(0, word) for word in words)]


@pytest.mark.parametrize("seconds", [pytest.param(60, marks=pytest.mark.long), 1])
def test_changed_packets_at_every_socket_stop_no_stream(
    bus: Bus, domain: str, chance: random.Random, seconds: int
) -> None:
    with resolver() as (process, address), Attacker() as attacker:
        asks = {"resolver_unicast_daemon": f"{address[0]}:{address[1]}"}
        stream = Stream(bus, **asks)
        way, end = udp_sender(stream.source), udp_receiver(stream.receiver)
        contexts = (stream.sending, stream.receiving)
        resolving = [at(each.ports[0]) for context in contexts for each in context._network.resolution.paths]
        targets = [at(way.session_socket), at(end._session_sockets[0]), *resolving, address]
        said: list[bytes] = [
            *spoken(domain),
            *(forged(chance, way.reliable_sender.session_id, end._receiver._cookie) for _ in range(100)),
        ]
        until = time.monotonic() + seconds
        shot = 0
        while time.monotonic() < until:
            for _ in range(BATCH):
                attacker.send(changed(chance, said), chance.choice(targets))
                shot += 1
            said = said[-500:] + attacker.hear()
        print(shot, "packets")
        assert shot > 100
        assert process.poll() is None
        stream.finish()
        assert len(way.session_socket._handlers) <= 1  # none when the ended session is gone already
        bus.close()
