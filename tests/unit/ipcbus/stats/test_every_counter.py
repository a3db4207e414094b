"""Every counter of the table moves somewhere: in one of the scenarios here, or in the test that is named for it."""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import random
import re
import select
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import pytest

from ipcbus import MessageType, WouldBlock, stats
from ipcbus.delivery.delivery_rules import DeliveryRules
from ipcbus.delivery.reassembly_budget import ReassemblyBudget
from ipcbus.reliability.clients import ClientSettings
from ipcbus.reliability.send_state import SendSettings
from ipcbus.reliability.stream_sender import UNSENT_MAX
from ipcbus.resolution.network.resolution_settings import ResolutionSettings
from ipcbus.stats import COUNTERS
from ipcbus.stats.counters import values
from ipcbus.transport.udp.datagram_socket import Buffers, unicast
from ipcbus.transport.udp.loss_injection import LossInjection
from ipcbus.transport.udp.network_interface import find
from ipcbus.transport.udp.ports import Ports
from ipcbus.transport.udp.session_socket import SessionSocket
from ipcbus.wire import resolution_packets, udp_packets
from ringbuf import layout
from tests.kit.bus import LBTIPC, LBTIPC_SOURCE_PACED, LBTRU, Bus, Kind
from tests.kit.cases import each_of
from tests.kit.datagrams import Item, compose, fragment
from tests.kit.loopback import Loopback
from tests.rings import channels
from tests.unit.ipcbus.delivery.test_demux import Stand
from tests.unit.ipcbus.reliability import ends
from tests.unit.ipcbus.reliability.ends import AT, HERE, MS, SECOND, SESSION, Pair
from tests.unit.ipcbus.reliability.test_stream import Link
from tests.unit.ipcbus.resolution.network import test_network_resolution as resolving_contexts
from tests.unit.ipcbus.stats.counters_elsewhere import NAMED, NOT_FORCED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from ipcbus import Message, Source
    from ipcbus.stats import ContextStats, SessionStats

    Found = Mapping[str, Mapping[str, int]]
    Scenario = Callable[[str], Iterator[Found]]

UNIT: Final = Path(__file__).parents[1]

SCENARIOS: dict[str, tuple[Scenario, dict[str, set[str]]]] = {}
"""By name: what runs in a domain and gives counters by kind, and those that are not 0 in one of them at the end."""

TABLE: Final = {(row.of, row.name) for row in COUNTERS}


def moves(**names: str) -> Callable[[Scenario], Scenario]:
    """Registers a scenario with the counters that it moves, by kind of thing."""

    def register(scenario: Scenario) -> Scenario:
        SCENARIOS[scenario.__name__] = scenario, {of: set(each.split()) for of, each in names.items()}
        return scenario

    return register


def test_every_counter_of_the_table_moves_in_a_test() -> None:
    moved = {(of, name) for _, found in SCENARIOS.values() for of, names in found.items() for name in names}
    named = {(of, name) for of, tests in NAMED.items() for names in tests.values() for name in names.split()}
    assert TABLE - moved - named - NOT_FORCED.keys() == set()


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_scenario(scenario: str, domain: str) -> None:
    run, expected = SCENARIOS[scenario]
    seen: dict[str, set[str]] = {of: set() for of in expected}
    for found in run(domain):
        for of, counters in found.items():
            seen.setdefault(of, set()).update(name for name, value in counters.items() if value)
    claimed = {(of, name) for of, names in expected.items() for name in names} & TABLE
    assert {(of, name) for of, name in claimed if name not in seen[of]} == set()


@each_of("test", sorted({test for tests in NAMED.values() for test in tests}))
def test_named_test_is_there_and_looks_at_its_counters(test: str) -> None:
    path, _, name = test.partition("::")
    text = (UNIT / path).read_text()
    found = [each for each in ast.parse(text).body if isinstance(each, ast.FunctionDef) and each.name == name]
    assert found, f"{test} is gone: name the test in which its counters move now"
    source = ast.get_source_segment(text, found[0]) or ""
    names = {each for tests in NAMED.values() for each in tests.get(test, "").split()}
    assert {each for each in names if not re.search(rf"\b{each}\b", source)} == set()


# ------------------------------------------------------------------ rings


def session_of(bus: Bus, source: Source) -> SessionStats:
    found = stats.take_snapshot(bus.domain).session(source.source)
    assert found is not None
    return found


