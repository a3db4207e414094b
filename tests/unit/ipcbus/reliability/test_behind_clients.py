"""Clients that have yet to get what others have got."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ipcbus.reliability.behind_clients import BehindClients
from ipcbus.reliability.clients import Client, Clients, ClientSettings, State
from ipcbus.reliability.congestion import UNLIMITED, CubicWindow
from ipcbus.reliability.congestion_paths import Path
from ipcbus.reliability.retransmit_window import RetransmitWindow
from ipcbus.reliability.send_state import SendSettings
from ipcbus.wire import udp_packets
from ipcbus.wire.udp_packets import AGAIN, CHARGE, DATA_BODY, PASSED_SHIFT, Data
from tests.unit.ipcbus.reliability import ends
from tests.unit.ipcbus.reliability.ends import HERE, MS, SECOND, Pair

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Set

SIZE = 1000
OTHER = ("127.0.0.1", 5001)


class Two:
    """A source, a receiver that answers, and another one whose packets wait while it is `cut`."""

    def __init__(self, topics_of: Callable[[bytes], Set[int] | None] | None = None, **terms: object) -> None:
        sending = SendSettings(data_rate=0, retransmit_rate=0, congestion_control=True, **terms)  # type: ignore[arg-type]
        self.there = ends.source(topics_of=topics_of, sending=sending)
        self.pairs: dict[Hashable, Pair] = {at: Pair(self.there, ends.receiver()) for at in (HERE, OTHER)}
        self.cut = False
        self.now = 0
        self.bodies: list[bytes] = []
        self.down: list[bytes] = []
        """What was sent to the one that may be cut off."""
        for pair in self.pairs.values():
            pair.here.topics([1], 0)
        self.step()

    @property
    def slow(self) -> Client:
        found = self.there.client_at(OTHER)
        assert found is not None
        return found

    def slow_place(self) -> int | None:
        return self.slow.place

    def step(self, passed_ns: int = 0) -> None:
        """All do what is due until nothing is left."""
        self.now += passed_ns
        for _ in range(40):
            self.there.turn(self.now)
            busy = False
            for address, pair in self.pairs.items():
                pair.here.turn(self.now)
                for packet in pair.here.take() if not (self.cut and address == OTHER) else ():
                    busy = True
                    self.there.receive(packet, address, self.now)
            for packet, to in self.there.take():
                busy = True
                for address, pair in self.pairs.items():
                    if to not in (None, address):
                        continue
                    if address == OTHER:
                        self.down.append(packet)
                    if not (self.cut and address == OTHER):
                        pair.got += [data for data, _ in pair.here.receive(packet, ends.AT, self.now)]
            if not busy:
                return

    def send(self, count: int, body: bytes = bytes([1]) * SIZE) -> None:
        for _ in range(count):
            self.bodies.append(body)
            self.there.send(body, 1, 5, self.now)
            self.step(2 * MS)

    def packets(self) -> list[udp_packets.Packet | None]:
        """The packets that were sent to the one that may be cut off."""
        return [udp_packets.parse(packet) for packet in self.down]

    def numbers(self) -> list[int]:
        """The new datagrams among them."""
        return [each.number for each in self.packets() if isinstance(each, Data) and not each.flags & AGAIN]


def test_the_others_get_what_a_client_has_yet_to_get() -> None:
    two = Two()
    two.send(100)
    sent, got = two.there.lead, len(two.pairs[OTHER].got)
    assert got == sent == 100
    two.cut = True
    two.send(60)
    assert len(two.pairs[HERE].got) == 160
    place = two.slow_place()
    assert place is not None
    assert two.there.is_behind
    path, window = two.slow.path, two.there.window
    assert path is not None
    assert path.position == window.position_of(place) < window.position
    # It does not hear of datagrams that were not sent to it: they would count as lost.
    assert two.numbers() == list(range(place))
    leads = [each.lead for each in two.packets() if isinstance(each, udp_packets.SessionMessage)]
    assert max(leads) <= place
    two.cut = False
    for _ in range(400):
        two.step(MS)
        if two.slow_place() is not None:
            assert path.position == window.position_of(two.slow_place())
    assert len(two.pairs[OTHER].got) == 160
    assert two.numbers() == list(range(160))
    assert two.slow_place() is None


def test_a_single_client_is_not_behind_for_long() -> None:
    two = Two()
    two.there.forget(two.slow)
    del two.pairs[OTHER]
    two.send(100)
    pair = two.pairs.pop(HERE)
    for _ in range(1000):
        if two.there.blocked:
            break
        two.send(1)
    assert two.there.blocked
    assert not two.there.is_behind
    del pair


def test_the_end_is_announced_to_a_client_behind_its_last_datagram() -> None:
    two = Two()
    two.send(100)
    two.cut = True
    two.send(60)
    two.there.end(two.now)
    for _ in range(20):  # more often than the end is announced to a client
        two.step(200 * MS)
    assert two.pairs[HERE].here.over
    assert not two.there.over
    two.cut = False
    for _ in range(1000):
        two.step(5 * MS)
    assert len(two.pairs[OTHER].got) == 160
    assert two.pairs[OTHER].here.over
    assert two.there.over


def test_a_source_paced_source_leaves_a_silent_client_to_itself() -> None:
    two = Two(window_size=150 * SIZE, receiver_paced=False)
    two.send(100)
    two.cut = True
    two.send(20)
    assert two.slow_place() is not None
    for _ in range(30):
        two.send(50)
        two.step(20 * MS)
    assert two.slow_place() is None
    assert not two.there.is_behind
    assert len(two.pairs[HERE].got) == 1620
    two.cut = False
    for _ in range(2000):
        two.step(5 * MS)
    here = two.pairs[OTHER].here
    lost = here.counts.unrecovered_txw + here.counts.unrecovered_tmo
    assert (len(two.pairs[OTHER].got) + lost, here.missing) == (1620, 0)
    assert 1000 < lost <= two.there.trail  # what the window still held came again
    two.cut = True
    two.send(40)
    assert two.slow_place() is not None  # the source waits for it again


def topics_of(body: bytes) -> set[int]:
    return {body[DATA_BODY.size]}


OTHERS, MINE = bytes([2]) * SIZE, bytes([1]) * SIZE


def test_a_client_that_is_behind_hears_what_was_not_for_it() -> None:
    two = Two(topics_of)
    two.send(100)
    two.cut = True
    for _ in range(20):
        two.send(1, OTHERS)
        two.send(2, MINE)
    numbers, place = two.numbers(), two.slow_place()
    assert place is not None
    assert numbers[100:] == [number for number in range(100, place) if number % 3 != 1]
    two.cut = False
    for _ in range(1000):
        two.step(5 * MS)
    got = two.pairs[OTHER].got
    here = two.pairs[OTHER].here
    assert two.slow_place() is None
    assert set(got) == {MINE}
    assert (len(got), here.missing, here.counts.unrecovered_txw + here.counts.unrecovered_tmo) == (140, 0, 0)
    assert here.counts.dgrams_filtered == 20


def test_what_was_not_for_a_client_is_not_lost_where_it_is_left_to_itself() -> None:
    two = Two(topics_of, window_size=150 * SIZE, receiver_paced=False)
    two.send(100)
    two.cut = True
    while two.slow_place() is None or not two.slow.filter.passed:
        two.send(1, OTHERS)
        two.send(1, MINE)
    passed = two.slow.filter.passed
    while (now := two.slow_place()) is not None:
        place = now
        two.send(10)
        two.step(20 * MS)
    two.send(300)
    two.cut = False
    for _ in range(2000):
        two.step(5 * MS)
    here, lead = two.pairs[OTHER].here, two.there.lead
    assert two.there.trail > place
    lost = here.counts.unrecovered_txw + here.counts.unrecovered_tmo
    named: set[int] = set()
    for each in two.packets():
        if isinstance(each, udp_packets.Passed):
            named.update(*(range(first, first + count) for first, count in each.ranges))
        elif isinstance(each, Data):
            named.update(range(each.number - (each.flags >> PASSED_SHIFT), each.number))
    assert passed > 0
    assert place - 1 in named
    assert {two.bodies[number] for number in named} == {OTHERS}
    assert (len(two.pairs[OTHER].got) + lost + here.counts.dgrams_filtered, here.missing) == (lead, 0)


def test_several_datagrams_that_waited_go_to_a_client_in_order() -> None:
    two = Two()
    two.send(100)
    two.cut = True
    two.there.turn(two.now)
    credit, paths = two.there._send_state.credit, two.there._send_state.paths
    here = two.pairs[HERE].there.client_at(HERE)
    assert credit is not None
    assert paths is not None
    assert here is not None
    assert here.path is not None
    control = here.path.control
    assert isinstance(control, CubicWindow)
    control._window *= 4
    for client in two.there.clients:  # nothing may be sent, until an ACK
        client.limit = two.there.window.position
    credit.limit = 0
    for _ in range(60):
        two.there.send(bytes([1]) * SIZE, 1, 5, two.now)
    for client in two.there.clients:
        client.limit = 1 << 40
    credit.limit, paths.pacer.rate = 0, UNLIMITED
    two.there.turn(two.now)  # several at once; the other one is behind from a later one on
    two.step()
    place = two.slow_place()
    assert place is not None
    assert two.numbers() == list(range(place))


def test_a_source_slows_down_the_more_waits_for_a_client() -> None:
    window = RetransmitWindow(100_000_000, 0)
    behind = BehindClients(window, Clients(7, ClientSettings(), b"key"))
    path = Path(CubicWindow(1500), 0, 0)
    client = Client(HERE, 0, State.KNOWN, 0)
    client.place = 0
    assert behind.rate_of(path) == path.rate  # no answer has come
    assert behind.limit_of(client, path) == path.limit
    path.asked(0, 0, 0, 0)
    assert path.answered(0, 0, 20 * MS)
    assert behind.limit_of(client, path) == 16 * 1500 * 0.95
    assert behind.rate_of(path) == 2 * (path.rate // 8)  # it is not known how much it takes
    path.takes = path.took = 1e6
    rates = []
    for _ in range(1100):
        rates.append(behind.rate_of(path))
        window.add(bytes(1000 - CHARGE))
    assert (rates[0], rates[500], rates[-1]) == (2_000_000, 1_000_000, 100_000)
    assert rates == sorted(rates, reverse=True)
    assert behind.limit_of(client, path) == 950_000
    path.took = 1000  # a few datagrams may wait in any case
    assert behind.limit_of(client, path) == 16 * 1500 * 0.95
    assert behind.rate_of(path) == 100_000
    path.took, path.takes = 1e6, 1000
    assert behind.rate_of(path) == 1500 * SECOND // (40 * MS)
    small = BehindClients(RetransmitWindow(400_000, 0), Clients(7, ClientSettings(), b"key"))
    assert small.limit_of(client, path) == int(small._window.span // 4 * 0.95)


def test_a_client_that_the_source_waits_for_again_may_be_behind() -> None:
    clients = Clients(7, ClientSettings(), b"key")
    cookie = clients.connect(HERE, 0, 0)[1]
    clients.connect(HERE, cookie, 0)
    client = clients.get(HERE)
    assert client is not None
    client.path = Path(CubicWindow(1500), 0, 0)
    window = RetransmitWindow(100_000_000, 0)
    behind = BehindClients(window, clients)
    waits = False
    for _ in range(100):
        assert not behind.note(1500, lambda client: waits)
        window.add(bytes(1500 - CHARGE))
    waits = True
    assert behind.note(1500, lambda client: waits)
    assert client.place == 100