def context_of(bus: Bus, name: str) -> ContextStats:
    return next(each for each in stats.take_snapshot(bus.domain).contexts if each.name == name)


def shown(bus: Bus, source: Source) -> Iterator[Found]:
    """What a snapshot says of a session, its topics and readers, and of all receivers."""
    session = session_of(bus, source)
    yield {"session": session.counters}
    yield from ({"source": each.counters} for each in session.sources)
    yield from ({"slot": each.counters} for each in session.receivers)
    for context in stats.take_snapshot(bus.domain).contexts:
        yield from ({"receiver": each.counters} for each in context.receivers)


@contextlib.contextmanager
def bus_of(domain: str, kind: Kind = LBTIPC, mode: str = "embedded") -> Iterator[Bus]:
    bus = Bus(domain, kind, mode)
    try:
        yield bus
    finally:
        bus.close()


@moves(
    session="msgs_sent bytes_sent lbm_msgs_sent fragments_sent num_clients wakes_sent activity batch_wait_ns "
    "batch_wait_max",
    source="lbm_msgs_sent sequence_next bytes_sent fragments_sent msgs_fragmented",
    slot="msgs_rcved bytes_rcved lbm_msgs_rcved lbm_msgs_no_topic_rcved fragments_rcved msgs_reassembled "
    "latency_samples latency_max parks",
    receiver="lbm_msgs_rcved bytes_rcved fragments_rcved events callback_errors",
)
def traffic(domain: str) -> Iterator[Found]:
    with bus_of(domain) as bus:

        def fail(message: Message) -> None:
            if message.type is MessageType.DATA:
                raise ValueError("on purpose")

        writer = bus.context("writer")
        source = bus.source("t", writer, **bus.kind.id(7), transport_lbtipc_sm_interval=10)
        other = bus.source("other", writer, **bus.kind.id(7), transport_lbtipc_sm_interval=10)
        receiver = bus.receiver("t", fail, bus.context("reader", latency_sampling_interval=1))
        bus.joined(source)
        for each in (source, other):
            bus.until(lambda: session_of(bus, source).receivers[0].parked, "a reader that sleeps")
            each.send(bytes(20_000), flush=True)
        source.send(b"waits for others in its datagram")
        bus.until(lambda: receiver.delivered == 2, "the messages")
        bus.until(lambda: session_of(bus, source).receivers[0].lag == 0, "the other message")
        bus.until(lambda: session_of(bus, source).counters["activity"], "a sign of life")
        yield from shown(bus, source)


@moves(session="send_blocked send_would_block blocked_ns", source="send_blocked send_would_block")
def a_full_ring(domain: str) -> Iterator[Found]:
    with bus_of(domain) as bus:
        go_on = threading.Event()
        source = bus.source("t", **bus.kind.small())
        bus.receiver("t", lambda _: go_on.wait())
        bus.joined(source)
        with contextlib.suppress(WouldBlock):
            while True:
                source.send(bytes(4000), flush=True, block=False)
        sender = threading.Thread(target=source.send, args=(bytes(4000),))
        sender.start()
        try:
            bus.until(lambda: session_of(bus, source).wait == "blocked", "a send that waits")
        finally:
            go_on.set()
            sender.join()
        yield from shown(bus, source)


@moves(slot="lost overruns", receiver="lost")
def a_reader_that_is_lapped(domain: str) -> Iterator[Found]:
    with bus_of(domain, LBTIPC_SOURCE_PACED, "sequential") as bus:
        source = bus.source("t", **bus.kind.small())
        receiver = bus.receiver("t", lambda _: None)
        bus.joined(source)
        for _ in range(5 * bus.kind.window // 4000):
            source.send(bytes(4000), flush=True)
        bus.until(lambda: receiver.lost and session_of(bus, source).receivers[0].counters["lost"], "the loss")
        yield from shown(bus, source)


@moves(session="receivers_evicted")
def a_reader_that_is_evicted(domain: str) -> Iterator[Found]:
    with bus_of(domain, mode="sequential") as bus:
        evicts = {"slow_receiver_behavior": "evict", "slow_receiver_timeout": 10, "udp_fallback": "none"}
        source = bus.source("t", **bus.kind.small(), **evicts)
        bus.receiver("t", None, receive_queue_maximum=1)
        bus.joined(source)
        for _ in range(3 * bus.kind.window // 4000):
            source.send(bytes(4000), flush=True)
        yield from shown(bus, source)


@moves(session="slots_reclaimed")
def a_reader_that_dies(domain: str) -> Iterator[Found]:
    code = (
        "import ipcbus, sys\nreceiver = ipcbus.Context(domain=sys.argv[1]).receiver('t', lambda message: None)\ninput()"
    )
    with bus_of(domain) as bus:
        source = bus.source("t", bus.context("writer", liveness_check_interval=10))
        with subprocess.Popen([sys.executable, "-c", code, domain], stdin=subprocess.PIPE) as reader:
            try:
                bus.joined(source)
            finally:
                reader.kill()
        bus.until(lambda: session_of(bus, source).counters["slots_reclaimed"], "the slot")
        yield from shown(bus, source)


@moves(session="batches_timed_out")
def a_batch_that_is_not_ended(domain: str) -> Iterator[Found]:
    with bus_of(domain) as bus:
        source = bus.source("t", explicit_batching_interval=10)
        source.send(b"x", start_batch=True)
        bus.until(lambda: session_of(bus, source).counters["batches_timed_out"], "the end of the patience")
        yield from shown(bus, source)


@moves(slot="lbm_reqs_rcved")
def a_request(domain: str) -> Iterator[Found]:
    with bus_of(domain, mode="sequential") as bus:
        got: list[object] = []
        source = bus.source("t")
        bus.receiver("t", got.append)
        bus.joined(source)
        source._send_request(b"x", 7)
        bus.until(lambda: len(got) >= 2, "the request")
        yield from shown(bus, source)


@moves(
    context="retained_bytes retransmissions_sent retransmission_bytes_sent retransmissions_rcved recoveries_running "
    "retransmissions_missing"
)
def late_join(domain: str) -> Iterator[Found]:
    with bus_of(domain) as bus:
        source = bus.source("t", bus.context("both"), late_join=1)
        for _ in range(6000):
            source.send(b"x" * 64)
        source.flush()
        receiver = bus.context("late").receiver("t", receive_queue_maximum=2)
        bus.until(lambda: receiver.receive(0), "a message")

        def counted() -> dict[str, int]:
            late = {name: count for name, count in context_of(bus, "late").counters.items() if count}
            return {**context_of(bus, "both").counters, **late}

        needs = ("retransmissions_missing", "retransmissions_sent")
        bus.until(lambda: all(counted()[name] for name in needs), "the counters")
        yield {"context": counted()}


@moves(context="reqs_sent reqs_pending resps_rcved resps_late resps_unknown resps_sent resp_blocked resp_would_block")
def requests_and_responses(domain: str) -> Iterator[Found]:
    with bus_of(domain) as bus:
        context = bus.context("both")
        loopback = Loopback(context)
        asked: list[Message] = []
        refused: list[WouldBlock] = []

        def answer(message: Message) -> None:
            if message.type is not MessageType.REQUEST:
                return
            loopback.full = True
            try:
                message.respond(b"x")
            except WouldBlock as error:
                refused.append(error)
            loopback.full = False
            message.respond(b"x")
            asked.append(message)

        source = bus.source("t", context)
        bus.receiver("t", answer, context)
        source.request(b"x", timeout=30)
        asked[0].respond(b"late")
        responder = context._responses.responder(source._session.advert)
        responder.respond("t", 7, b"unknown")
        loopback.full = True
        waiting = threading.Thread(target=asked[0].respond, args=(b"late",))
        waiting.start()
        bus.until(lambda: context._responses.blocked, "a response that waits")
        loopback.full = False
        waiting.join()
        source.requests(b"x", lambda _: None)
        bus.until(lambda: context_of(bus, "both").counters["resp_blocked"], "the counters to be shown")
        yield {"context": context_of(bus, "both").counters}


@moves(context="gmd_pending gmd_oldest_ns gmd_area_bytes gmd_acks_rcved gmd_failures")
def guaranteed(domain: str) -> Iterator[Found]:
    with bus_of(domain) as bus:
        context = bus.context("both")
        given = {"gmd_name": "gateway", "delivery_mode": "all", "ipc_gmd_type": "memory"}
        bus.receiver("t", lambda _: None, context, gmd_name="receiver", ipc_gmd_type="memory")
        acknowledged = bus.source("t", context, **given)
        failed = bus.source("u", context, gmd_zero_receivers="failure", **given)
        for source in (acknowledged, failed):
            source.send(b"x", flush=True)
        names = ("gmd_pending", "gmd_oldest_ns", "gmd_area_bytes", "gmd_acks_rcved", "gmd_failures")
        bus.until(lambda: all(context_of(bus, "both").counters[name] for name in names), "the counters to be shown")
        found = context_of(bus, "both").counters
        assert (found["gmd_pending"], found["gmd_acks_rcved"], found["gmd_failures"]) == (1, 1, 1)
        yield {"context": found}


@moves(slot="views_kept")
def an_array_that_is_kept(domain: str) -> Iterator[Found]:
    with bus_of(domain, mode="sequential") as bus:
        kept: list[object] = []
        source = bus.source("t")
        bus.receiver("t", lambda message: kept.append(np.frombuffer(message.view, np.uint8)))
        bus.joined(source)
        source.send(b"x" * 64, flush=True)
        bus.until(lambda: len(kept) >= 2, "the message")
        for _ in range(3):
            bus.turn()
        yield from shown(bus, source)


@moves(session="position_errors", slot="clock_faults")
def damage(domain: str) -> Iterator[Found]:
    with channels.owned(domain, window=65536) as channel, channels.joined(domain) as reader:
        header = layout.ring_view(channel.ring.view())[0]
        channel.writer.write(b"x")
        data = channel.ring.view(int(header["data_offset"]))
        np.frombuffer(data, layout.RECORD, 1)[0]["send_ticks"] += 1 << 50
        reader.reader.read()
        reader.reader.show()
        slots = layout.control_view(channel.control.view())[2]
        yield {"slot": values("slot", slots[reader.index])}
        slots["position"][reader.index] = 1 << 63
        while channel.writer.write(bytes(1000)):
            pass  # until the reader, which counts as standing where it stood, is in the way
        yield {"session": values("session", header)}


@moves(slot="malformed duplicates reassembly_refused order_map_entries reassembly_bytes")
def disorder(domain: str) -> Iterator[Found]:
    with channels.owned(domain, window=65536) as channel:
        reading = channels.join(domain)
        try:
            stand = Stand(channel, reading)
            topic = stand.topic(1)
            topic.rules, topic._budget = DeliveryRules(recovery_ns=SECOND), ReassemblyBudget(bytes_max=1000)

            def came(*items: Item) -> Found:
                assert channel.writer.write(compose(*items), len(items))
                stand.poll()
                return {"slot": values("slot", stand.slot)}

            yield came(Item(1, 0, b"a"), Item(1, 0, b"a"), Item(1, 1 << 62, b"damaged"))
            yield came(fragment(1, 1, 0, 900, bytes(450)))
            yield came(fragment(2, 1, 450, 900, bytes(450)), fragment(3, 3, 0, 5000, bytes(2500)))
            yield came(Item(1, 9, b"b"))
        finally:
            reading.leave()


# ------------------------------------------------------------------ UDP


def cookie_of(pair: Pair) -> int:
    (client,) = pair.there.clients
    return client.cookie


@moves(
    uplink="num_clients msgs_sent bytes_sent nak_pckts_rcved naks_rcved naks_ignored naks_shed naks_rx_delay_ignored "
    "naks_too_old rxs_sent rx_bytes_sent ncfs_sent sms_sent txw_msgs txw_bytes rctlr_rx_msgs rctlr_data_msgs lead trail"
)
def a_source_that_is_asked(domain: str) -> Iterator[Found]:
    del domain
    terms = {"data_rate": 0, "retransmit_rate": 160_000, "rate_interval": 10 * MS, "queue_max": 4, "window_size": 700}
    pair = Pair(ends.source(sending=SendSettings(**terms, receiver_paced=False)), ends.receiver())
    pair.exchange()
    pair.send(*(bytes([number]) * 100 for number in range(8)))
    pair.lose()
    for numbers in (range(8), [2]):
        for packet in udp_packets.naks(SESSION, cookie_of(pair), numbers):
            pair.there.receive(packet, HERE, 1)
    yield {"uplink": pair.there.snapshot()}
    for now_ns in (SECOND, 2 * SECOND, 3 * SECOND):
        pair.there.turn(now_ns)
    yield {"uplink": pair.there.snapshot()}
    slow = Pair(ends.source(sending=SendSettings(data_rate=80_000, retransmit_rate=0)), ends.receiver())
    slow.exchange()
    for _ in range(20):
        slow.send(bytes(1000))
    yield {"uplink": slow.there.snapshot()}


@moves(uplink="dgrams_filtered clients_evicted", reception="dgrams_filtered")
def a_source_that_filters(domain: str) -> Iterator[Found]:
    del domain
    pair = Pair(ends.source(topics_of=lambda body: {body[-1]}), ends.receiver())
    pair.here.topics([1], 0)
    pair.exchange()
    pair.send(b"\x02", b"\x01")
    pair.exchange()
    pair.there.overtake(pair.there.clients[0])
    yield {"uplink": pair.there.snapshot(), "reception": dataclasses.asdict(pair.here.counts)}


@moves(uplink="bytes_buffered")
def a_client_over_tcp_that_takes_nothing(domain: str) -> Iterator[Found]:
    del domain
    link = Link()
    link.connect("a")
    link.unsent["a"] = UNSENT_MAX
    link.send(b"waits")
    yield {"uplink": link.sender.snapshot()}


@moves(uplink="clients_refused clients_silent dgrams_dropped_malformed dgrams_dropped_sid dgrams_dropped_unproven")
def strangers(domain: str) -> Iterator[Found]:
    del domain
    end = ends.source()
    for packet in (b"rubbish", udp_packets.connect(SESSION + 1, 0, 3), *udp_packets.naks(SESSION, 99, [0])):
        end.receive(packet, HERE, 0)
    yield {"uplink": end.snapshot()}
    pair = ends.joined()
    pair.there.turn(10 * SECOND)
    yield {"uplink": pair.there.snapshot()}
    full = ends.source(clients=ClientSettings(clients_max=1))
    for place in range(2):
        other, here = ("127.0.0.1", 6000 + place), ends.receiver()
        for now_ns in range(0, SECOND, 100 * MS):
            here.turn(now_ns)
            for packet in here.take():
                full.receive(packet, other, now_ns)
            for packet, to in full.take():
                if to == other:
                    here.receive(packet, AT, now_ns)
    yield {"uplink": full.snapshot()}


@moves(
    reception="msgs_rcved bytes_rcved nak_pckts_sent naks_sent lost missing lead nak_stm_min nak_stm_mean nak_stm_max "
    "nak_tx_min nak_tx_mean nak_tx_max duplicate_data connects_sent acks_sent dgrams_dropped_size dgrams_dropped_type "
    "dgrams_dropped_version dgrams_dropped_hdr dgrams_dropped_sid dgrams_dropped_other"
)
def a_receiver_that_asks(domain: str) -> Iterator[Found]:
    del domain
    pair = ends.joined()
    here = pair.here

    def counted() -> Found:
        return {"reception": {**dataclasses.asdict(here.counts), "lead": here.lead, "missing": here.missing}}

    for number in range(2):
        pair.send(b"lost")
        pair.lose()
        pair.send(b"comes")
        again = pair.there.take()
        pair.deliver(*again[0], number)
        pair.deliver(*again[0], number)
        yield counted()
        pair.exchange((1 + number) * 500 * MS)
    data = udp_packets.data(SESSION, 9, 0, 1, 5, b"x", 0)
    wrong = (
        (b"", AT),
        (bytes([udp_packets.VERSION + 1]) + data[1:], AT),
        (bytes([udp_packets.VERSION, 0x63]) + bytes(40), AT),
        (udp_packets.data(SESSION, 9, 0, 1, 5, b"", 0), AT),
        (udp_packets.data(SESSION + 1, 9, 0, 1, 5, b"x", 0), AT),
        (data, HERE),
    )
    for packet, address in wrong:
        here.receive(packet, address, SECOND)
    yield counted()


@moves(reception="dgrams_shed unknown_msgs_rcved")
def a_slow_application_over_udp(domain: str) -> Iterator[Found]:
    with bus_of(domain, LBTRU, "sequential") as bus:
        source = bus.source("t", transport_lbtru_behavior="source_paced")
        bus.receiver("t", None, bus.context("reader"), receive_queue_maximum=1)
        bus.joined(source)

        def reception() -> Mapping[str, int]:
            found = session_of(bus, source).receivers[0].reception
            return found.counters if found else {}

        bus.until(reception, "its board")
        reader = next(each for each in bus.contexts if each.name == "reader")
        port = next(iter(reader._network._udp_receivers[0]._session_sockets))
        assert isinstance(port, SessionSocket)
        with_nobody = udp_packets.data(12345, 0, 0, 1, 0, b"x", 0)

        def sent() -> bool:
            for _ in range(16):
                source.send(bytes(8000), flush=True)
            port.socket.send(with_nobody, port.socket.address)
            found = reception()
            return bool(found["dgrams_shed"] and found["unknown_msgs_rcved"])

        bus.until(sent, "a datagram for which there is no room")
        yield {"reception": reception()}


_OF_SOCKETS: Final = (
    "socket_dgrams_sent socket_bytes_sent socket_dgrams_rcved socket_bytes_rcved socket_send_refused "
    "socket_send_too_large socket_dgrams_truncated socket_dgrams_lost socket_dgrams_overrun"
)


@moves(uplink=_OF_SOCKETS, reception=_OF_SOCKETS)
def sockets(domain: str) -> Iterator[Found]:
    """Boards show what the sockets count (test_boards)."""
    del domain
    interface = find("127.0.0.1", "transport_lbtru_interface")
    one, other = (
        unicast(interface, Ports(0, 0, ephemeral=True, cure="x"), Buffers(receive=4096), loss)
        for loss in (None, LossInjection(50, random.Random(7)))
    )
    try:
        one.send(bytes(70_000), other.address)
        one.send(b"x", ("127.0.0.1", 0))
        one.send_to_all(bytes(1000), [other.address] * 100)
        select.select([other], [], [])
        other.receive(100)
        short = type(one.batched)(other.fileno(), False, 10)
        one.send(bytes(11), other.address)
        select.select([other], [], [])
        short.receive(1)
        for counts in (one.counts, dataclasses.replace(other.counts, dgrams_truncated=short.truncated)):
            found = {f"socket_{name}": value for name, value in dataclasses.asdict(counts).items()}
            yield {"uplink": found, "reception": found}
    finally:
        one.close()
        other.close()


# ------------------------------------------------------------------ topic resolution


@moves(context="tr_dgrams_sent tr_bytes_sent tr_rcv_topics tr_rcv_unresolved_topics")
def a_context_that_looks_for_topics(domain: str) -> Iterator[Found]:
    with bus_of(domain) as bus:
        daemon = {"resolver_unicast_daemon": "127.0.0.1:9", "resolver_unicast_interface": "127.0.0.1"}
        bus.receiver("t", lambda _: None, bus.context("looking", **daemon))
        bus.until(lambda: context_of(bus, "looking").counters["tr_dgrams_sent"], "a query")
        yield {"context": context_of(bus, "looking").counters}


@moves(
    context="tr_dgrams_rcved tr_bytes_rcved tr_dgrams_dropped_ver tr_dgrams_dropped_type tr_dgrams_dropped_malformed "
    "tr_src_topics dgrams_dropped_address dgrams_dropped_old dgrams_other_domain adverts_refused"
)
def what_others_say(domain: str) -> Iterator[Found]:
    one = resolving_contexts.resolution(2)
    here, there = resolving_contexts.HERE, resolving_contexts.THERE

    def advert(number: int, tag: str, topics: int = 1) -> bytes:
        told = resolving_contexts._told()
        head = resolution_packets.Head(1, 1, "", tag, number)
        return resolution_packets.advert(head, 35, [(told, {each: f"topic {each}" for each in range(topics)})])

    tag = one._tag
    for packet in (b"", b"\2rest", b"\1\0rest", b"\1\1rest", advert(1, tag), advert(1, tag), advert(2, domain[:4])):
        one.receive(packet, here, 0)
    one.receive(advert(3, tag), there, 0)
    yield {"context": dataclasses.asdict(one.counts)}
    small = resolving_contexts.resolution(2, dataclasses.replace(ResolutionSettings(), cache_bytes_max=2000))
    for session in range(50):
        told = dataclasses.replace(resolving_contexts._told(), session_id=session)
        head = resolution_packets.Head(1, 1, "", tag, session + 1)
        small.receive(
            resolution_packets.advert(head, 35, [(told, {each: f"topic {each}" for each in range(9)})]), here, session
        )
    yield {"context": dataclasses.asdict(small.counts)}


@moves(context="tr_dgrams_send_failed")
def a_query_that_the_system_refuses(domain: str) -> Iterator[Found]:
    with bus_of(domain) as bus:
        daemon = {"resolver_unicast_daemon": "127.0.0.1:9", "resolver_unicast_interface": "127.0.0.1"}
        context = bus.context("looking", **daemon)
        context._network.resolution.paths[0].ports[0].socket.send(b"x", ("127.0.0.1", 0))
        bus.until(lambda: context_of(bus, "looking").counters["tr_dgrams_send_failed"], "the count")
        yield {"context": context_of(bus, "looking").counters}
